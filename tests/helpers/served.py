"""Servers on loopback: an app in a thread, or a command in its own process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import uvicorn
from fastapi import FastAPI
from waiting import HANGS, wait_for


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an app in a thread; yield its address."""
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


@contextmanager
def interrupted(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Run an `ubert` command that serves; yield its address. SIGINT must end it without output on stderr."""
    arguments = [sys.executable, "-u", "-m", "pipelines.cli", *command, "--port", "0"]
    with (
        subprocess.Popen(
            arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        ExitStack() as ending,
    ):
        ending.callback(process.kill)
        assert process.stdout and process.stderr
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(HANGS) == 130
        assert process.stderr.read() == ""
