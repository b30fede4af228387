"""CoNLL columns: one token per line, and a blank line after each sentence or a marker line before each record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.sources import Example, FormatOptions, RawRow, Slice, check_distinct
from pipelines.sources.parsing.paragraphs import Lines, is_blank, paragraphs, raw
from pipelines.sources.parsing.text import lines
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


class Options(FormatOptions):
    """Columns of a CoNLL file."""

    columns: list[str] = Field(min_length=1)
    """The names of all columns, in the file's order. Columns named `_` are left out."""
    separator: Literal["tab", "whitespace"] = "whitespace"
    """What separates columns: a tab, or any spaces and tabs."""
    comments: list[str] = Field(default_factory=list)
    """Skip lines that start like this, such as `-DOCSTART-`, or `#` if no token starts with it."""
    begins: str | None = Field(default=None, min_length=1)
    """The start of the line before each record, such as `#doc`, if blank lines don't separate records. The rest of
    that line becomes the field `marker`."""

    @field_validator("columns")
    @classmethod
    def _differ(cls, columns: list[str]) -> list[str]:
        check_distinct([column for column in columns if column != "_"])
        return columns

    @model_validator(mode="after")
    def _has_room_for_the_marker(self) -> Options:
        if self.begins is not None and "marker" in self.columns:
            raise ValueError("`begins` adds a field `marker`; rename the column of that name")
        return self


EXAMPLE = Example(
    {"sentences.conll": "Ada B-person\nBerg I-person\nwaits O\n\nOslo B-place\n"}, {"columns": ["tokens", "tags"]}
)


def split_at(options: Options) -> Literal["blank line"] | None:
    """A sentence ends at a blank line. A file with markers isn't cut."""
    return "blank line" if options.begins is None else None


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each sentence, or each record after a marker, with a list of values for each column.

    Raises:
        UserError: no line of the file is a marker.
    """
    if options.begins is not None:
        return _marked(piece, options, options.begins)
    return (_row(piece, options, first, run) for first, run in _sentences(piece, tuple(options.comments)))


def _sentences(piece: Slice, skipped: tuple[str, ...]) -> Iterator[tuple[int, Lines]]:
    for first, run in paragraphs(piece):
        kept = [(number, line) for number, line in enumerate(run, first) if not _is_comment(line, skipped)]
        if kept:
            yield kept[0][0], [line for _, line in kept]


def _is_comment(line: str | Reject, skipped: tuple[str, ...]) -> bool:
    return isinstance(line, str) and bool(skipped) and line.startswith(skipped)


def _marked(piece: Slice, options: Options, begins: str) -> Iterator[RawRow | Reject]:
    """Yield the records after markers. Tokens before the first marker are a reject."""
    skipped, marker, first = tuple(options.comments), "", piece.line
    run: Lines = []
    number, seen = 0, False
    for number, line in enumerate(lines(piece), piece.line):
        if isinstance(line, str) and line.startswith(begins):
            if run and not seen:
                yield Reject(piece.path, first, "no marker", f"no {begins!r} before these lines", raw(run))
            elif run:
                yield _row(piece, options, first, run, marker)
            marker, seen, run = line.removeprefix(begins).strip(), True, []
        elif not is_blank(line) and not _is_comment(line, skipped):
            first = first if run else number
            run.append(line)
    if number and not seen:
        raise UserError(f"{piece.place}: no line begins with {begins!r}; correct `begins` in the spec's options")
    if run:
        yield _row(piece, options, first, run, marker)


def _row(
    piece: Slice, options: Options, first: int, sentence: Lines, marker: str | None = None
) -> RawRow | Reject:
    width = len(options.columns)
    rows = []
    for line in sentence:
        if isinstance(line, Reject):
            return Reject(piece.path, first, line.reason, f"line {line.line}: {line.detail}", raw(sentence))
        fields = line.split("\t") if options.separator == "tab" else _words(line)
        if len(fields) != width:
            detail = f"expected {width} columns, got {len(fields)} in {line!r}"
            return Reject(piece.path, first, "wrong column count", detail, raw(sentence))
        rows.append(fields)
    content: dict[str, Any] = dict(zip(options.columns, map(list, zip(*rows, strict=True)), strict=True))
    content.pop("_", None)
    if marker is not None:
        content["marker"] = marker
    return RawRow(first, f"{piece.path}:{first}", content)


def _words(line: str) -> list[str]:
    # A token may contain a no-break space, at which str.split() would split.
    words = line.replace("\t", " ").split(" ")
    return [word for word in words if word] if "" in words else words
