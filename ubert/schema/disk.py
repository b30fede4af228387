"""Durable writes: flush data to the disk before anything refers to it."""

from __future__ import annotations

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Flush a file, or a folder's directory entries, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a small file atomically: after a power failure it has either its old content or all of the new.

    Raises:
        OSError: the file can't be written.
    """
    half = path.with_name(f"{path.name}.half")
    half.write_bytes(content.encode() if isinstance(content, str) else content)
    to_disk(half)
    half.replace(path)
    to_disk(path.parent)


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; False if its name is too long for the file system."""
    try:
        return path.is_dir()
    except OSError:  # too long
        return False
