"""Names that others chose, as paths in a folder of ours: archive members, keys of an object store, local files."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 255  # bytes of one part of a path, as file systems have it
OWN = ".fetch"  # what begins with this in a dataset's folder is the mirror's own


class Places:
    """The paths that files have taken in a folder: each is one that no file system confuses with another."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}  # a path without its case: the path
        self._files: set[str] = set()

    def take(self, name: str, *, folder: bool = False) -> str:
        """The path of a file (or folder) of that name, relative, its parts joined by `/`.

        Raises:
            ValueError: it would lie outside, cannot be the name of a file, or is taken; says why.
        """
        parts = _parts(name)
        path = "/".join(parts)
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        for each in (*above, path):
            earlier = self._taken.get(_plain(each), each)
            if earlier != each:
                raise ValueError(f"differs from {earlier!r} in nothing but case")
        if self._files & {*above, path} or (not folder and _plain(path) in self._taken):
            raise ValueError("a file or folder of this name was there before")
        self._taken |= {_plain(each): each for each in (*above, path) if each}
        if not folder:
            self._files.add(path)
        return path


def _plain(path: str) -> str:
    return unicodedata.normalize("NFC", path.casefold())


def _parts(name: str) -> list[str]:
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        raise ValueError("is an absolute path")
    if "\\" in name or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        raise ValueError("holds a backslash, a control character or what is not Unicode")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("leads out of its folder")
    if any(len(part.encode()) > LONGEST for part in parts):
        raise ValueError(f"has a part of more than {LONGEST} bytes")
    if parts and parts[0].startswith(OWN):
        raise ValueError(f"begins with {OWN!r}, as the mirror's own files do")
    return parts
