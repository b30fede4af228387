"""Log files of a run in an object store. They grow during training, and are uploaded in pieces.

logs/<file>/<generation>-<offset>     a piece; a file that was replaced or truncated starts a new generation
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from pipelines.store.storage import ObjectPath
from pipelines.store.store import atomic


class LogPieces:
    """A growing file, uploaded in pieces. A file that was replaced or truncated starts a new generation."""

    def __init__(self, remote: ObjectPath) -> None:
        self._remote, self._file, self._generation, self._at = remote, 0, "", 0

    def put(self, path: Path) -> None:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())  # of the open file, because the path may be replaced now
            new = stat.st_ino != self._file or stat.st_size < self._at
            if new:
                self._file, self._generation, self._at = stat.st_ino, f"{time.time_ns():020}", 0
            file.seek(self._at)
            gained = file.read()
        if gained:
            with atomic(self._remote / f"{self._generation}-{self._at:012}") as piece:
                piece.write_bytes(gained)
            self._at += len(gained)
        if new:
            for old in [*self._remote.glob("*")]:
                if not old.name.startswith(self._generation):
                    old.unlink()


class RemoteLog:
    """Copies the growing logs of a run from the store into a folder with the layout of a run."""

    def __init__(self, remote: ObjectPath, folder: Path) -> None:
        self._remote, self._folder = remote, folder
        self._seen: dict[str, tuple[str, int]] = {}

    def update(self, names: Iterable[str] | None = None) -> None:
        """Append the new pieces. A run that is resumed may remove pieces meanwhile."""
        found = names if names is not None else (f"logs/{name}" for name in (self._remote / "logs").sizes())
        for file, pieces in _by_file(found).items():
            path = self._folder / "logs" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            for name in pieces:
                generation, _, offset = name.partition("-")
                before, at = self._seen.get(file, ("", 0))
                if generation == before and int(offset) < at:
                    continue
                with path.open("wb" if generation != before else "ab") as log:
                    try:
                        log.writelines((self._remote / "logs" / file / name).blocks())
                    except FileNotFoundError:  # a new generation has replaced it; the next update copies that
                        break
                    self._seen[file] = generation, log.tell()


def _by_file(names: Iterable[str]) -> dict[str, list[str]]:
    """List the pieces of each log file's newest generation, in order."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        match name.split("/"):
            case ["logs", file, piece]:
                found.setdefault(file, []).append(piece)
    return {file: [p for p in pieces if p[:20] == pieces[-1][:20]] for file, pieces in found.items()}
