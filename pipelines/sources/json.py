"""JSON files that hold rows in lists or under keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.sources import RawRow, Slice
from pipelines.sources._rows import RowOptions, rows_of
from pipelines.sources._text import json_value
from ubert.schema.record import Reject


class Options(RowOptions):
    """Where the rows are."""


def split_at(options: Options) -> None:
    """A file is read whole."""
    return


def companions(path: Path, options: Options) -> list[Path]:
    """None."""
    return []


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """One row for each item that `rows` leads to; a file that is not JSON is one reject.

    Raises:
        UserError: the file has no such place.
    """
    whole = json_value(piece, strict=not options.control_characters)
    if isinstance(whole, Reject):
        yield whole
    else:
        yield from rows_of(piece, whole, options)
