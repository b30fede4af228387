"""What is written is on the disk before it takes its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO


def to_disk(file: IO[bytes]) -> None:
    """Hold until the disk has what was written to an open file."""
    file.flush()
    os.fsync(file.fileno())


def move(old: Path, new: Path) -> None:
    """Give a finished file its name, in place of what had it."""
    new.parent.mkdir(parents=True, exist_ok=True)
    old.replace(new)
    descriptor = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, text: str) -> None:
    """Write a small file whole."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(text.encode())
        to_disk(file)
    move(temporary, path)
