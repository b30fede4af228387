"""Waiting for what another process or thread does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import psutil

HANGS = 600.0  # seconds, after which something hangs; a busy machine is no failure


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | psutil.Popen | None = None) -> None:
    """Wait until it holds; a process that brings it about must not end before."""
    deadline = time.monotonic() + HANGS
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
