"""Predict the records of one fold of a corpus with a model that was trained on the other folds.

Records of the same text are in the same fold, so that no model predicts a text that it was trained on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.audit.evidence import LABEL_TASKS
from pipelines.models.evaluate import read_records
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, atomic
from pipelines.training.short_run import shards_of, train, use_threads_of_task
from ubert.inference.predictor import Predictor, query_of
from ubert.objectives import DiscontinuousPrediction, LabelPrediction, Prediction, SpanPrediction
from ubert.schema.manifest import fingerprint
from ubert.schema.record import Record, content_hash
from ubert.schema.specs.recipe import Recipe

MIN_PROBABILITY = 0.01  # least probability of a mention that is kept; labels are always kept
LEAST = 1e-300  # below the probability of any label: a label that is surely wrong needs a score, too
HOLDS = 0.5
PREDICTIONS = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("category", pa.string(), nullable=False),
        pa.field("start", pa.int32()),  # null for a label
        pa.field("end", pa.int32()),
        pa.field("score", pa.float32(), nullable=False),  # an independent probability, even if one label is right
        pa.field("holds", pa.bool_(), nullable=False),
    ]
)


class Fold(NamedTuple):
    """A training on all records except those of fold `number`. `settings` is the recipe as JSON, and `weights` the
    hash of the initial weights."""

    corpus: str
    version: str
    settings: dict[str, Any]
    weights: str
    number: int
    folds: int

    @property
    def key(self) -> str:
        """Return the fingerprint by which the result is found again."""
        return fingerprint(*self)


def place_of(store: Store, fold: Fold) -> StorePath:
    return store.root / "folds" / f"{fold.key}.parquet"


def fold_of(record: Record, folds: int) -> int:
    """Return the fold of a record, by a hash of its text and pair."""
    return int.from_bytes(content_hash(record.text, record.pair)[:8], "little") % folds


def run_fold(fold: Fold, root: StorePath) -> None:
    """Train and predict, unless the store has the result already. Write the result to the store.

    Raises:
        UserError: the corpus is missing, or training fails.
    """
    use_threads_of_task()
    store = Store(root)
    if place_of(store, fold).exists():
        return
    records = list(read_records(*store.current("corpora", fold.corpus), "train", None))
    held_out = [record for record in records if fold_of(record, fold.folds) == fold.number]
    others = [record for record in records if fold_of(record, fold.folds) != fold.number]
    rows: list[dict[str, Any]] = []
    if held_out and others:
        with tempfile.TemporaryDirectory(prefix="ubert-fold-") as folder:
            rows = list(prediction_rows(trained(Recipe(**fold.settings), others, Path(folder)), held_out))
    with atomic(place_of(store, fold)) as path:
        pq.write_table(pa.Table.from_pylist(rows, PREDICTIONS), path, compression="zstd")


def trained(recipe: Recipe, records: list[Record], folder: Path) -> Predictor:
    """Train a model on records, with the shards and the run in the folder."""
    import ubert

    shards = shards_of(records, recipe.encoder, folder / "shards", recipe.max_tokens)
    return ubert.load(train(recipe, shards, folder))


def prediction_rows(predictor: Predictor, records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield rows of `PREDICTIONS`: each label with its score, each mention or answer from `MIN_PROBABILITY` on."""
    labels = records[0].task in LABEL_TASKS
    queries = [query_of(record) for record in records]
    if labels:  # decoding as multilabel gives the score of each label
        queries = [replace(query, task="multilabel") for query in queries]
    thresholds = [LEAST] if labels else [MIN_PROBABILITY, HOLDS]
    answers = predictor.answer(queries, lambda task: thresholds, "nested")
    for record, (every, *certain) in zip(records, answers, strict=True):
        holding = {one for found in certain for prediction in found for one in _parts(prediction)}
        for prediction in every:
            for one in _parts(prediction):
                yield {
                    "record_id": record.record_id,
                    "category": one.category,
                    "start": one.start if isinstance(one, SpanPrediction) else None,
                    "end": one.end if isinstance(one, SpanPrediction) else None,
                    "score": one.score,
                    "holds": one in holding if certain else one.score > HOLDS,
                }


def _parts(prediction: Prediction) -> Sequence[LabelPrediction | SpanPrediction]:
    """Return a prediction, or the fragments of a discontinuous mention."""
    if isinstance(prediction, DiscontinuousPrediction):
        return prediction.fragments
    assert isinstance(prediction, LabelPrediction | SpanPrediction)
    return (prediction,)
