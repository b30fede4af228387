"""Source formats, one file each: `read` turns a slice of a source file into raw rows with their place.

A format is found by its file name. Its module has:

    class Options(Strict)                       the format's options in a spec
    SPLIT_AT: "line", "blank line" or None      where a file may be cut into byte ranges
    companions(path, options) -> list[Path]     files that are read together with `path`, if any
    read(piece, options) -> Iterator[RawRow | Reject]
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.yaml_file import Strict


@dataclass(slots=True, frozen=True)
class Slice:
    """A byte range of a source file: whole records of it.

    `path` is relative to `folder`, `line` the 1-based number of the first line at `start`, `sha` the hex blake3
    of the whole file and its companions.
    """

    folder: Path
    path: str
    start: int
    stop: int
    line: int
    encoding: str
    sha: str

    def read_bytes(self) -> bytes:
        """The bytes of the range."""
        with (self.folder / self.path).open("rb") as file:
            file.seek(self.start)
            return file.read(self.stop - self.start)


class RawRow(NamedTuple):
    """One raw record: where it is, a locator unique in its dataset and split (`path:line`, with `#n` where a line
    or a file holds several), and its content as the format names it."""

    line: int
    locator: str
    content: dict[str, Any]


class Reader(Protocol):
    """What the module of a format offers."""

    Options: type[Strict]
    SPLIT_AT: Literal["line", "blank line"] | None

    def companions(self, path: Path, options: Any) -> list[Path]: ...

    def read(self, piece: Slice, options: Any) -> Iterator[RawRow | Reject]: ...


def formats() -> list[str]:
    """Names of all formats: the files beside this one."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def reader(name: str) -> Reader:
    """The reader of a format.

    Raises:
        UserError: there is no such format.
    """
    if name not in formats():
        raise UserError(f"format {name!r} is unknown; expected one of {', '.join(formats())}")
    return cast(Reader, import_module(f"{__name__}.{name}"))
