"""Evaluate a run before and after its training, as the recipe's `evaluate` asks."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import pyarrow as pa

from pipelines.models.evaluate import Evaluation, evaluate
from pipelines.store.storage import ObjectPath, StorePath, upload
from pipelines.store.store import Store, write_json
from pipelines.training.remote_run import EVALUATION, run_in
from ubert.inference.thresholds import read_thresholds
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import run_directory
from ubert.training.checkpoints import checkpoint


class Comparison(TypedDict):
    """The content of `evaluation.json`: evaluations of a run's first and last checkpoint."""

    before: list[Evaluation]
    after: list[Evaluation]


def compare(recipe: Recipe, run: Path, *, root: StorePath) -> Comparison:
    """Evaluate the first and the last checkpoint of a finished run on the recipe's `evaluate`, both with the
    thresholds of the last. Write `evaluation.json`.

    Raises:
        UserError: the run is not finished.
    """
    manifest = run_directory.finished(run)
    if manifest is None:
        raise UserError(f"{run}: the run is not finished; train it first with `ubert pretrain {recipe.name}`")

    fitted = read_thresholds(run / manifest.checkpoint)

    def threshold(corpus: str) -> float | None:
        fit = fitted.get(Store(root).current("corpora", corpus)[1].task)
        return fit.threshold if fit else None

    def measured(directory: str) -> list[Evaluation]:
        return [
            evaluate(run / directory, **wanted.model_dump(), threshold=threshold(wanted.corpus), root=root)
            for wanted in recipe.evaluate
        ]

    comparison = Comparison(
        before=measured(str(checkpoint.first(run).relative_to(run))), after=measured(manifest.checkpoint)
    )
    write_json(run / EVALUATION, comparison, indent=1)
    if isinstance(root, ObjectPath):
        upload(run / EVALUATION, run_in(root, run.name) / EVALUATION)
    return comparison


def comparison_table(recipe: Recipe, run: Path, *, root: StorePath) -> pa.Table:
    """Call `compare`, and return its results as a table with one row for each metric."""
    comparison = compare(recipe, run, root=root)
    rows = [
        {
            **{key: one[key] for key in ("corpus", "split", "records")},
            "metric": metric,
            "before": round(one["metrics"][metric], 4),
            "after": round(other["metrics"][metric], 4),
        }
        for one, other in zip(comparison["before"], comparison["after"], strict=True)
        for metric in one["metrics"]
    ]
    return pa.Table.from_pylist(rows)
