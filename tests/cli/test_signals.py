"""Signals in the first second of a command, while it still imports libraries."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANGS, wait_for

LIBRARIES = ("_pydantic_core", "_multiarray_umath", "libarrow.so", "_yaml")  # in the order of the imports


def sent_after(library: str, sent: signal.Signals, before: signal.Handlers = signal.SIG_DFL) -> tuple[int, str]:
    """Start a command, send it a signal when it has loaded a library; return its exit code and its errors."""
    at_interrupt = signal.signal(signal.SIGINT, before)  # a process inherits whether a signal is ignored
    try:
        command = [sys.executable, "-m", "pipelines.cli", "corpora", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, at_interrupt)
    loaded = Path(f"/proc/{process.pid}/maps")
    wait_for(lambda: library in loaded.read_text(encoding="utf-8"), process)
    process.send_signal(sent)
    _, said = process.communicate(timeout=HANGS)
    return process.returncode, said


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_signal_ends_a_command_without_a_traceback(library: str, sent: signal.Signals) -> None:
    """As it ends any other program; a shell shows 130 or 143. On a busy machine the command may already run."""
    code, said = sent_after(library, sent)
    assert code in (-sent, 128 + sent)
    assert said == ""


def test_a_command_in_the_background_of_a_script_ignores_ctrl_c() -> None:
    assert sent_after(LIBRARIES[0], signal.SIGINT, signal.SIG_IGN) == (0, "")
