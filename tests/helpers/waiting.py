"""Wait for another process or thread."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import psutil
from warm import Command

HANGS = 600.0  # seconds after which something counts as hanging; long, so that a busy machine doesn't fail tests


def wait_for(
    condition: Callable[[], object], process: subprocess.Popen[str] | psutil.Popen | Command | None = None
) -> None:
    """Wait until a condition holds; fail if `process`, which should bring it about, ends before."""
    deadline = time.monotonic() + HANGS
    ended = False
    while not condition():
        assert process is None or not ended, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
        ended = process is not None and process.poll() is not None  # before the condition, which it may have met
