"""CoNLL columns: one token a line, a blank line after each sentence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from pipelines.sources import RawRow, Slice
from pipelines.sources._text import lines
from ubert.schema.record import Reject
from ubert.schema.yaml_file import Strict


class Options(Strict):
    """`columns` names all columns in the file's order; those named `_` are left out. Lines that start with one of
    `comments` are skipped (as `-DOCSTART-`, or `#` where no token starts so)."""

    columns: list[str] = Field(min_length=1)
    separator: Literal["tab", "whitespace"] = "whitespace"
    comments: list[str] = Field(default_factory=list)

    @field_validator("columns")
    @classmethod
    def _differ(cls, columns: list[str]) -> list[str]:
        named = [column for column in columns if column != "_"]
        if len(set(named)) != len(named):
            raise ValueError("a column is named twice")
        return columns


def split_at(options: Options) -> Literal["blank line"]:
    """A sentence ends at a blank line."""
    return "blank line"


def companions(folder: Path, path: str, options: Options) -> list[str]:
    """None."""
    return []


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """One row a sentence: for each column the list of its values."""
    skipped = tuple(options.comments)
    sentence: list[str | Reject] = []
    first = piece.line
    for number, line in enumerate(chain(lines(piece), [""]), piece.line):
        if isinstance(line, str):
            if not line or line.isspace():
                if sentence:
                    yield _sentence(piece, options, first, sentence)
                    sentence = []
                continue
            if skipped and line.startswith(skipped):
                continue
        if not sentence:
            first = number
        sentence.append(line)


def _sentence(piece: Slice, options: Options, first: int, sentence: list[str | Reject]) -> RawRow | Reject:
    fields_of = _tabbed if options.separator == "tab" else _words
    width = len(options.columns)
    rows = []
    for line in sentence:
        if isinstance(line, Reject):
            return Reject(piece.path, first, line.reason, f"line {line.line}: {line.detail}", _raw(sentence))
        fields = fields_of(line)
        if len(fields) != width:
            detail = f"expected {width} columns, got {len(fields)} in {line!r}"
            return Reject(piece.path, first, "wrong column count", detail, _raw(sentence))
        rows.append(fields)
    content = dict(zip(options.columns, map(list, zip(*rows, strict=True)), strict=True))
    content.pop("_", None)
    return RawRow(first, f"{piece.path}:{first}", content)


def _raw(sentence: list[str | Reject]) -> str:
    return "\n".join(line if isinstance(line, str) else line.raw for line in sentence)


def _tabbed(line: str) -> list[str]:
    return line.split("\t")


def _words(line: str) -> list[str]:
    # str.split() would also split at a no-break space, which may be part of a token.
    words = line.replace("\t", " ").split(" ")
    return [word for word in words if word] if "" in words else words
