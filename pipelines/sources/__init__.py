"""Source formats, one file each: `read` turns a slice of a source file into raw rows with their place.

A format is found by its file name. Its module has:

    class Options(FormatOptions)                the format's options in a spec, each with a docstring
    split_at(options) -> Cut                    where a file may be cut into byte ranges; None: nowhere
    companions(folder, path, options) -> list[str]      files that are read together with `path`, if any
    read(piece, options) -> Iterator[RawRow | Reject]
    EXAMPLE: Example                            a small file, for docs/formats.md

Paths of files are strings, relative to the folder of their dataset: there may be very many.
"""

from __future__ import annotations

import os
import pkgutil
import posixpath
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, cast

from blake3 import blake3
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ConfigDict

from pipelines.sources._glob import glob
from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.yaml_file import Strict

BLOCK_BYTES = 1 << 20
END = sys.maxsize  # of a file of any size


class Quoted(NamedTuple):
    """After a record of CSV, in whose quoted fields there may be line ends."""

    separator: str


Cut = Literal["line", "blank line"] | Quoted | None


class Slice(Struct, frozen=True, gc=False, array_like=True):
    """A byte range of a source file: whole records of it.

    `path` is relative to `folder`, `line` the 1-based number of the first line at `start`, `sha` the hex blake3
    of these bytes (of the whole file and its companions, where the file is not cut), `beside` the paths of these
    companions. `too_long`: one row, which is refused and not read. `problem`: why the file cannot be read, and is
    refused. `hashes`: of the bytes that were read, by
    path: they need not be read again to be held against `sha`.
    """

    folder: str
    path: str
    start: int
    stop: int
    line: int
    encoding: str
    sha: str
    beside: tuple[str, ...] = ()
    too_long: bool = False
    problem: str = ""
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """Where the file is."""
        return Path(self.folder, self.path)

    def read_bytes(self) -> bytes:
        """The bytes of the range."""
        file = os.open(f"{self.folder}/{self.path}", os.O_RDONLY)  # files may be many: a file object is slower
        try:
            size = (os.fstat(file).st_size if self.stop == END else self.stop) - self.start
            data = os.pread(file, size, self.start)
            while len(data) < size and (more := os.pread(file, size - len(data), self.start + len(data))):
                data += more
        finally:
            os.close(file)
        self.hashes[self.path] = blake3(data).hexdigest()
        return data

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the range in blocks of whole lines: `BLOCK_BYTES` and what it takes to end a line."""
        digest, left = blake3(), self.stop - self.start
        with open(f"{self.folder}/{self.path}", "rb") as file:
            file.seek(self.start)
            while block := file.read(min(BLOCK_BYTES, left)):
                block += file.readline(left - len(block)) if block[-1] != ord("\n") else b""
                digest.update(block)
                left -= len(block)
                yield block
        self.hashes[self.path] = digest.hexdigest()

    def whole(self, path: str) -> Slice:
        """The whole of a file of the same dataset, such as a companion, if there is one."""
        return replace(self, path=path, start=0, stop=END, line=1)


class RawRow(Struct, frozen=True, gc=False):
    """One raw record: where it is, a locator unique in its dataset and split (`path:line`, with `#n` where a line
    or a file holds several), and its content as the format names it."""

    line: int
    locator: str
    content: dict[str, Any]


class FormatOptions(Strict):
    """Options of a format: the docstring below each one is its description, in editors and in docs/formats.md."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Example(NamedTuple):
    """Files of a format as docs/formats.md shows them, and the options that they need. The first file is read, the
    others lie beside it. A binary file is given by its rows, as JSON Lines, and written from them."""

    files: dict[str, str]
    options: Mapping[str, Any] = MappingProxyType({})


class Reader(Protocol):
    """What the module of a format offers."""

    Options: type[FormatOptions]
    EXAMPLE: Example

    def split_at(self, options: Any) -> Cut: ...

    def companions(self, folder: Path, path: str, options: Any) -> list[str]: ...

    def read(self, piece: Slice, options: Any) -> Iterator[RawRow | Reject]: ...


def formats() -> list[str]:
    """Names of all formats: the files beside this one."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


@cache
def reader(name: str) -> Reader:
    """The reader of a format.

    Raises:
        UserError: there is no such format.
    """
    if name not in formats():
        raise UserError(f"format {name!r} is unknown; expected one of {', '.join(formats())}")
    return cast(Reader, import_module(f"{__name__}.{name}"))


def matches(folder: Path, pattern: str) -> list[str]:
    """Files of a dataset's folder that a path or glob of a spec names, relative to it and sorted. A glob finds no
    name that begins with a dot.

    Raises:
        UserError: there are none, a folder cannot be listed, or a name is too long or not UTF-8.
    """
    try:
        if (folder / pattern).is_file():
            return [pattern]
        found = sorted(set(glob(folder, pattern)))
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; {pattern} of a spec looks for files there") from None
    if not found:
        raise UserError(f"{folder / pattern}: no such file; put the source there, or name its place with --data")
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        wrong = next(path for path in found if path.encode(errors="ignore").decode() != path)
        raise UserError(f"{folder}: the name of the file {wrong!r} is not UTF-8; rename it") from None
    return found


def sibling(path: str, name: str) -> str:
    """The path of another file in the folder of a file."""
    return posixpath.join(posixpath.dirname(path), name)


def content_hash(folder: Path, paths: Sequence[str]) -> str:
    """Hex blake3 of a file; of several files, the blake3 of their sorted "hash  path" lines (`b3sum` prints them).

    Raises:
        UserError: a file is missing or cannot be read.
    """
    return joined_hash({path: file_hash(f"{folder}/{path}") for path in paths})


def joined_hash(hashes: Mapping[str, str]) -> str:
    """What `content_hash` makes of the hashes of files, by path."""
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    listing = "".join([f"{hashes[path]}  {path}\n" for path in sorted(hashes)])
    return blake3(listing.encode()).hexdigest()


def check_inside(folder: str, path: str) -> None:
    """Refuse a file of a dataset whose links lead out of the mirror, which is the folder above the dataset's.

    Raises:
        UserError: where it leads.
    """
    file = f"{folder}/{path}"
    real = _real(posixpath.dirname(file))
    if os.path.islink(file):
        real = posixpath.dirname(os.path.realpath(file))
    if not any(f"{real}/".startswith(f"{_real(home)}/") for home in (folder, posixpath.dirname(folder))):
        raise UserError(f"{file}: a link leads out of the mirror, to {real}; put a copy in its place")


@lru_cache(maxsize=1024)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def file_hash(path: Path | str) -> str:
    """Hex blake3 of a file. Raises `UserError` where it cannot be read."""
    try:
        return blake3().update_mmap(path).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; the spec names it as a source file") from None
