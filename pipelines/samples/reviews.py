"""sample_reviews: the sentiment of a review of a hotel, a restaurant or a product."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.samples.scene import Scene
from pipelines.samples.world import grammars
from ubert.schema.record import Split

LABELS = ("negative", "neutral", "positive")
_STARS = {"negative": (1, 2), "neutral": (3,), "positive": (4, 5)}


def writer(split: Split) -> Callable[[Scene], dict[str, object]]:
    """Return a function that writes one review."""
    domains = grammars("reviews", split)

    def write(scene: Scene) -> dict[str, object]:
        domain, grammar = scene.pick(domains)
        label = scene.pick(LABELS)
        text = scene.write(grammar[label]).text
        return {"id": scene.id, "text": text, "label": label, "stars": scene.pick(_STARS[label]), "about": domain}

    return write
