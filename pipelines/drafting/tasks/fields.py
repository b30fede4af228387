"""Fields of sample rows: their paths in a spec's notation, and the kind of their values."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pipelines.drafting.names import step
from pipelines.mapping.fields import is_words
from ubert.schema.checks import is_utf8

MAX_DEPTH, VALUES, MAX_PATHS = 12, 4_000, 300  # maximum depth, values of a path, and paths
_ROLES = ("system", "user", "assistant", "human", "gpt")
MOST = 0.95  # share of values that must fit a guess; the others may be damaged


class Field(NamedTuple):
    """A path, its values in the sample, and the number of rows that have any."""

    path: str
    values: list[Any]
    rows: int
    of: int  # number of all rows

    @property
    def name(self) -> str:
        """Return the last key of the path, or the last part of a key with dots."""
        keys = re.findall(r'[^.\[\]{}?/"]+', self.path)
        return str(keys[-1]).lower() if keys else ""

    @property
    def flat(self) -> bool:
        """Tell whether each row has at most one value."""
        return "[]" not in self.path and "{" not in self.path

    def all(self, *kinds: type) -> bool:
        """Tell whether all values have one of these types."""
        return bool(self.values) and {*map(type, self.values)} <= {*kinds}

    @property
    def distinct(self) -> int:
        return len(set(map(str, self.values)))

    @property
    def length(self) -> float:
        """Return the mean length of strings or lists."""
        return sum(map(len, self.values)) / len(self.values)

    @property
    def is_text(self) -> bool:
        """Tell whether the values are strings of several words."""
        if not self.all(str):
            return False
        words = sum(value.count(" ") for value in self.values) / len(self.values)
        ascii_ = all(value.isascii() for value in self.values[:30])
        return words >= 2 or (
            not ascii_ and self.length >= 5 and words < 1 and self.distinct > 0.5 * len(self.values)
        )

    @property
    def is_label(self) -> bool:
        """Tell whether the values may be labels: few distinct values, short and repeated."""
        if not self.all(str, int, bool, float) or not self.flat or self.is_number:
            return False
        longest = max(len(str(value)) for value in self.values)
        share = 0.75 if self.name == "label" else 0.5  # of few rows, a sample may have most labels once
        few = 2 <= self.distinct <= max(2, min(len(self.values) * share, 300)) or len(self.values) < 8
        return few and longest <= 60 and not (self.distinct > 150 and self.all(int))

    @property
    def is_number(self) -> bool:
        """Tell whether the values are numbers, some with fractions."""
        try:
            found = [float(value) for value in self.values if type(value) in (str, int, float)]
        except (ValueError, OverflowError):  # a word, or an integer beyond the range of floats
            return False
        fractions = any(value != int(value) for value in found) if all(abs(f) < 1e9 for f in found) else False
        return len(found) == len(self.values) > 0 and fractions

    @property
    def words(self) -> list[list[str]] | None:
        """Return the values if all of them are lists of words, else None."""
        if self.values and all(v and is_words(v) for v in self.values):
            return self.values
        return None


Fields = dict[str, Field]  # by path


def mostly(fits: Iterable[bool]) -> bool:
    """Tell whether nearly all values fit a guess, so that a few damaged rows don't lead to another one."""
    found = [*fits]
    return bool(found) and sum(found) >= MOST * len(found)


def fields_of(rows: Sequence[dict[str, Any]]) -> Fields:
    """Return all paths in the rows, with their values. `{key}` replaces the keys of objects whose keys
    differ between rows."""
    values: defaultdict[str, list[Any]] = defaultdict(list)
    having: Counter[str] = Counter()
    open_paths = _open_paths(rows)
    for row in rows:
        seen: set[str] = set()
        for path, value in _walk(row, "", open_paths, 0):
            if value is not None and value != "" and (path in values or len(values) < MAX_PATHS):
                if len(values[path]) < VALUES:
                    values[path].append(value)
                seen.add(path)
        having.update(seen)
    return {
        path: Field(path, _undamaged(found), having[path], len(rows)) for path, found in values.items() if path
    }


def _undamaged(values: list[Any]) -> list[Any]:
    """Return the values without the few lists and objects among strings."""
    strings = sum(isinstance(value, str) for value in values)
    if not MOST * len(values) <= strings < len(values):
        return values
    return [value for value in values if not isinstance(value, list | dict)]


def _walk(node: Any, path: str, open_paths: set[str], depth: int) -> Iterator[tuple[str, Any]]:
    yield path, node
    if depth > MAX_DEPTH:
        return
    if isinstance(node, list):
        if {list, str} <= {*map(type, node)}:  # each position has its own meaning: [words, id, [[start, end]]]
            for i, part in enumerate(node[:8]):
                yield from _walk(part, f"{path}.{i}", open_paths, depth + 1)
            return
        if any(isinstance(item, list) and any(isinstance(part, str | int) for part in item) for item in node[:5]):
            for item in node:
                yield f"{path}[]", item
                if isinstance(item, list):
                    for i, part in enumerate(item[:8]):
                        yield from _walk(part, f"{path}[].{i}", open_paths, depth + 2)
            return
        for item in node:
            yield from _walk(item, f"{path}[]", open_paths, depth + 1)
        for i, item in enumerate(node[:8] if _is_chat(node) else []):
            if item[_role(item)] != "system":
                yield from _walk(item, f"{path}.{i}", open_paths, depth + 1)
    elif isinstance(node, dict):
        dot = "." if path else ""
        for key, item in node.items():
            if path in open_paths:
                yield from _walk(item, f"{path}{dot}{{{_named(path)}}}", open_paths, depth + 1)
            elif (to_key := step(key)) and is_utf8(key):
                yield from _walk(item, f"{path}{dot}{to_key}", open_paths, depth + 1)


def _is_chat(node: list[Any]) -> bool:
    """Tell whether a list has the turns of a chat, as in data to fine-tune language models."""
    return bool(node) and all(isinstance(item, dict) and item.get(_role(item)) in _ROLES for item in node)


def _role(item: dict[str, Any]) -> str:
    return "role" if "role" in item else "from"


def _named(path: str) -> str:
    """Return the name for the keys of an open object; it differs by depth."""
    return "key" if "{key}" not in path else "inner" if "{inner}" not in path else "innermost"


def _open_paths(rows: Sequence[dict[str, Any]]) -> set[str]:
    """Find objects whose keys are data: digits, or many keys of which each row has a few."""
    found: set[str] = set()
    for _ in range(3):  # from outside in, because inner objects then share a path
        keys: defaultdict[str, Counter[str]] = defaultdict(Counter)
        count: Counter[str] = Counter()
        for row in rows:
            for path, value in _walk(row, "", found, 0):
                if path and isinstance(value, dict) and path not in found:
                    keys[path].update(value.keys())
                    count[path] += 1
        more = {path for path, seen in keys.items() if _is_open(seen, count[path])}
        if not more:
            return found
        found |= {
            path for path in more if not any(path.startswith(f"{outer}.") for outer in more if outer != path)
        }
    return found


def _is_open(seen: Counter[str], count: int) -> bool:
    if all(key.isdigit() or not key.isascii() for key in seen):
        return True
    often = sum(times >= 0.9 * count for times in seen.values())
    return len(seen) >= 5 and often == 0 and sum(seen.values()) < 0.6 * count * len(seen)
