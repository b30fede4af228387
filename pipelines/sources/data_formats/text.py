"""Running text: files, sections under headings, paragraphs or lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator

from pipelines.sources import Cut, Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.paragraphs import Lines, bad_line, is_blank, paragraphs, raw
from pipelines.sources.parsing.text import lines
from ubert.schema.record import Reject

_WRAP = re.compile(r"(?<=\S)[ \t]*\n(?=\S)")


class Options(FormatOptions):
    """How a file is divided into records."""

    record: Literal["file", "section", "paragraph", "line"] = "file"
    """What becomes a record. A section starts at one of `headings`. Blank lines separate paragraphs."""
    headings: list[str] = Field(default_factory=list)
    """Patterns of headings. A heading is a line between blank lines that matches, apart from white space around
    it. `*` matches any text, `?` any character, `[!=]` any character but `=`."""
    unwrap: bool = False
    """Replace a line end within a paragraph by a space, unless the next line is indented, like verse."""
    constants: dict[str, str] = Field(default_factory=dict)
    """More fields, with the same value in every row of the file, such as the label that is its folder's name."""

    @model_validator(mode="after")
    def _agree(self) -> Options:
        if (self.record == "section") != bool(self.headings):
            raise ValueError("`record: section` and `headings` need each other")
        if self.unwrap and self.record == "line":
            raise ValueError("`unwrap` has no effect with `record: line`; remove it")
        if "text" in self.constants:
            raise ValueError("constants: `text` is the field of the text; choose another name")
        return self


EXAMPLE = Example(
    {"book.txt": "It was late,\nand it rained.\n\nAda waited.\n"}, {"record": "paragraph", "unwrap": True}
)


def split_at(options: Options) -> Cut:
    """Cut a file between paragraphs or lines, if these are the records."""
    cuts: dict[str, Cut] = {"paragraph": "blank line", "line": "line"}
    return cuts.get(options.record)


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row with `text` for each record that isn't blank."""
    for first, run in _records(piece, options):
        yield bad_line(piece, first, run) or _row(piece, options, first, raw(run))


def _row(piece: Slice, options: Options, first: int, text: str) -> RawRow:
    content = {"text": _WRAP.sub(" ", text) if options.unwrap else text, **options.constants}
    return RawRow(first, f"{piece.path}:{first}", content)


def _records(piece: Slice, options: Options) -> Iterator[tuple[int, Lines]]:
    if options.record == "paragraph":
        yield from paragraphs(piece)
        return
    if options.record == "line":
        yield from ((i, [line]) for i, line in enumerate(lines(piece), piece.line) if not is_blank(line))
        return
    found = list(lines(piece))
    starts = [i for i in range(len(found)) if _is_heading(found, i, options.headings)]
    for start, stop in pairwise([0, *starts, len(found)]):
        while stop > start and is_blank(found[stop - 1]):
            stop -= 1
        while start < stop and is_blank(found[start]):
            start += 1
        if start < stop:
            yield piece.line + start, found[start:stop]


def _is_heading(found: Lines, i: int, headings: list[str]) -> bool:
    line = found[i]
    if not headings or isinstance(line, Reject) or is_blank(line):
        return False
    alone = all(is_blank(near) for near in (*found[max(i - 1, 0) : i], *found[i + 1 : i + 2]))
    return alone and any(fnmatchcase(line.strip(), heading) for heading in headings)
