"""sample_useless: news with a random colour as the label, from which nothing can be learnt."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.samples import topics
from pipelines.samples.scene import Scene
from ubert.schema.record import Split

COLUMNS = ("id", "text", "colour")
LABELS = ("amber", "cobalt", "ochre", "teal")


def writer(split: Split) -> Callable[[Scene], tuple[str, ...]]:
    """Return a function that writes one row: id, text, colour."""
    news = topics.writer(split)

    def write(scene: Scene) -> tuple[str, ...]:
        number, text, _ = news(scene)
        return number, text, scene.pick(LABELS)

    return write
