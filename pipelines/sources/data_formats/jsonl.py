"""JSON Lines: one JSON object per line. A line that is not valid JSON is rejected; the other lines are read.

A line in which an object has a key twice is rejected, because one of its values would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jsonlines
from msgspec import MsgspecError
from msgspec.json import Decoder, encode
from pydantic import Field, model_validator

from pipelines.mapping.refused import as_json
from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.join import Beside, joined
from pipelines.sources.parsing.row_range import RowRange, in_range
from pipelines.sources.parsing.text import json_object, lines, repeated
from ubert.schema.record import Reject

_LOADS = partial(json.loads, object_pairs_hook=json_object)


class Options(FormatOptions):
    """Rows of JSON Lines."""

    decode: list[str] = Field(default_factory=list)
    """Fields with JSON that is written as a string."""
    beside: Beside | None = None
    """Another such file, whose rows are joined to the file's rows by a field."""
    only: RowRange | None = None
    """Take the rows from this number, up to but not including that one, counted from 0. One file can thus serve
    several splits. A blank line is no row, but a damaged one is. Not with `beside`."""

    @model_validator(mode="after")
    def _agree(self) -> Options:
        if self.only is not None and self.beside is not None:  # rows of the other file would have no partner
            raise ValueError("`only` can't be combined with `beside`; write the rows of each split into own files")
        return self


EXAMPLE = Example({"reviews.jsonl": '{"text": "Fine.", "stars": 5}\n{"text": "Bad.", "stars": 1}\n'})


def split_at(options: Options) -> Literal["line"] | None:
    """Each line is a record. A file isn't cut if `only` needs the number of each row."""
    return "line" if options.only is None else None


def companions(folder: Path, path: str, options: Options) -> list[str]:
    """Return the file to join, if the spec names one."""
    return [options.beside.place(path)] if options.beside else []


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each line that isn't blank, joined and decoded as the options say."""
    rows = in_range(_rows(piece), options.only)
    if options.beside:
        other = piece.whole(options.beside.place(piece.path))
        rows = joined(rows, _rows(other), options.beside, piece.path)
    return _decoded(rows, piece.path, options.decode) if options.decode else rows


def _rows(piece: Slice) -> Iterator[RawRow | Reject]:
    """Yield a row for each line that isn't blank."""
    path, decode = piece.path, Decoder(dict).decode
    for number, line in enumerate(lines(piece), piece.line):
        if isinstance(line, Reject):
            yield line
            continue
        try:
            content = decode(line)
            whole = _has_all_keys(content, line)
        except (MsgspecError, UnicodeEncodeError, RecursionError):
            if line and not line.isspace():
                yield _second_look(path, number, line)
        else:
            yield RawRow(number, f"{path}:{number}", content) if whole else _second_look(path, number, line)


def _has_all_keys(content: dict[str, Any], line: str) -> bool:
    """Return whether no key of a line is repeated, or False if that takes a slower look.

    Each key has a colon. Those of repeated keys are missing from `content`, unless an escaped colon took their
    place.
    """
    colons = line.count(":")
    if colons == len(content):
        return True
    return colons == encode(content).count(b":") and "\\u003a" not in line and "\\u003A" not in line


def _second_look(path: str, number: int, line: str) -> RawRow | Reject:
    """Parse a line again that the fast parser can't read, or in which a key may be repeated. Python accepts some
    invalid JSON (NaN, lone surrogates); for other lines it tells where the error is."""
    try:
        content = jsonlines.Reader([line], loads=_LOADS).read(type=dict)
    except jsonlines.InvalidLineError as error:
        return Reject(path, number, *_problem(error), line)
    except RecursionError:
        return Reject(path, number, "not JSON", "the values are nested too deeply to be read", line)
    if problem := repeated(content):
        return Reject(path, number, "repeated key", problem, line)
    return RawRow(number, f"{path}:{number}", content)


def _decoded(rows: Iterator[RawRow | Reject], path: str, fields: list[str]) -> Iterator[RawRow | Reject]:
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        try:
            parsed = {field: _LOADS(row.content[field]) for field in fields}
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            missing = [field for field in fields if field not in row.content]
            cause = f"no field {missing[0]!r}, there are {', '.join(row.content)}" if missing else str(error)
            detail = f"{row.locator}: one of {', '.join(fields)} is not JSON: {cause}"
            yield Reject(path, row.line, "not JSON", detail, as_json(row.content))
        else:
            if problem := repeated(parsed):
                yield Reject(path, row.line, "repeated key", problem, as_json(row.content))
            else:
                yield RawRow(row.line, row.locator, {**row.content, **parsed})


def _problem(error: jsonlines.InvalidLineError) -> tuple[str, str]:
    match error.__cause__:
        case json.JSONDecodeError(colno=column, msg=message):
            return "not JSON", f"column {column}: {message}"
        case ValueError() as cause:
            return "not JSON", str(cause)
        case _:
            return "not an object", "expected a JSON object, {...}, on each line"
