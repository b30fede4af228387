"""Evaluate a checkpoint on a split of a corpus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import tee
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import ubert
from pipelines.progress import progress
from pipelines.store.storage import StorePath, explained, intact, parquet
from pipelines.store.store import Store
from ubert.evaluation import metric
from ubert.evaluation.counts import Counts
from ubert.inference.candidates import check_overlap
from ubert.inference.generation.beam import Search
from ubert.inference.masked_text import predict_texts
from ubert.inference.predictor import Predictor
from ubert.objectives import Overlaps, objective
from ubert.schema.arrow import batch_to_records
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.record import RECORD_SCHEMA, Record, Split
from ubert.schema.specs.recipe import Precision

ROWS = 1024  # rows of one record batch that is read


class Evaluation(TypedDict):
    """Metrics of one checkpoint on one split, by the names of `ubert.evaluation`."""

    corpus: str
    split: str
    task: str
    records: int
    seconds: float  # without loading the model
    metrics: dict[str, float]


def evaluate(
    checkpoint: Path,
    *,
    corpus: str,
    split: Split = "test",
    limit: int | None = None,
    threshold: float | None = None,
    overlap: Overlaps = "highest",
    search: Search | None = None,
    precision: Precision = "auto",
    verify: bool = True,
    root: StorePath,
) -> Evaluation:
    """Predict a split's records from their texts and candidate categories, and compare with the annotations.

    Args:
        checkpoint: a checkpoint's directory, or a run's (its latest checkpoint).
        limit: number of records, the first by sampling key, so that the sample stays the same.
        threshold: a probability; default: the one fitted for the task, else 0.5.
        overlap: policy for overlapping mentions; see `ubert.inference.predictor.Predictor.predict`.
        search: settings of generation; see `ubert.inference.predictor.Predictor.generate_records`.
        precision: precision of matrix products; see `ubert.load`.
        root: the store.

    Raises:
        UserError: there is no such checkpoint, corpus or split, the task can't be predicted or measured yet, a
            policy names a category that the split doesn't have, or `search` is given for a task that doesn't
            generate text.
    """
    directory, manifest = Store(root).current("corpora", corpus)
    records_of(manifest, split)  # fails before a model is loaded
    check_policies(overlap, [(directory, manifest)], split)
    if search and not objective(manifest.task).generates:
        raise UserError(
            f"beams and longest apply only to generated text, and corpus {corpus} has task {manifest.task}; "
            "leave them out"
        )
    metric(manifest.task)
    predictor = ubert.load(checkpoint, precision=precision, verify=verify)
    return measure(
        predictor,
        corpus=corpus,
        split=split,
        limit=limit,
        threshold=threshold,
        overlap=overlap,
        search=search,
        root=root,
    )


def measure(
    predictor: Predictor,
    *,
    corpus: str,
    split: Split,
    limit: int | None,
    threshold: float | None = None,
    overlap: Overlaps = "highest",
    search: Search | None = None,
    root: StorePath,
) -> Evaluation:
    """Evaluate a model that is already loaded. The arguments are those of `evaluate`."""
    directory, manifest = Store(root).current("corpora", corpus)
    total = records_of(manifest, split, limit)
    task = objective(manifest.task)
    metrics = metric(manifest.task)
    records, inputs = tee(read_records(directory, manifest, split, limit))
    counts: Counts = Counter()
    began = time.perf_counter()
    if task.generates:
        predicted = predictor.generate_records(inputs, search=search)
    elif task.blocks:
        predicted = predict_texts(predictor, inputs)
    else:
        predicted = predictor.predict_records(inputs, threshold=threshold, overlap=overlap)
    for record, prediction in progress(zip(records, predicted, strict=True), total, f"{corpus}/{split}"):
        counts.update(metrics.count(record, prediction))
    return Evaluation(
        corpus=corpus,
        split=split,
        task=manifest.task,
        records=total,
        seconds=round(time.perf_counter() - began, 3),
        metrics=metrics.summarise(counts),
    )


def check_policies(overlap: Overlaps, corpora: Sequence[tuple[StorePath, CorpusManifest]], split: Split) -> None:
    """Check that policies for overlapping mentions name categories that corpora of one task have in a split.

    Raises:
        UserError: a policy is unknown, or names another category.
    """
    if isinstance(overlap, Mapping):
        records = (
            one for directory, manifest in corpora for one in read_records(directory, manifest, split, None)
        )
        categories = {category.name: category for record in records for category in record.categories}
        check_overlap(corpora[0][1].task, overlap, list(categories.values()))


def records_of(manifest: CorpusManifest, split: Split, limit: int | None = None) -> int:
    """Return the number of records of a split, or `limit` if it has more.

    Raises:
        UserError: it has none.
    """
    kept = {counts.split: counts.kept for counts in manifest.splits}
    if not kept.get(split):
        there = ", ".join(f"{name} ({n:,})" for name, n in kept.items() if n) or "none"
        raise UserError(f"corpus {manifest.name} has no records of split {split!r}; its splits: {there}")
    return kept[split] if limit is None else min(kept[split], limit)


def read_records(
    directory: StorePath, manifest: CorpusManifest, split: Split, limit: int | None
) -> Iterator[Record]:
    """Yield the records of a split, or the first `limit` of them by sampling key, in the order of the files."""
    corpus = parquet([directory / part for part in manifest.parts], RECORD_SCHEMA)
    chosen = ds.field("split") == split
    with explained(directory), intact():
        if limit is not None:
            keys = corpus.to_table(columns=["key"], filter=chosen)["key"].to_numpy()
            if limit < len(keys):
                chosen &= ds.field("key") <= pa.scalar(np.partition(keys, limit - 1)[limit - 1], pa.uint64())
        for batch in corpus.to_batches(filter=chosen, batch_size=ROWS):
            yield from batch_to_records(batch)
