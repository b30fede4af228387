"""sample_entities: named entities, as tokens with BIO tags."""

from __future__ import annotations

import re
from collections.abc import Callable

from pipelines.samples.grammar import compile_rules, read
from pipelines.samples.scene import Scene, Text
from pipelines.samples.world import makers
from ubert.schema.record import Split

LABELS = {
    "person": "PER", "firm": "ORG", "place": "LOC", "product": "PROD", "day": "DATE", "month": "DATE",
    "year": "DATE", "money": "MONEY", "sum": "MONEY", "price": "MONEY", "fare": "MONEY",
}  # fmt: skip
_TOKEN = re.compile(r"'s\b|\d[\d.,]*\d|\w+(?:[-'](?!s\b)\w+)*|[^\w\s]")


def writer(split: Split) -> Callable[[Scene], list[tuple[str, str]]]:
    """Return a function that writes one text as (token, tag) pairs."""
    grammar = compile_rules(read("entities"), makers(split), split)

    def write(scene: Scene) -> list[tuple[str, str]]:
        return tagged(scene.write(grammar["item"]))

    return write


def tagged(text: Text) -> list[tuple[str, str]]:
    """Return tokens and their tags. Names are separated from other words first, so that boundaries are exact."""
    tokens: list[tuple[str, str]] = []
    at = 0
    for mark in text.marks:
        label = LABELS.get(mark.slot.rstrip("0123456789"))
        if label is None:
            continue
        tokens += [(token, "O") for token in _TOKEN.findall(text.text, at, mark.start)]
        inside = _TOKEN.findall(text.text, mark.start, mark.end)
        tokens += [(token, f"{'I' if i else 'B'}-{label}") for i, token in enumerate(inside)]
        at = mark.end
    return tokens + [(token, "O") for token in _TOKEN.findall(text.text, at)]
