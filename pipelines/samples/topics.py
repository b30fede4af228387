"""sample_topics: the topic of a piece of news."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.samples.scene import Scene
from pipelines.samples.world import grammars
from ubert.schema.record import Split

COLUMNS = ("id", "text", "topic")


def writer(split: Split) -> Callable[[Scene], tuple[str, ...]]:
    """Return a function that writes one row: id, text, topic."""
    topics = grammars("topics", split)

    def write(scene: Scene) -> tuple[str, ...]:
        topic, grammar = scene.pick(topics)
        return scene.id, scene.write(grammar["item"]).text, topic

    return write
