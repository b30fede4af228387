"""sample_entailment: whether a premise entails a hypothesis, contradicts it, or neither."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.samples.grammar import compile_rules, deal, read
from pipelines.samples.scene import Scene
from pipelines.samples.world import makers
from ubert.schema.record import Split

COLUMNS = ("id", "premise", "hypothesis", "label")
LABELS = ("entailment", "neutral", "contradiction")


def writer(split: Split) -> Callable[[Scene], tuple[str, ...]]:
    """Return a function that writes one row: id, premise, hypothesis, label."""
    texts: list[dict[str, str]] = read("entailment")
    names = makers(split)
    situations = [compile_rules(rules, names, split) for rules in deal(texts, split)]

    def write(scene: Scene) -> tuple[str, ...]:
        situation = scene.pick(situations)
        label = scene.pick(LABELS)
        premise = scene.write(situation["premise"]).text
        return scene.id, premise, scene.write(situation[label]).text, label

    return write
