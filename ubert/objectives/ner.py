"""Mentions of entity types: one table per type, one cell per mention (UBERT, section 3.1).

The fragments of a discontinuous mention are cells of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ubert.model.batch import Ids, Region
from ubert.model.tokenizer import Encoding
from ubert.objectives import Cells, Overlap, Scored, SpanPrediction, Targets
from ubert.objectives._common import best_first, span_targets, spans
from ubert.schema.record import Record

REGION = Region.TRIANGLE


def targets(record: Record, encoding: Encoding) -> Targets:
    """The mentions' cells."""
    return span_targets(record, encoding)


def decode(
    text: str,
    categories: Sequence[str],
    encoding: Encoding,
    scored: Scored,
    *,
    threshold: float = 0.0,
    overlap: Overlap = "flat",
) -> list[SpanPrediction]:
    """Mentions whose cell is above the threshold, in the order of the text.

    `flat`: no two share a token, and the better score wins. `nested`: all of them.
    """
    order = best_first(scored.cells)
    order = order[scored.cells.score[order] > threshold]
    chosen = order if overlap == "nested" else _without_overlap(scored.cells, order, len(encoding.ids))
    found = spans(text, categories, encoding, scored.cells, chosen)
    return sorted(found, key=lambda span: (span.start, -span.end))


def _without_overlap(cells: Cells, order: Ids, tokens: int) -> Iterator[int]:
    taken = np.zeros(tokens, np.bool_)
    for i in order.tolist():
        extent = slice(cells.start[i], cells.end[i] + 1)
        if not taken[extent].any():
            taken[extent] = True
            yield i
