"""Readers of source formats, one module each. They turn slices of source files into raw rows with their location.

The name of a format is the name of its module in `annotation_formats` or `data_formats`, which has:

    class Options(FormatOptions)                the format's options in a spec, each with a docstring
    EXAMPLE: Example                            a small file, for docs/formats.md
    read(piece, options) -> Iterator[RawRow | Reject]
    split_at(options) -> Cut                    where a file may be cut into byte ranges; without it: nowhere
    companions(folder, path, options) -> list[str]      files that are read together with `path`; without it: none

Paths of files are strings relative to the folder of their dataset, because there may be very many.
"""

from __future__ import annotations

import os
import pkgutil
import posixpath
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from blake3 import blake3
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ConfigDict

from pipelines.sources.globbing import glob
from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.yaml_file import Strict

BLOCK_BYTES = 1 << 20
FOLDERS = ("annotation_formats", "data_formats")
END = sys.maxsize  # `stop` of a slice that goes to the end of its file


class Quoted(NamedTuple):
    """A cut after a record of CSV, whose quoted fields may contain line ends."""

    separator: str


Cut = Literal["line", "blank line"] | Quoted | None


class Slice(Struct, frozen=True, gc=False, array_like=True):
    """A byte range of a source file that contains whole records.

    - `path` is relative to `folder`; `line` is the 1-based number of the first line.
    - `sha` is the hex blake3 of the range or, if the file is not cut, of the whole file and its companions.
    - `beside` has the paths of the companions.
    - `too_long` marks a single row that is rejected without being read.
    - `problem` says why the file cannot be read; then it is one reject.
    - `hashes` has the hashes of bytes that were read, by path, to verify `sha` without reading them again.
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
        return Path(self.folder, self.path)

    def read_bytes(self) -> bytes:
        """Read the bytes of the range."""
        file = os.open(f"{self.folder}/{self.path}", os.O_RDONLY)  # faster than a file object, for many files
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
        """Yield the bytes of the range in blocks of about `BLOCK_BYTES`, which end at line ends."""
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
        """Return a slice of a whole file of the same dataset, such as a companion."""
        return replace(self, path=path, start=0, stop=END, line=1)


class RawRow(Struct, frozen=True, gc=False):
    """One raw record: its line, its locator and its content as the format names it.

    The locator is unique in the dataset and split: `path:line`, with `#n` if a line or file has several records.
    """

    line: int
    locator: str
    content: dict[str, Any]


class FormatOptions(Strict):
    """Options of a format. The docstring below an option is its description in editors and in docs/formats.md."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def check_distinct(columns: Sequence[str]) -> None:
    """Check that no column is named twice.

    Raises:
        ValueError: a column is named twice.
    """
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} is named twice; each name must be unique")


class Example(NamedTuple):
    """Example files of a format for docs/formats.md, and the options that they need. The first file is read; the
    others are its companions. A binary file is written from rows, which are given as JSON Lines."""

    files: dict[str, str]
    options: Mapping[str, Any] = MappingProxyType({})


class Reader(NamedTuple):
    """The functions of a format's module."""

    Options: type[FormatOptions]
    EXAMPLE: Example
    read: Callable[[Slice, Any], Iterator[RawRow | Reject]]
    split_at: Callable[[Any], Cut] = lambda options: None
    companions: Callable[[Path, str, Any], list[str]] = lambda folder, path, options: []


def formats() -> list[str]:
    """Return the names of all formats, which are the public modules of `FOLDERS`."""
    return sorted(_modules())


def module_name(name: str) -> str:
    """Return the full name of a format's module.

    Raises:
        UserError: there is no such format.
    """
    modules = _modules()
    if name not in modules:
        raise UserError(f"format {name!r} is unknown; expected one of {', '.join(sorted(modules))}")
    return modules[name]


@cache
def reader(name: str) -> Reader:
    """Import the reader of a format.

    Raises:
        UserError: there is no such format.
    """
    module = import_module(module_name(name))
    return Reader(**{part: getattr(module, part) for part in Reader._fields if hasattr(module, part)})


def _modules() -> dict[str, str]:
    """Return the full names of the modules of all formats, by format."""
    return {
        module.name: f"{__name__}.{folder}.{module.name}"
        for folder in FOLDERS
        for module in pkgutil.iter_modules([f"{path}/{folder}" for path in __path__])
        if not module.name.startswith("_")
    }


def matches(folder: Path, pattern: str) -> list[str]:
    """Return the files of a dataset's folder that match a path or glob of a spec, as sorted relative paths. A glob
    does not match names that begin with a dot.

    Raises:
        UserError: no file matches, a folder cannot be listed, or a name is too long or not UTF-8.
    """
    try:
        if (folder / pattern).is_file():
            return [pattern]
        found = sorted(set(glob(folder, pattern)))
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; {pattern} of a spec looks for files there") from None
    if not found:
        raise UserError(f"{folder / pattern}: no such file; put the source there, or name its folder with --data")
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        wrong = next(path for path in found if path.encode(errors="ignore").decode() != path)
        raise UserError(f"{folder}: the name of the file {wrong!r} is not UTF-8; rename it") from None
    return found


def sibling(path: str, name: str) -> str:
    """Return the path of another file in the same folder."""
    return posixpath.join(posixpath.dirname(path), name)


def content_hash(folder: Path, paths: Sequence[str]) -> str:
    """Return the hex blake3 of a file, or for several files of their sorted "hash  path" lines, as `b3sum` prints.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    return joined_hash({path: file_hash(f"{folder}/{path}") for path in paths})


def joined_hash(hashes: Mapping[str, str]) -> str:
    """Return the `content_hash` of files from their hashes by path."""
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    listing = "".join([f"{hashes[path]}  {path}\n" for path in sorted(hashes)])
    return blake3(listing.encode()).hexdigest()


def check_inside(folder: str, path: str) -> None:
    """Check that a file's links stay in the mirror, which is the folder above the dataset's.

    Raises:
        UserError: a link leads out of the mirror; the message says where.
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
    """Return the hex blake3 of a file. Raises `UserError` if it cannot be read."""
    try:
        return blake3().update_mmap(path).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; the spec names it as a source file") from None
