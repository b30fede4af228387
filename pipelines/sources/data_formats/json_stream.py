"""JSON values one after another, printed over several lines or not, with white space or nothing between them.

A value that cannot be read is rejected, and reading continues at the next line that begins with a bracket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pydantic import Field

from pipelines.sources import Example, RawRow, Slice
from pipelines.sources.parsing.rows import JsonOptions, Route, rows_of
from pipelines.sources.parsing.text import json_object, json_problem, whole_text
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

_SPACE = re.compile(r"\s*")
_NEXT = re.compile(r"^[\[{]", re.MULTILINE)


class Options(JsonOptions):
    """Rows of JSON values."""

    rows: list[Route] = Field(default=["."], min_length=1)
    """The paths to the rows of each value; by default each value is a row."""


EXAMPLE = Example({"reviews.json": '{\n  "text": "Fine.",\n  "stars": 5\n}\n{"text": "Bad.", "stars": 1}\n'})


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield the rows of each value. Their locators begin with the number of the value, from 0."""
    whole = whole_text(piece)
    if isinstance(whole, Reject):
        yield whole
        return
    decoder = json.JSONDecoder(strict=not options.control_characters, object_pairs_hook=json_object)
    number, line, counted = 0, 1, 0
    at = _after_space(whole, 0)
    while at < len(whole):
        line, counted = line + whole.count("\n", counted, at), at
        try:
            value, end = decoder.raw_decode(whole, at)
        except (ValueError, RecursionError) as error:
            following = _NEXT.search(whole, at + 1)
            end = following.start() if following else len(whole)
            yield Reject(piece.path, line, "not JSON", json_problem(error), whole[at:end].rstrip())
        else:
            try:
                yield from rows_of(piece, value, options, line, (str(number),))
            except UserError as error:
                yield Reject(piece.path, line, "no rows", str(error), whole[at:end])
        number += 1
        at = _after_space(whole, end)


def _after_space(whole: str, at: int) -> int:
    match = _SPACE.match(whole, at)
    return match.end() if match else at
