"""Download one file to disk, and resume after an interruption if the source hasn't changed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ubert.schema.disk import to_disk, write_whole
from ubert.schema.errors import UserError
from ubert.schema.yaml_file import Strict

CHUNK = 1 << 20
CONNECT, READ = 10.0, 60.0  # timeouts of a connection and of its next byte, in seconds
ATTEMPTS = 6  # consecutive attempts with less than GROUND new bytes; the wait doubles from FIRST_WAIT
SECONDS = 600.0  # limit since the last attempt with more
GROUND = 1 << 20
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0

Show = Callable[[int, int | None], None]  # bytes so far, total bytes


class Origin(Strict):
    """The state of a file as its source reports it, which differs between versions of the file."""

    size: int | None = None
    etag: str | None = None
    last_modified: str | None = None


class Opened(NamedTuple):
    """A file of a source, open at byte `start`."""

    start: int
    origin: Origin
    chunks: Generator[bytes, None, None]


class BrokenError(Exception):
    """A failure that is worth a retry. `wait` is the number of seconds that the source asks to wait. `mixed` means
    that the downloaded bytes come from different versions of the file."""

    def __init__(self, why: str, wait: float | None = None, *, mixed: bool = False) -> None:
        super().__init__(why)
        self.wait, self.mixed = wait, mixed


# Opens a file at a byte if the source is still in the given state, else at byte 0.
Open = Callable[[int, Origin | None], Opened]


def save(url: str, open_at: Open, path: Path, show: Show) -> Origin:
    """Download a file to `path`, which may contain its beginning from an earlier run.

    Raises:
        UserError: the source refuses the request, or fails repeatedly.
    """
    ground, mark, failures = 0, time.monotonic(), 0
    while True:
        try:
            return _attempt(open_at, path, show)
        except BrokenError as broken:
            if broken.mixed:
                path.unlink()
            here = path.stat().st_size if path.exists() else 0
            if here >= ground + GROUND:
                ground, mark, failures = here, time.monotonic(), 0
            failures += 1
            wait = max(_wait(failures), broken.wait or 0.0)
            if failures >= ATTEMPTS or time.monotonic() + wait - mark > SECONDS:
                hint = f" (it asks to wait {broken.wait:.0f} s)" if broken.wait else ""
                raise UserError(
                    f"{url}: {broken}{hint}; gave up after {failures} attempts with {here:,} bytes here; the "
                    "same command continues from there; without a network, name a mirror that has the files with "
                    "--data (UBERT_DATA)"
                ) from None
            time.sleep(wait)


def _attempt(open_at: Open, path: Path, show: Show) -> Origin:
    origin_file = path.with_name(f"{path.name}.origin")
    known = _read_origin(origin_file) if path.exists() else None
    have = path.stat().st_size if known else 0
    if known and have == known.size:
        return known
    start, origin, chunks = open_at(have, known)
    with closing(chunks), path.open("r+b" if start else "wb") as file:
        write_whole(origin_file, origin.model_dump_json())
        file.seek(start)
        file.truncate()
        for data in chunks:
            file.write(data)
            show(file.tell(), origin.size)
        if origin.size not in (None, file.tell()):
            raise BrokenError(f"ended after {file.tell():,} of {origin.size:,} bytes")
    to_disk(path)
    return origin


def _read_origin(path: Path) -> Origin | None:
    try:
        return Origin.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _wait(failures: int) -> float:
    """Return the seconds before the next attempt: exponential backoff with jitter."""
    longest = min(FIRST_WAIT * 2 ** (failures - 1), LONGEST_WAIT)
    return random.SystemRandom().uniform(longest / 2, longest)
