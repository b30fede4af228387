"""JSON Lines: one JSON object a line. A bad line is a reject; the rest go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import jsonlines

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
    # The reader is handed one line at a time: it ends at its first error, and a bad line must not end the file.
    waiting: list[str] = []
    reader = jsonlines.Reader(iter(waiting.pop, None), loads=json.loads)
    for number, line in enumerate(lines(piece), piece.line):
        if isinstance(line, Reject):
            yield line
            continue
        if not line or line.isspace():
            continue
        waiting.append(line)
        try:
            yield RawRow(number, f"{piece.path}:{number}", reader.read(type=dict))
        except jsonlines.InvalidLineError as error:
            yield Reject(piece.path, number, *_problem(error), line)
        except RecursionError:
            yield Reject(piece.path, number, "not JSON", "the values are nested too deeply to be read", line)


def _problem(error: jsonlines.InvalidLineError) -> tuple[str, str]:
    match error.__cause__:
        case json.JSONDecodeError(colno=column, msg=message):
            return "not JSON", f"column {column}: {message}"
        case ValueError() as cause:
            return "not JSON", str(cause)
        case _:
            return "not an object", "expected a JSON object, {...}, on each line"
