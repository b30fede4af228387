"""Evidence against an annotation: the annotation, the model's prediction, and its confidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from pipelines.audit.evidence import SUSPECTS
from ubert.schema.record import Record


class Suspect(NamedTuple):
    """One annotation of a record that the model contradicts.

    `said` is the corpus's annotation and `predicted` the model's, each None if there is none. `confidence` is the
    model's confidence in its prediction. `score` is how likely the corpus is wrong, by which suspects are ranked.
    `flagged` suspects are dropped by mixtures with `suspects: drop`.
    """

    record: Record
    kind: str
    said: str | None
    predicted: str | None
    confidence: float
    score: float
    flagged: bool


def ranked(suspects: Iterable[Suspect], source: str) -> pa.Table:
    """Return rows of `SUSPECTS`, sorted by the highest score of each record, the worst record first."""
    by_record: dict[str, list[Suspect]] = {}
    for one in suspects:
        by_record.setdefault(one.record.record_id, []).append(one)
    order = sorted(by_record.items(), key=lambda item: (-max(one.score for one in item[1]), item[0]))
    rows = [
        {
            "record_id": record_id,
            "corpus": one.record.corpus,
            "split": one.record.split,
            "rank": rank,
            **{name: value for name, value in one._asdict().items() if name != "record"},
            "source": source,
        }
        for rank, (record_id, of_record) in enumerate(order, 1)
        for one in sorted(of_record, key=lambda one: -one.score)
    ]
    return pa.Table.from_pylist(rows, SUSPECTS)
