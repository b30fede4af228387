"""Blocks of lines: blank lines between records, and a line for each field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from pipelines.sources import Example, FormatOptions, RawRow, Slice, check_distinct
from pipelines.sources.parsing.paragraphs import Lines, bad_line, paragraphs, raw
from ubert.schema.record import Reject


class Options(FormatOptions):
    """Lines of a block."""

    columns: list[str] = Field(min_length=1)
    """The names of a block's lines, in order."""
    marks: dict[str, str] = Field(default_factory=dict)
    """The mark to remove from the start of a column's line, by column, such as `A.` before an option."""

    @model_validator(mode="after")
    def _agree(self) -> Options:
        check_distinct(self.columns)
        if unknown := self.marks.keys() - set(self.columns):
            raise ValueError(f"marks: {', '.join(sorted(unknown))} is not among `columns`")
        return self


EXAMPLE = Example(
    {"questions.txt": "Where do books live?\nA. a library\nB. a lake\n\nWhat barks?\nA. a cat\nB. a dog\n"},
    {"columns": ["question", "first", "second"], "marks": {"first": "A. ", "second": "B. "}},
)


def split_at(options: Options) -> Literal["blank line"]:
    """A block ends at a blank line."""
    return "blank line"


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each block."""
    for first, block in paragraphs(piece):
        yield bad_line(piece, first, block) or _row(piece, options, first, block)


def _row(piece: Slice, options: Options, first: int, block: Lines) -> RawRow | Reject:
    if len(block) != len(options.columns):
        detail = f"expected {len(options.columns)} lines, got {len(block)}"
        return Reject(piece.path, first, "wrong number of lines", detail, raw(block))
    marked = zip(options.columns, map(str, block), strict=True)
    content = {column: line.removeprefix(options.marks.get(column, "")) for column, line in marked}
    return RawRow(first, f"{piece.path}:{first}", content)
