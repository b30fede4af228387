"""Records to gold cells, gold cells to perfect scores, and those back to annotations: what a model that makes no
error would get, and why where that is not everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from ubert.inference.windows import Window, whole, windows
from ubert.model.batch import Region
from ubert.model.tokenizer import Encoding, Fit, Tokenizer
from ubert.objectives import Cells, LabelPrediction, Prediction, Scored, Targets, objective
from ubert.schema.record import Record

WINDOW = 448  # tokens of a window: what is left of 512 beside an instruction and a few categories
CHUNK = 1000  # records that are tokenised together
SURE = 10.0  # logit of a perfect score


def round_trip(record: Record, encoding: Encoding) -> Counter[str]:
    """What becomes of one record's annotations.

    Returns:
        `records`: 1. `exact`: 1 where the decoded annotations are the record's. `annotations`: of the record, each
        different one once. Then those that don't come back, by reason: `widened` or `narrowed` (they come back
        with the boundaries of their tokens), the reason why an objective lost them, `longer than the overlap` (cut
        by every window of a long text), and `unexplained`, which is a defect: annotations that vanish for no
        reason, or appear from nowhere.
    """
    task = objective(record.task)
    names = [category.name for category in record.categories]
    targets = task.targets(record, encoding)
    parts = [
        (window, _perfect(window, targets, len(names), task.REGION))
        for window in windows(len(encoding.ids), WINDOW, WINDOW // 4)
    ]
    scored = whole(parts, task.REGION)
    found = _annotations(task.decode(record.text, names, encoding, scored, overlap="nested"))
    gold = {(names[label], -1, -1) for label in record.labels} | {
        (names[span.category], span.start, span.end)
        for span in record.spans
        if span.category is not None and span.side == "text"
    }
    reasons = _reasons(record, encoding, targets, names)
    counts = Counter(records=1, exact=int(found == gold), annotations=len(gold))
    images = {image for _, image in reasons.values()}
    counts.update(reasons.get(item, ("unexplained", None))[0] for item in gold - found)
    counts.update("unexplained" for item in found - gold if item not in images)
    return counts


Annotation = tuple[str, int, int]  # a category and its characters [start, end); -1 for the text as a whole


def _annotations(predictions: Sequence[Prediction]) -> set[Annotation]:
    return {
        (p.category, -1, -1) if isinstance(p, LabelPrediction) else (p.category, p.start, p.end)
        for p in predictions
    }


def _perfect(window: Window, targets: Targets, categories: int, region: Region) -> Scored:
    """Scores of a window by a model that makes no error: it sees the cells that lie in the window as a whole, and
    where an anchor stands for "no answer", says so where it sees none."""
    cells = targets.gold_cells
    inside = cells[(cells[:, 1] >= window.start) & (cells[:, 2] < window.stop)]
    anchor = np.full(categories, -SURE, np.float32)
    anchor[targets.gold_anchors] = SURE
    if region != Region.ANCHOR and region & Region.ANCHOR:
        anchor[np.setdiff1d(cells[:, 0], inside[:, 0])] = SURE
    category, start, end = inside.T
    score = np.full(len(inside), SURE, np.float32)
    return Scored(anchor, Cells(category, start - window.start, end - window.start, score))


def _reasons(
    record: Record, encoding: Encoding, targets: Targets, names: Sequence[str]
) -> dict[Annotation, tuple[str, Annotation | None]]:
    """Why an annotation may not come back as it was, and as what it comes back."""
    reasons: dict[Annotation, tuple[str, Annotation | None]] = {}
    for lost in targets.lost:
        span = record.spans[lost.span]
        if span.category is not None:
            reasons[names[span.category], span.start, span.end] = (lost.reason, None)
    for i, fit, (category, first, last) in zip(
        targets.spans.tolist(), targets.fits.tolist(), targets.gold_cells.tolist(), strict=True
    ):
        span = record.spans[i]
        image = (names[category], int(encoding.starts[first]), int(encoding.ends[last]))
        if fit != Fit.EXACT:
            reasons[names[category], span.start, span.end] = (Fit(fit).name.lower(), image)
        elif last - first >= WINDOW // 4:
            reasons[names[category], span.start, span.end] = ("longer than the overlap", None)
    return reasons


def total(records: Iterable[Record], tokenizer: Tokenizer) -> Counter[str]:
    """The sum over records."""
    counts: Counter[str] = Counter()
    remaining = iter(records)
    while chunk := list(islice(remaining, CHUNK)):
        encodings = tokenizer.encode([record.text for record in chunk])
        for record, encoding in zip(chunk, encodings, strict=True):
            counts.update(round_trip(record, encoding))
    return counts
