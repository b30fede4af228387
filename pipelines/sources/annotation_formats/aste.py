"""Aspect, opinion and sentiment triplets: a sentence of words, `####`, and a Python list of its triplets
(Peng et al. 2020; Xu et al. 2020):

    the food is great .####[([1], [3], 'POS')]

A row is {"sentence", "triplets": [{"aspect": [word numbers], "opinion": [word numbers], "sentiment"}]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.text import lines
from ubert.schema.record import Reject

# With these characters replaced, a Python list of tuples of numbers and plain strings is JSON. So no `eval`.
_JSON = str.maketrans({"(": "[", ")": "]", "'": '"'})


class Options(FormatOptions):
    """Triplets need no options."""


EXAMPLE = Example({"train.txt": "the food is great .####[([1], [3], 'POS')]\n"})


def split_at(options: Options) -> Literal["line"]:
    """Each line is a record."""
    return "line"


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each line that isn't blank."""
    for number, line in enumerate(lines(piece), piece.line):
        if isinstance(line, Reject):
            yield line
        elif line and not line.isspace():
            sentence, mark, listed = line.rpartition("####")
            triplets = _triplets(listed) if mark else None
            if triplets is None:
                detail = "expected a sentence, ####, and a list of ([word numbers], [word numbers], 'label')"
                yield Reject(piece.path, number, "not triplets", detail, line)
            else:
                yield RawRow(number, f"{piece.path}:{number}", {"sentence": sentence, "triplets": triplets})


def _triplets(listed: str) -> list[dict[str, Any]] | None:
    try:
        found = json.loads(listed.translate(_JSON))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(_is_triplet(item) for item in found):
        return None
    return [{"aspect": aspect, "opinion": opinion, "sentiment": label} for aspect, opinion, label in found]


def _is_triplet(item: Any) -> bool:
    match item:
        case [list(aspect), list(opinion), str()]:
            return all(type(i) is int for i in [*aspect, *opinion])
        case _:
            return False
