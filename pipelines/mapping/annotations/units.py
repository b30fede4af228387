"""Converts offsets that count UTF-16 units, or bytes of UTF-8, to characters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from ubert.schema.specs.mapping import Unit

Fragments = tuple[tuple[int, int], ...]
NAMES: dict[Unit, str] = {
    "character": "characters",
    "token": "tokens",
    "utf16": "UTF-16 units",
    "byte": "bytes",
}


def size(text: str, unit: Unit) -> int:
    """Return the length of a text in a unit other than tokens."""
    if unit == "utf16":
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass")) if unit == "byte" else len(text)


def starts(text: str, unit: Unit) -> Sequence[int]:
    """Return where each character of a text begins, and where the text ends, in a unit other than tokens. It is a
    range if these are the numbers of the characters themselves."""
    if unit not in ("utf16", "byte") or text.isascii():
        return range(len(text) + 1)
    return _starts(text, unit)


@lru_cache(maxsize=1)  # a text is converted once for all its mentions
def _starts(text: str, unit: Unit) -> Sequence[int]:
    if size(text, unit) == len(text):
        return range(len(text) + 1)
    return [*accumulate((size(letter, unit) for letter in text), initial=0)]


def character(offset: int, starts: Sequence[int]) -> int | None:
    """Return the character that begins at an offset, or None if it is outside the text or inside a character."""
    at = bisect_left(starts, offset)
    return at if at < len(starts) and starts[at] == offset else None


def characters(pairs: Fragments, starts: Sequence[int]) -> Fragments | None:
    """Convert pairs of start and end to characters. Return None if one of them is not where a character begins."""
    found = []
    for start, end in pairs:
        first, last = character(start, starts), character(end, starts)
        if first is None or last is None:
            return None
        found.append((first, last))
    return tuple(found)


def is_inside(offset: int, starts: Sequence[int]) -> bool:
    """Tell whether an offset is inside a character, such as between the two UTF-16 units of an emoji."""
    return 0 < offset < starts[-1] and character(offset, starts) is None
