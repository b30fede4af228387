"""A web server on loopback with fault injection."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Web:
    """The server's files and faults. Each request takes the first of `faults`.

    A fault is one of:

        None                        no fault
        status or (status, headers) an empty response
        ("break", n)                the connection ends after n bytes of the body
        ("hang", seconds)           no response, for this time
        ("stall", n)                nothing follows n bytes of the body, for ten seconds
        ("short", n)                the body is n bytes shorter than its Content-Length
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # ETag by path
    headers: dict[str, str] = field(default_factory=dict)  # added to all responses
    ranges: bool = True
    conditions: bool = True  # respect If-Range
    lengths: bool = True
    faults: list[Any] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)  # headers of each request


@contextmanager
def serving() -> Iterator[Web]:
    """Run the server; yield its files, faults and recorded requests."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.requests.append(dict(self.headers))
            answer(self, web)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(request: BaseHTTPRequestHandler, web: Web) -> None:
    fault = web.faults.pop(0) if web.faults else None
    kind, value = fault if isinstance(fault, tuple) else (fault, None)
    if isinstance(kind, int):
        request.send_response(kind)
        for name, text in (value or {}).items():
            request.send_header(name, text)
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    if kind == "hang":
        time.sleep(value)
        return
    body = web.files.get(request.path)
    if body is None:
        request.send_error(404)
        return
    tag = web.tags.get(request.path)
    span = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    unchanged = not web.conditions or request.headers.get("If-Range") in (None, tag)
    start = int(span[1]) if span and web.ranges and unchanged else 0
    if start and start >= len(body):
        request.send_response(416)
        request.end_headers()
        return
    request.send_response(206 if start else 200)
    if start:
        request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    if web.lengths:
        request.send_header("Content-Length", str(len(body) - start))
    if tag:
        request.send_header("ETag", tag)
    for name, text in web.headers.items():
        request.send_header(name, text)
    request.end_headers()
    part = body[start:]
    if kind == "break":
        part = part[:value]
    elif kind == "short":
        part = part[:-value]
    if kind == "stall":
        request.wfile.write(part[:value])
        time.sleep(10)
        return
    request.wfile.write(part)
    request.wfile.flush()
