"""Generate texts from a stream of texts, with one JSON object for each, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import ubert
from pipelines.models.inputs import ANSWERS, Input
from pipelines.models.predict import CHUNK, pairs_of
from ubert.inference.generation.beam import Search
from ubert.schema.specs.recipe import Precision


def generate(
    checkpoint: Path,
    inputs: Iterable[Input],
    *,
    instruction: str | None = None,
    search: Search,
    best: int = 1,
    precision: Precision = "auto",
    verify: bool = True,
    chunk: int = CHUNK,
) -> Iterator[list[dict[str, Any]]]:
    """Generate from `chunk` texts at a time; see `ubert.inference.predictor.Predictor.generate` for the arguments.

    Args:
        best: number of generated texts for each input.

    Yields:
        The rows of a chunk, in the order of the texts: the fields of each row and {"predictions": [{"text",
        "score"}, ...]}, best first.

    Raises:
        UserError: there is an error in the checkpoint, the texts or the arguments.
    """
    predictor = ubert.load(checkpoint, precision=precision, verify=verify)
    remaining = iter(inputs)
    while batch := list(islice(remaining, chunk)):
        texts = [one.text for one in batch]
        found = predictor.generate(texts, pairs=pairs_of(batch), instruction=instruction, search=search)
        yield [
            {**one.row, ANSWERS: [asdict(prediction) for prediction in predictions[:best]]}
            for one, predictions in zip(batch, found, strict=True)
        ]
