"""Download files from web servers.

If UBERT_FETCH_VIA names a server, such as a company's cache, all requests go there: <server>/host/path instead of
https://host/path.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import requests
import urllib3.exceptions

from pipelines.mirror import resume
from pipelines.mirror.resume import CHUNK, BrokenError, Opened, Origin
from ubert.schema.errors import UserError

PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses that are worth a retry
VIA = "UBERT_FETCH_VIA"
SLOWEST = 1024  # bytes per second over READ seconds; a slower response counts as broken


def open_at(url: str, have: int, known: Origin | None) -> Opened:
    """Open a file at byte `have`, or at 0 if it differs from `known` or the server doesn't support ranges.

    Raises:
        BrokenError: there is no response, or one that is worth a retry.
        UserError: the server refuses the request, or redirects from https to http.
    """
    headers = {"Accept-Encoding": "identity", "User-Agent": "ubert"}
    unchanged = known and _condition(known)
    if have and unchanged:
        headers |= {"Range": f"bytes={have}-", "If-Range": unchanged}
    requested = _requested(url)
    try:
        response = requests.get(requested, headers=headers, stream=True, timeout=(resume.CONNECT, resume.READ))
    except (requests.exceptions.SSLError, requests.exceptions.TooManyRedirects) as error:
        raise UserError(
            f"{url}: {error}; correct the address in the spec, or put the file into the mirror"
        ) from None
    except (requests.ConnectionError, requests.Timeout) as error:
        raise BrokenError(_cause(error)) from None
    except (requests.RequestException, ValueError) as error:
        raise UserError(f"{url}: {error}; correct the address in the spec") from None
    if response.status_code in PASSING:
        response.close()
        raise BrokenError(_status(response), _retry_after(response))
    if response.status_code == 206 and _continues(response, have, known):
        return Opened(have, _origin(response), _chunks(response))
    if response.status_code in (206, 416):  # not the requested range: start from the beginning
        response.close()
        if not have:
            raise BrokenError(_status(response))
        return open_at(url, 0, None)
    if response.status_code != 200 or (requested.startswith("https:") and not response.url.startswith("https:")):
        response.close()
        what = _status(response) if response.url == url else f"{_status(response)} at {response.url}"
        raise UserError(
            f"{url}: {what}; correct the address in the spec, or put the file into the mirror yourself"
        )
    return Opened(0, _origin(response), _chunks(response))


def _requested(url: str) -> str:
    """Return the URL to request, which is on the server of UBERT_FETCH_VIA if that is set."""
    via = os.environ.get(VIA)
    return f"{via.rstrip('/')}/{url.partition('://')[2]}" if via else url


def _condition(origin: Origin) -> str | None:
    """Return the value of If-Range: a strong ETag or the modification time. A weak ETag doesn't guarantee equal
    bytes."""
    if origin.etag and not origin.etag.startswith("W/"):
        return origin.etag
    return origin.last_modified


def _origin(response: requests.Response) -> Origin:
    headers = response.headers
    whole = re.fullmatch(r"bytes \d+-\d+/(\d+)", headers.get("Content-Range", ""))
    length = whole[1] if whole else headers.get("Content-Length", "") if response.status_code == 200 else ""
    return Origin(
        size=int(length) if length.isdecimal() else None,
        etag=headers.get("ETag"),
        last_modified=headers.get("Last-Modified"),
    )


def _continues(response: requests.Response, have: int, known: Origin | None) -> bool:
    """Return whether a response is the range from byte `have` of the same file. Some servers ignore If-Range."""
    begins_there = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    return begins_there and _origin(response) == known


def _chunks(response: requests.Response) -> Generator[bytes, None, None]:
    mark, received = time.monotonic(), 0
    with response:
        try:
            while data := response.raw.read1(CHUNK, decode_content=False):
                yield data
                received += len(data)
                if (passed := time.monotonic() - mark) > resume.READ:
                    if received < SLOWEST * passed:
                        raise BrokenError(f"{received:,} bytes in {passed:.0f} s")
                    mark, received = time.monotonic(), 0
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise BrokenError(_cause(error)) from None


def _retry_after(response: requests.Response) -> float | None:
    header = response.headers.get("Retry-After", "")
    if header.isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # not a date, or a date without a time zone
        return None


def _status(response: requests.Response) -> str:
    return f"the server says {response.status_code} {response.reason}"


def _cause(error: Exception) -> str:
    """Return the innermost reason of an error, without the names of wrapping exceptions."""
    while isinstance(inner := getattr(error, "reason", None) or (error.args or [None])[0], Exception):
        error = inner
    return (inner if isinstance(inner, str) else str(error)).rpartition(": ")[2]
