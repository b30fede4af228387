"""On real datasets: perfect scores made from targets decode to the annotations; every exception has its reason."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pipelines.specs import dataset_names
from tests.handmade import ENCODER
from tests.test_real_datasets import SPECS, records_of
from ubert.model.tokenizer import Encoding, Fit, load_tokenizer
from ubert.objectives import Cells, LabelPrediction, Scored, SpanPrediction, objective, objectives
from ubert.schema.record import Record

MOST = 3000  # records of each dataset
TOKENIZER = load_tokenizer(ENCODER)


@pytest.mark.parametrize("name", dataset_names(SPECS))
def test_annotations_come_back_or_have_a_reason(name: str) -> None:
    records = records_of(name)[:MOST]
    if records[0].task not in objectives():
        pytest.skip(f"task {records[0].task} is not trainable yet")
    encodings = TOKENIZER.encode([record.text for record in records])
    outcomes = Counter(
        outcome
        for record, encoding in zip(records, encodings, strict=True)
        for outcome in round_trip(record, encoding)
    )
    assert outcomes["unexplained"] == 0
    exact = outcomes["label"] + outcomes["nothing"] + outcomes["EXACT"]
    assert exact >= 0.97 * outcomes.total()


def round_trip(record: Record, encoding: Encoding) -> list[str]:
    """What became of each annotation of a record."""
    task, names = objective(record.task), [category.name for category in record.categories]
    targets = task.targets(record, encoding)
    anchor = np.full(len(names), -1, np.float32)
    anchor[targets.gold_anchors] = 1
    cells = Cells(*targets.gold_cells.T, np.ones(len(targets.gold_cells), np.float32))
    predictions = task.decode(record.text, names, encoding, Scored(anchor, cells), overlap="nested")
    if not record.spans:
        labels = [p.category for p in predictions if isinstance(p, LabelPrediction)]
        expected = [names[i] for i in sorted(set(record.labels))]
        if labels != expected or len(labels) != len(predictions):
            return ["unexplained"]
        return ["label"] * len(labels) or ["nothing"]
    decoded = {(p.start, p.end, p.category) for p in predictions if isinstance(p, SpanPrediction)}
    fates = [reason for reason, _ in targets.lost]
    for i, fit in zip(targets.spans.tolist(), targets.fits.tolist(), strict=True):
        span = record.spans[i]
        came_back = (span.start, span.end, names[span.category or 0]) in decoded
        fates.append(Fit(fit).name if came_back == (fit == Fit.EXACT) else "unexplained")
    return fates if len(fates) == len(record.spans) and len(decoded) == len(targets.spans) else ["unexplained"]
