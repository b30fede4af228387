"""The garbage collector during a command: it makes a million objects while it imports, and almost no garbage."""

from __future__ import annotations

import subprocess
import sys

from waiting import HANGS

REPORTS = """
import atexit, gc
from pipelines.cli import main
atexit.register(lambda: print(gc.get_threshold()[0], len(gc.get_objects())))
main()
"""


def test_a_command_rarely_searches_for_garbage_and_leaves_none_to_the_exit() -> None:
    command = [sys.executable, "-c", REPORTS, "predict", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert ended.returncode == 0, ended.stderr
    between, left = map(int, ended.stdout.splitlines()[-1].split())
    assert between >= 10_000  # Python's own number is 700
    assert left < 1000  # all others are frozen
