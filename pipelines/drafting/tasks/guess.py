"""A guess at a task and its `map`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ubert.schema.record import Task
from ubert.schema.specs.mapping import QUOTED, unquoted

Map = dict[str, Any]  # a spec's `map`, or a part of it


class Guess(NamedTuple):
    """A task and a `map` for it. `score` is its likelihood before it is tested, and `reasons` support it."""

    task: Task
    map: Map
    score: float
    reasons: tuple[str, ...]


def called(*paths: str) -> str:
    """Name columns in a reason: "column 'a'" or "columns 'a' and 'b'". A path within a column is a field."""
    noun = "field" if any(re.search(r"[.\[{]", re.sub(QUOTED, "", path)) for path in paths) else "column"
    *others, last = map(repr, map(unquoted, paths))
    return f"{noun}s {', '.join(others)} and {last}" if others else f"{noun} {last}"


def each_of(base: str) -> str:
    """Name the items at a path in a reason: "each item of 'marks'" for `marks[]`."""
    whole = re.sub(r"\[\]$|\.\{\w+\}$", "", base)
    return f"each item of {whole!r}" if whole else "each row"


def hint(name: str, words: str) -> float:
    """Return how well a name matches a list of words, in order of preference: 1 for the first word, 0 for none."""
    bare = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    listed = words.split(" ")
    for place, word in enumerate(listed):
        if bare == word:
            return 1 - 0.5 * place / len(listed)
    parts = {re.sub(r"\d+$", "", part) for part in bare.split("_")}
    for place, word in enumerate(listed):
        if word in parts:
            return 0.45 - 0.2 * place / len(listed)
    return 0.0
