"""One fold of a corpus: a model that was trained on the others, and what it says of its records.

Records of one text are in one fold, so that no model has seen a text that it is asked about.
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
from pipelines.store.storage import Place
from pipelines.store.store import Store, atomic
from pipelines.training.short_run import shards_of, train, use_threads_of_task
from ubert.inference.predictor import Predictor, query_of
from ubert.objectives import DiscontinuousPrediction, LabelPrediction, Prediction, SpanPrediction
from ubert.schema.manifest import fingerprint
from ubert.schema.recipe import Recipe
from ubert.schema.record import Record, content_hash

LEAST = 0.01  # probability from which a mention is kept; that of labels is always
HOLDS = 0.5
SAID = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("category", pa.string(), nullable=False),
        pa.field("start", pa.int32()),  # none of a label
        pa.field("end", pa.int32()),
        pa.field("score", pa.float32(), nullable=False),  # a probability of its own, even where one label is right
        pa.field("holds", pa.bool_(), nullable=False),
    ]
)


class Fold(NamedTuple):
    """What is trained, on which records: all but those of fold `number`. `settings`: the recipe, as JSON has it;
    `weights`: the hash of the weights that it begins with."""

    corpus: str
    version: str
    settings: dict[str, Any]
    weights: str
    number: int
    folds: int

    @property
    def key(self) -> str:
        """By which its result is found again."""
        return fingerprint(*self)


def place_of(store: Store, fold: Fold) -> Place:
    """The file of a fold's result."""
    return store.root / "folds" / f"{fold.key}.parquet"


def fold_of(record: Record, folds: int) -> int:
    """The fold of a record."""
    return int.from_bytes(content_hash(record.text, record.pair)[:8], "little") % folds


def run_fold(fold: Fold, root: Place) -> None:
    """Train and predict, unless that was done before; the result is in the store when this returns.

    Raises:
        UserError: the corpus is missing, or training fails.
    """
    use_threads_of_task()
    store = Store(root)
    if place_of(store, fold).exists():
        return
    records = list(read_records(*store.current("corpora", fold.corpus), "train", None))
    asked = [record for record in records if fold_of(record, fold.folds) == fold.number]
    others = [record for record in records if fold_of(record, fold.folds) != fold.number]
    rows: list[dict[str, Any]] = []
    if asked and others:
        with tempfile.TemporaryDirectory(prefix="ubert-fold-") as folder:
            rows = list(said(trained(Recipe(**fold.settings), others, Path(folder)), asked))
    with atomic(place_of(store, fold)) as path:
        pq.write_table(pa.Table.from_pylist(rows, SAID), path, compression="zstd")


def trained(recipe: Recipe, records: list[Record], folder: Path) -> Predictor:
    """A model that was trained on records; shards and run lie in the folder."""
    import ubert

    shards = shards_of(records, recipe.encoder, folder / "shards", recipe.max_tokens)
    return ubert.load(train(recipe, shards, folder))


def said(predictor: Predictor, records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Rows of `SAID`: each candidate label with its score; each mention or answer, however unsure."""
    labels = records[0].task in LABEL_TASKS
    queries = [query_of(record) for record in records]
    if labels:  # decoded as if any number of labels were right, to have the score of each
        queries = [replace(query, task="multilabel") for query in queries]
    thresholds = [1e-9] if labels else [LEAST, HOLDS]
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
    """A prediction, or the fragments of a discontinuous mention."""
    if isinstance(prediction, DiscontinuousPrediction):
        return prediction.fragments
    assert isinstance(prediction, LabelPrediction | SpanPrediction)
    return (prediction,)
