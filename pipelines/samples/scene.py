"""The state of one record while it is written: random draws, names, words so far, and the offsets of names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias, TypeVar

import xxhash

from ubert.schema.record import Split

Name: TypeAlias = dict[str, str]  # form -> words; a reference without a form uses `full`
Item = TypeVar("Item")


class Mark(NamedTuple):
    """A name (or a trigger) in a text: [start, end) in characters."""

    slot: str
    start: int
    end: int


class Text(NamedTuple):
    """A finished text and the names in it."""

    text: str
    marks: list[Mark]


class Scene:
    """The state of one record while it is written: its random draws, its names and its words so far.

    `alias` maps a template's slots to slots of `cast`, so that one template can use different names. Marks keep
    the template's own slots.
    """

    __slots__ = ("alias", "cast", "id", "marks", "parts", "state")

    def __init__(self, seed: int, dataset: str, split: Split, index: int) -> None:
        self.id = f"{split}-{index}"
        self.state = xxhash.xxh3_64_intdigest(f"{seed}/{dataset}/{self.id}".encode())
        self.cast: dict[str, Name] = {}
        self.alias: dict[str, str] = {}
        self.parts: list[str] = []
        self.marks: list[tuple[str, int, int]] = []  # slot, first part, part after the last

    def draw(self, n: int) -> int:
        """Draw from 0..n-1, by the high half of a 64-bit linear congruential generator (Knuth's MMIX)."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self.state >> 32) * n >> 32

    def pick(self, items: Sequence[Item]) -> Item:
        """Draw one of the items."""
        return items[self.draw(len(items))]

    def write(self, alternatives: Sequence[Callable[[Scene], None]]) -> Text:
        """Let one of the alternatives write, and take its text."""
        self.pick(alternatives)(self)
        return self.take()

    def take(self) -> Text:
        """Return the text so far with its marks, and start an empty one with the same names."""
        text = "".join(self.parts)
        offsets = [0, *accumulate(map(len, self.parts))] if self.marks else []
        marks = [Mark(slot, offsets[first], offsets[last]) for slot, first, last in self.marks]
        self.parts, self.marks = [], []
        return Text(text, marks)
