"""Convert untrusted names to safe paths: of archive members, keys of an object store and local files."""

from __future__ import annotations

import re
import unicodedata

MAX_BYTES = 255  # limit of file systems for one part of a path, in bytes
OWN = ".fetch"  # prefix of the mirror's own files in a dataset's folder


class Places:
    """The paths that are taken in a folder. They are distinct even in file systems that ignore case."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}  # paths by their case-folded form
        self._files: set[str] = set()

    def take(self, name: str, *, folder: bool = False) -> str:
        """Take the relative path of a file or folder of that name, with `/` as separator.

        Raises:
            ValueError: the path would be outside, is not allowed as a name, or is taken; the message says why.
        """
        parts = _parts(name)
        path = "/".join(parts)
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        for each in (*above, path):
            earlier = self._taken.get(_plain(each), each)
            if earlier != each:
                raise ValueError(f"differs from {earlier!r} only in case")
        if self._files & {*above, path} or (not folder and _plain(path) in self._taken):
            raise ValueError("is the name of an earlier file or folder")
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
        raise ValueError("has a backslash, a control character or bytes that are not Unicode")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("leads out of its folder")
    if any(len(part.encode()) > MAX_BYTES for part in parts):
        raise ValueError(f"has a part of more than {MAX_BYTES} bytes")
    if parts and parts[0].startswith(OWN):
        raise ValueError(f"begins with {OWN!r}, as the mirror's own files do")
    return parts
