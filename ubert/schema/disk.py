"""What is written is on the disk before anything says that it is there."""

from __future__ import annotations

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Hold until the disk has the bytes of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a small file: under its name there is what was there before or all of `content`, even if power fails.

    Raises:
        OSError: it can't be written.
    """
    half = path.with_name(f"{path.name}.half")
    half.write_bytes(content.encode() if isinstance(content, str) else content)
    to_disk(half)
    half.replace(path)
    to_disk(path.parent)


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a name that no folder can have is none."""
    try:
        return path.is_dir()
    except OSError:  # too long
        return False
