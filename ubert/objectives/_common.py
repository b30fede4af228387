"""What the objectives share: labels to anchors, spans to cells, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ubert.model.batch import Ids
from ubert.model.tokenizer import Encoding, align
from ubert.objectives import Cells, LabelPrediction, Lost, Scored, SpanPrediction, Targets
from ubert.schema.record import Record


def label_targets(record: Record) -> Targets:
    """The record's labels as gold anchors."""
    anchors = np.array(sorted(set(record.labels)), np.int32)
    none = np.empty(0, np.int32)
    return Targets(anchors, none.reshape(0, 3), spans=none, fits=none.astype(np.int8))


def span_targets(record: Record, encoding: Encoding) -> Targets:
    """The record's spans as gold cells, in order and each cell once; no anchors."""
    found = align(encoding, [span.start for span in record.spans], [span.end for span in record.spans])
    cells: dict[tuple[int, int, int], int] = {}
    lost: list[Lost] = []
    for i, (span, first, last) in enumerate(
        zip(record.spans, found.first.tolist(), found.last.tolist(), strict=True)
    ):
        if span.side != "text":
            lost.append(Lost("in the pair", i))
        elif span.category is None:
            lost.append(Lost("no category", i))
        elif last < first:
            lost.append(Lost("no token", i))
        elif (span.category, first, last) in cells:
            lost.append(Lost("same tokens as another", i))
        else:
            cells[span.category, first, last] = i
    spans = np.array(list(cells.values()), np.int32)
    return Targets(
        gold_anchors=np.empty(0, np.int32),
        gold_cells=np.array(list(cells), np.int32).reshape(-1, 3),
        spans=spans,
        fits=found.fit[spans],
        lost=lost,
    )


def label(categories: Sequence[str], scored: Scored, category: int) -> LabelPrediction:
    """One category as a prediction."""
    return LabelPrediction(categories[category], _probability(float(scored.anchor[category])))


def spans(
    text: str, categories: Sequence[str], encoding: Encoding, cells: Cells, chosen: Iterable[int]
) -> list[SpanPrediction]:
    """The chosen cells as predictions, in the order given. Cells without a character are left out."""
    found = []
    for i in chosen:
        start, end = int(encoding.starts[cells.start[i]]), int(encoding.ends[cells.end[i]])
        if start < end:
            score = _probability(float(cells.score[i]))
            found.append(SpanPrediction(start, end, categories[cells.category[i]], text[start:end], score))
    return found


def best_first(cells: Cells) -> Ids:
    """Order of the cells: best score first; ties go to the longer, then the earlier one."""
    order = np.lexsort((cells.category, cells.start, cells.start - cells.end, -cells.score))
    return order.astype(np.int32)


def _probability(logit: float) -> float:
    return float(0.5 * (1.0 + np.tanh(0.5 * logit)))
