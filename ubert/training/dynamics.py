"""Training dynamics: each text's loss in each pass, and how confident the model is of the text's labels.

Each worker writes Parquet parts, `dynamics/<first step>-<rank>.parquet`, before each checkpoint. When a run
resumes from a checkpoint, all rows up to that step are on the disk. Parts of later steps are removed, because
those steps are repeated.

Shapes: N texts, T structure tables.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from ubert.encoder.ragged import Longs
from ubert.loader.loader import Step
from ubert.loader.shards import Shards
from ubert.schema.disk import write_whole
from ubert.schema.dynamics import FOLDER, SCHEMA, file_name, first_step
from ubert.schema.errors import UserError
from ubert.structure.batch import Batch, Region

TABLES = 1 << 20  # most tables in memory before a part is written

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Tables(NamedTuple):
    """Structure tables of several texts. `text_T`: the text of the table. `label_T`: whether the table is
    trained only at its anchor. `gold_T`: whether its category holds there."""

    text_T: Longs
    category_T: Longs
    label_T: Flags
    gold_T: Flags
    loss_T: Floats
    score_T: Floats  # score of the anchor


class Labels(NamedTuple):
    """How confident a model is of the labels of texts [N]. `predicted` is the category with the highest score.

    - Exactly one label is right: `confidence` is its softmax probability, and `margin` the difference between its
      score and the best other score.
    - Any number is right (multilabel): each category has a right decision. `confidence` is their mean probability,
      and `margin` the smallest score in favour of one.

    A margin above 0 means a right prediction.
    """

    confidence: Floats
    margin: Floats
    predicted: Longs


class Passes:
    """The texts' results since the last part was written."""

    def __init__(self, run: Path, rank: int, shards: Shards) -> None:
        self.run, self.rank, self.shards = run, rank, shards
        self._clear()

    def _clear(self) -> None:
        self.rows: list[list[int]] = []
        self.times: list[tuple[int, int]] = []  # step and epoch, for each list of rows
        self.tables: list[Tables] = []
        self.count = self.texts = 0

    def add(self, number: int, step: Step, step_tables: Sequence[Tensor]) -> None:
        """Add the loss and the anchor's score of the tables [2, T] of each micro-batch of step `number` (from 1).

        Raises:
            UserError: a part cannot be written.
        """
        for batch, tables in zip(cast(list[Batch], step.batches), step_tables, strict=True):
            loss_T, score_T = tables.double().numpy()
            region_T = batch.region_T.numpy()
            self.tables.append(
                Tables(
                    text_T=batch.example_B[batch.piece_T].numpy() + self.texts,
                    category_T=batch.category_T.numpy(),
                    label_T=region_T == Region.ANCHOR,
                    gold_T=batch.gold_anchor_T.numpy() > 0,
                    loss_T=loss_T,
                    score_T=score_T,
                )
            )
            self.texts += batch.examples
            self.count += len(loss_T)
        self.rows.append(step.rows)
        self.times.append((number, step.epoch))
        if self.count >= TABLES:
            self.write()

    def write(self) -> None:
        """Write all that was added since the last part.

        Raises:
            UserError: it cannot be written, or the disk is full.
        """
        if not self.rows:
            return
        path = self.run / FOLDER / file_name(self.times[0][0], self.rank)
        sink = io.BytesIO()
        pq.write_table(self._part(), sink, compression="zstd")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, sink.getvalue())
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror or error}); free some disk space, then run the "
                "same command again: it continues from the last checkpoint"
            ) from None
        self._clear()

    def _part(self) -> pa.Table:
        row_N = np.fromiter(chain.from_iterable(self.rows), np.int64, self.texts)
        step_N, epoch_N = (
            np.repeat(column, list(map(len, self.rows))) for column in zip(*self.times, strict=True)
        )
        tables = Tables(*map(np.concatenate, zip(*self.tables, strict=True)))
        order = np.argsort(row_N, kind="stable")
        record_id, task = self.shards.ids_and_tasks(row_N[order])
        several_N = np.zeros(len(row_N), np.bool_)
        several_N[order] = task == "multilabel"
        labels = labels_of(tables, several_N)
        labelled = np.bincount(tables.text_T[~tables.label_T], minlength=len(row_N)) == 0
        unknown = ~(labelled & np.isfinite(labels.margin))[order]
        columns: dict[str, Any] = {
            "record_id": record_id,
            "row": row_N[order],
            "epoch": epoch_N[order],
            "step": step_N[order],
            "loss": np.bincount(tables.text_T, tables.loss_T, len(row_N))[order],
            **{name: pa.array(column[order], mask=unknown) for name, column in labels._asdict().items()},
        }
        return pa.table(columns).cast(SCHEMA)


@np.errstate(divide="ignore", invalid="ignore")  # texts without tables divide by 0
def labels_of(tables: Tables, several_N: Flags) -> Labels:
    """Compute how confident the model is of each text's labels. A margin is not finite if all or no
    candidates are right.

    Args:
        several_N: whether any number of labels may be right.
    """
    count = len(several_N)
    text_T, gold_T, score_T = tables.text_T, tables.gold_T, tables.score_T
    best_N, best_other_N, best_gold_N = np.full((3, count), -np.inf)
    for most_N, where in ((best_N, slice(None)), (best_other_N, ~gold_T), (best_gold_N, gold_T)):
        np.maximum.at(most_N, text_T[where], score_T[where])
    share_T = np.exp(score_T - best_N[text_T])
    one_N = np.bincount(text_T, share_T * gold_T, count) / np.bincount(text_T, share_T, count)
    signed_T = np.where(gold_T, score_T, -score_T)
    least_N = np.full(count, np.inf)
    np.minimum.at(least_N, text_T, signed_T)
    mean_N = np.bincount(text_T, 0.5 * (1 + np.tanh(signed_T / 2)), count) / np.bincount(text_T, minlength=count)
    predicted_N = np.zeros(count, np.int64)
    at_best = score_T == best_N[text_T]
    predicted_N[text_T[at_best][::-1]] = tables.category_T[at_best][::-1]  # of equal scores the first wins
    return Labels(
        np.where(several_N, mean_N, one_N), np.where(several_N, least_N, best_gold_N - best_other_N), predicted_N
    )


def remove_after(run: Path, done: int) -> None:
    """Remove the parts of steps after `done`, which are repeated."""
    for path in (run / FOLDER).glob("*.parquet"):
        if first_step(path.name) > done:
            path.unlink(missing_ok=True)  # workers may share the disk
