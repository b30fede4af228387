"""A server of a tiny checkpoint on loopback, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from waiting import HANGS, wait_for


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an app; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=[[listening]])
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(HANGS)
