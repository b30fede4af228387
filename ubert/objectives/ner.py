"""Mentions of entity types: one table per type, one cell per mention (UBERT, section 3.1).

The fragments of a discontinuous mention are cells of their own.
"""

from __future__ import annotations

from ubert.model.tokenizer import Encoding
from ubert.objectives import Objective, Overlaps, Query, Scored, SpanPrediction
from ubert.objectives._common import choose, in_order, span_targets, spans


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction]:
    """Mentions whose cell is above the threshold, in the order of the text."""
    chosen = choose(query, scored.cells, len(encoding.ids), threshold=threshold, overlap=overlap)
    return in_order(spans(query, encoding, scored.cells, chosen))


OBJECTIVE = Objective(kind="entity", targets=span_targets, decode=decode)
