"""Records whose texts are equal, or differ in one word."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from worlds import corpus

from ubert.schema.record import Category, Record, Split, Task

WORDS = [f"word{number}" for number in range(500)]
PARITY = (Category("even", "label"), Category("odd", "label"))
PLACES = (Category("city", "entity"), Category("river", "entity"), Category("flows through", "relation"))


def record(
    name: str,
    number: int,
    text: str,
    *,
    split: Split = "train",
    labels: Sequence[int] = (0,),
    categories: Sequence[Category] = PARITY,
    task: Task = "classification",
    **more: Any,
) -> Record:
    made = corpus(name, 1, split)[0]
    changes = {"text": text, "labels": list(labels), "categories": tuple(categories), "task": task, **more}
    return replace(made, record_id=f"{name}/{split}/{number}", **changes)


def sentence(draw: random.Random, words: Sequence[str] = WORDS, size: int = 30) -> list[str]:
    return [draw.choice(words) for _ in range(size)]


def changed(words: list[str], place: int) -> list[str]:
    return [*words[:place], "changed", *words[place + 1 :]]
