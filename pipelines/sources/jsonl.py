"""JSON Lines: one JSON object a line. A bad line is a reject; the rest go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import jsonlines
from msgspec import MsgspecError
from msgspec.json import Decoder

from pipelines.sources import RawRow, Slice
from pipelines.sources._text import lines
from ubert.schema.record import Reject
from ubert.schema.yaml_file import Strict


class Options(Strict):
    """JSON Lines need no options."""


def split_at(options: Options) -> Literal["line"]:
    """A line is a record."""
    return "line"


def companions(path: Path, options: Options) -> list[Path]:
    """None."""
    return []


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """One row a line; blank lines are no rows."""
    path, decode = piece.path, Decoder(dict).decode
    for number, line in enumerate(lines(piece), piece.line):
        if isinstance(line, Reject):
            yield line
            continue
        try:
            yield RawRow(number, f"{path}:{number}", decode(line))
        except (MsgspecError, UnicodeEncodeError, RecursionError):
            if line and not line.isspace():
                yield _second_look(path, number, line)


def _second_look(path: str, number: int, line: str) -> RawRow | Reject:
    """A line that the fast parser refuses: it may hold what JSON does not allow but Python reads (NaN, half of a
    surrogate pair), and if not, this parser says where it is wrong."""
    try:
        content = jsonlines.Reader([line], loads=json.loads).read(type=dict)
    except jsonlines.InvalidLineError as error:
        return Reject(path, number, *_problem(error), line)
    except RecursionError:
        return Reject(path, number, "not JSON", "the values are nested too deeply to be read", line)
    return RawRow(number, f"{path}:{number}", content)


def _problem(error: jsonlines.InvalidLineError) -> tuple[str, str]:
    match error.__cause__:
        case json.JSONDecodeError(colno=column, msg=message):
            return "not JSON", f"column {column}: {message}"
        case ValueError() as cause:
            return "not JSON", str(cause)
        case _:
            return "not an object", "expected a JSON object, {...}, on each line"
