"""An object store on loopback with a latency and a bandwidth: a folder behind the few requests of S3 that we need.

Each request waits for the latency, which varies by half. All responses share the bandwidth, 16 kB at a time. moto,
which the tests use, takes more processor time for a request than the transfers that are measured here.
"""

from __future__ import annotations

import io
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PIECE = 1 << 14
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass
class Throttled:
    """A running store.

    Attributes:
        folder: has a folder for each bucket.
        latency: mean seconds of a request.
        bandwidth: bytes per second of all responses together.
        requests: the method and path of each request so far.
    """

    folder: Path
    latency: float
    bandwidth: float
    requests: list[str] = field(default_factory=list)
    sent: int = 0
    draw: random.Random = field(default_factory=partial(random.Random, 0))
    _free: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pass_(self, size: int) -> None:
        """Wait until the line has sent so many bytes."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self.bandwidth
            self.sent += size
            free = self._free
        time.sleep(max(0.0, free - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Throttled

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _path(self) -> Path:
        return self.store.folder / unquote(urlsplit(self.path).path).lstrip("/")

    def _began(self) -> None:
        self.store.requests.append(f"{self.command} {self.path}")
        time.sleep(self.store.latency * self.store.draw.uniform(0.5, 1.5))

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(body), PIECE):
            piece = body[start : start + PIECE]
            self.store.pass_(len(piece))
            self.wfile.write(piece)

    def do_PUT(self) -> None:
        """Write an object."""
        self._began()
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = _joined(self.rfile)
        else:
            content = self.rfile.read(int(self.headers["Content-Length"]))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            content = _joined(io.BytesIO(content))
        self._path().parent.mkdir(parents=True, exist_ok=True)
        self._path().write_bytes(content)
        self._answer(200, {"ETag": '"1"'})

    def do_HEAD(self) -> None:
        """Describe an object."""
        self._began()
        path = self._path()
        if path.is_file():
            self._answer(200, {**_headers(path), "Content-Length": str(path.stat().st_size)})
        else:
            self._answer(404, {})

    def do_GET(self) -> None:
        """Send an object, a range of it, or a listing."""
        self._began()
        asked, path = parse_qs(urlsplit(self.path).query), self._path()
        if "list-type" in asked:
            self._answer(200, {"Content-Type": "application/xml"}, _listing(path, asked.get("prefix", [""])[0]))
        elif not path.is_file():
            self._answer(404, {})
        elif asked_range := self.headers.get("Range"):
            first, last = asked_range.removeprefix("bytes=").split("-")
            size = path.stat().st_size
            end = min(int(last or size - 1), size - 1)
            part = {"Content-Range": f"bytes {first}-{end}/{size}", **_headers(path)}
            self._answer(206, part, path.read_bytes()[int(first) : end + 1])
        else:
            self._answer(200, _headers(path), path.read_bytes())


def _joined(chunks: io.BufferedIOBase) -> bytes:
    """Read a chunked body and its trailer."""
    parts = []
    while size := int(chunks.readline().split(b";")[0], 16):
        parts.append(chunks.read(size))
        chunks.readline()
    while chunks.readline().strip():
        pass
    return b"".join(parts)


def _headers(path: Path) -> dict[str, str]:
    written = formatdate(path.stat().st_mtime, usegmt=True)
    return {"Last-Modified": written, "ETag": '"1"', "Accept-Ranges": "bytes"}


def _listing(bucket: Path, prefix: str) -> bytes:
    found = ((path.relative_to(bucket).as_posix(), path) for path in sorted(bucket.rglob("*")) if path.is_file())
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;1&quot;</ETag><Size>{path.stat().st_size}</Size></Contents>"
        for key, path in found
        if key.startswith(prefix)
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()


@contextmanager
def serve(folder: Path, latency: float, bandwidth: float) -> Iterator[Throttled]:
    """Serve a folder, and set the environment variables of its clients."""
    store = Throttled(folder, latency, bandwidth)
    handler = type("Handler", (_Handler,), {"store": store})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    address = f"http://127.0.0.1:{server.server_address[1]}"
    os.environ |= {**ENVIRONMENT, "AWS_ENDPOINT_URL": address, "S3_ENDPOINT_URL": address}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield store
    finally:
        server.shutdown()
