"""An object store on loopback with fault injection: moto's S3 behind a small WSGI wrapper."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
HANG_SECONDS = 1.5
ERRORS = {
    "403": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
    "500": b"",
    "503": b"",
    "500 in words": b"<Error><Code>InternalError</Code><Message>We met an internal error.</Message></Error>" * 4,
}

# Maps a request (method, path) to its fault: a status of `ERRORS`, "drop" the connection, "hang" for a while,
# "cut" the response in half, or None.
Fault = Callable[[str, str], str | None]


@dataclass
class ObjectStore:
    """The running object store.

    Attributes:
        ranges: byte ranges that were requested.
        fault: called for each request.
    """

    files: pyarrow.fs.S3FileSystem
    ranges: list[str] = field(default_factory=list)
    fault: Fault = lambda method, path: None

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Inject faults within this block."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: None

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        with self.files.open_output_stream(key) as stream:
            stream.write(content)

    def objects(self, prefix: str) -> dict[str, int]:
        """Return the names and sizes of the objects below a prefix."""
        found = self.files.get_file_info(pyarrow.fs.FileSelector(prefix, recursive=True, allow_not_found=True))
        return {info.path.removeprefix(prefix): info.size for info in found if info.is_file}


@contextmanager
def serve(at: socket.socket, bucket: str = "bucket") -> Iterator[ObjectStore]:
    """Serve an object store with an empty bucket at a bound socket."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if "HTTP_RANGE" in environ:
            store.ranges.append(environ["HTTP_RANGE"])
        fault = store.fault(method, path)
        if fault == "hang":
            time.sleep(HANG_SECONDS)
        elif fault == "cut":
            body = b"".join(moto(environ, start))
            return [body[: len(body) // 2]]
        elif fault == "drop":
            environ["werkzeug.socket"].shutdown(2)
        elif fault:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(f"{fault[:3]} Failure", [("Content-Type", "application/xml")])
            return [ERRORS[fault]]
        return moto(environ, start)  # type: ignore[no-any-return]

    at.listen()
    server = make_server("127.0.0.1", 0, app, threaded=True, fd=at.fileno())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    files = pyarrow.fs.S3FileSystem(
        access_key="testing",
        secret_key="testing",
        endpoint_override=f"http://127.0.0.1:{at.getsockname()[1]}",
        region="us-east-1",
        allow_bucket_creation=True,
        allow_delayed_open=True,  # small objects are written by one PUT
    )
    store = ObjectStore(files)
    try:
        files.create_dir(bucket)
        yield store
    finally:
        server.shutdown()
        thread.join()
