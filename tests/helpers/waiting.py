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
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
