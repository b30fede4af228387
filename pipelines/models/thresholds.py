"""Fit the threshold of a task on a split, and store it in the checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import tee
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import ubert
from pipelines.models.evaluate import check_policies, read_records, records_of
from pipelines.progress import progress
from pipelines.store.storage import ObjectPath, StorePath, on_disk, upload
from pipelines.store.store import Store, atomic
from ubert.evaluation import metric
from ubert.evaluation.counts import Counts
from ubert.inference.predictor import query_of
from ubert.inference.thresholds import FILE, GRID, MEASURES, Fitted, read_thresholds, to_json
from ubert.objectives import Overlaps
from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Precision


class Fit(NamedTuple):
    """The threshold that was chosen for a task, and the mean metrics of its corpora at each threshold tried."""

    task: str
    chosen: Fitted
    tried: dict[float, dict[str, float]]


def fit(
    checkpoint: Path,
    *,
    corpora: Sequence[str],
    split: Split = "validation",
    limit: int | None = None,
    overlap: Overlaps = "highest",
    precision: Precision = "auto",
    verify: bool = True,
    root: StorePath,
) -> Fit:
    """Choose the threshold of `GRID` with the best metrics on a split, and write it to the checkpoint.

    Each corpus has the same weight, so that one with many mentions doesn't decide alone. If several
    thresholds are equally good, the one nearest to 0.5 wins. The texts are scored once, and decoded at each
    threshold. The result replaces the task's entry in the checkpoint's `thresholds.json`.

    Args:
        checkpoint: a checkpoint's directory, or a run's (its latest checkpoint).
        corpora: one or several corpora of one task.
        limit: number of records of each corpus, the first by sampling key.
        overlap, precision, root: see `pipelines.models.evaluate.evaluate`.

    Raises:
        UserError: there is no such checkpoint, corpus or split, the corpora have several tasks or one without a
            threshold, or a policy names a category that they don't have.
    """
    directory = ubert.checkpoint(checkpoint)
    sources = [Store(root).current("corpora", name) for name in corpora]
    task = _task([manifest.task for _, manifest in sources])
    check_policies(overlap, sources, split)
    measure, predictor = metric(task), ubert.load(directory, precision=precision, verify=verify)
    metrics: list[list[dict[str, float]]] = []
    records = 0
    for folder, manifest in sources:
        counts: list[Counts] = [Counter() for _ in GRID]
        total = records_of(manifest, split, limit)
        gold, inputs = tee(read_records(folder, manifest, split, limit))
        predicted = predictor.answer(map(query_of, inputs), lambda _: GRID, overlap)
        for record, found in progress(zip(gold, predicted, strict=True), total, f"{manifest.name}/{split}"):
            for count, predictions in zip(counts, found, strict=True):
                count.update(measure.count(record, predictions))
        metrics.append([measure.summarise(count) for count in counts])
        records += total
    tried = {threshold: _mean(of_corpora) for threshold, *of_corpora in zip(GRID, *metrics, strict=True)}
    value = {p: sum(found[name] for name in MEASURES[task]) / len(MEASURES[task]) for p, found in tried.items()}
    best = max(GRID, key=lambda p: (value[p], -abs(p - 0.5)))
    chosen = Fitted(threshold=best, value=value[best], corpora=list(corpora), split=split, records=records)
    with atomic(directory / FILE) as path:
        path.write_text(to_json({**read_thresholds(directory), task: chosen}), encoding="utf-8")
    if isinstance(root, ObjectPath) and directory.is_relative_to(on_disk(root)):
        upload(directory / FILE, root / (directory / FILE).relative_to(on_disk(root)).as_posix())
    return Fit(task, chosen, tried)


def measurable(mixture: Mixture, split: Split, root: StorePath) -> dict[str, list[str]]:
    """Return the corpora of a mixture on which thresholds can be fitted, by task. They have records of the split,
    and the mixture doesn't draw from it.

    Raises:
        UserError: a corpus of the mixture is not ingested, or no corpus fits.
    """
    drawn = {(leaf.corpus, leaf.split) for leaf in mixture.leaves}
    found: dict[str, list[str]] = {}
    for corpus in dict.fromkeys(leaf.corpus for leaf in mixture.leaves):
        manifest = Store(root).current("corpora", corpus)[1]
        there = any(counts.split == split and counts.kept for counts in manifest.splits)
        if manifest.task in MEASURES and there and (corpus, split) not in drawn:
            found.setdefault(manifest.task, []).append(corpus)
    if not found:
        raise UserError(
            f"mixture {mixture.name}: no corpus with a threshold to fit has a {split} split that the mixture "
            "doesn't draw from; give another --split"
        )
    return found


def _mean(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """Average each metric over the corpora, which have one task and so the same metrics."""
    return {name: fmean(each[name] for each in metrics) for name in metrics[0]}


def _task(tasks: Sequence[str]) -> str:
    """Return the single task of the corpora."""
    distinct = sorted(set(tasks))
    if len(distinct) != 1:
        raise UserError(
            f"the corpora have several tasks ({', '.join(distinct)}); name corpora of one task at a time"
        )
    if distinct[0] not in MEASURES:
        raise UserError(f"task {distinct[0]} has no threshold to fit; expected one of {', '.join(MEASURES)}")
    return distinct[0]
