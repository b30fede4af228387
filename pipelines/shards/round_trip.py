"""Decode perfect scores for every corpus: `python -m pipelines.shards.round_trip`.

The command prints a Markdown table with the number of records that decode exactly, and of annotations that don't,
by reason.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipelines.models.evaluate import read_records
from pipelines.progress import progress
from pipelines.store.store import Store
from ubert.evaluation.round_trip import total
from ubert.model.tokenizer import load_tokenizer
from ubert.objectives import objective
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.record import SPLITS
from ubert.schema.specs.recipe import Recipe

ENCODER: str = Recipe.model_fields["encoder"].default
COUNTED = ("records", "exact", "annotations")


def round_trip(root: Path, encoder: str) -> Iterator[tuple[CorpusManifest, Counter[str]]]:
    """Yield the counts of `ubert.evaluation.round_trip` for each ingested corpus whose annotations are cells.

    Raises:
        UserError: there is no such encoder.
    """
    store, tokenizer = Store(root), load_tokenizer(encoder)
    current = store.currents("corpora").values()
    for directory, manifest in progress(current, len(current), "corpora"):
        if objective(manifest.task).tabular:
            records = (r for split in SPLITS for r in read_records(directory, manifest, split, None))
            yield manifest, total(records, tokenizer)


def markdown(found: Iterable[tuple[CorpusManifest, Counter[str]]]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each corpus."""
    yield "| corpus | task | records | exact | annotations | not back, by reason |"
    yield "|---|---|---|---|---|---|"
    for manifest, counts in found:
        reasons = [f"{reason} {n:,}" for reason, n in sorted(counts.items()) if n and reason not in COUNTED]
        cells = [manifest.name, manifest.task, *(f"{counts[name]:,}" for name in COUNTED), ", ".join(reasons)]
        yield f"| {' | '.join(cells)} |"


def main(
    root: Annotated[Path, typer.Option(envvar="UBERT_ROOT", help="The store.")] = Path("store"),
    encoder: Annotated[str, typer.Option(help="Use this encoder's tokenizer.")] = ENCODER,
) -> None:
    """Print the round trip of every ingested corpus."""
    try:
        for line in markdown(round_trip(root, encoder)):
            typer.echo(line)
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
