"""A wall clock that jumps, for the processes of one command: `chaos_clock.c` adds the seconds in a file to it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

COMPILER = shutil.which("cc")  # without a compiler the clock is true


def set_clock(clock: Path, seconds: int = 0) -> None:
    """Move the wall clock of all processes that read a clock file to this many seconds after the true time."""
    with clock.open("r+b") as file:  # in place, because the processes map it
        file.write(struct.pack("l", seconds))


def clocked(folder: Path) -> dict[str, str]:
    """Make a true clock in a folder; return the variables that let processes read it."""
    if COMPILER is None:
        return {}
    clock, library = folder / "clock", folder / "clock.so"
    if not library.exists():
        source = Path(__file__).with_suffix(".c")
        subprocess.run([COMPILER, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    clock.touch()
    set_clock(clock)
    return {"CHAOS_CLOCK": str(clock), "LD_PRELOAD": str(library)}
