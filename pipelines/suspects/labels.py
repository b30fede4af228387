"""Find labels that out-of-fold predictions contradict, by confident learning (Northcutt et al. 2021, cleanlab).

Shapes: N records, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from pipelines.suspects.evidence import Suspect
from ubert.schema.errors import UserError
from ubert.schema.record import Record

Scores = Mapping[str, float]  # by category
Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_MIN_PROBABILITY = 1e-12  # lower bound of probabilities, so that odds are not 0


def check_installed() -> None:
    """Check that cleanlab is installed.

    Raises:
        UserError: it is not installed.
    """
    if not find_spec("cleanlab"):
        raise UserError("suspects among labels need the package cleanlab; run pip install 'ubert[suspects]'")


def suspicious_labels(records: Sequence[Record], scores: Mapping[str, Scores]) -> Iterator[Suspect]:
    """Yield the labels that a model contradicts.

    Args:
        scores: independent probabilities of the categories, by record id.
    """
    records = [
        record
        for record in records
        if scores.get(record.record_id) and (record.labels or record.task == "multilabel")
    ]
    if not records:
        return
    if records[0].task == "multilabel":
        yield from _any_number(records, scores)
        return
    classes = _classes(records)
    probs_NK = np.zeros((len(records), max(map(max, classes)) + 1))
    for row_K, record, own in zip(probs_NK, records, classes, strict=True):
        row_K[own] = softmax([scores[record.record_id].get(category.name, 0.0) for category in record.categories])
    label_N = np.array([own[record.labels[0]] for own, record in zip(classes, records, strict=True)])
    flagged_N, quality_N = _judged(label_N, probs_NK)
    for record, own, row_K, label, quality, flagged in zip(
        records, classes, probs_NK, label_N, quality_N, flagged_N, strict=True
    ):
        best = max(own, key=row_K.__getitem__)
        if best != label:
            said, predicted = (record.categories[own.index(one)].name for one in (label, best))
            yield Suspect(record, "wrong label", said, predicted, row_K[best], 1 - quality, bool(flagged))


def _classes(records: Sequence[Record]) -> list[list[int]]:
    """Return the class of each category of each record. If all records share their categories, a class is a name.
    Otherwise, as in multiple choice, it is a position."""
    names = {category.name: i for i, category in enumerate(records[0].categories)}
    if all({category.name for category in record.categories} == names.keys() for record in records):
        return [[names[category.name] for category in record.categories] for record in records]
    return [list(range(len(record.categories))) for record in records]


def softmax(probabilities: Sequence[float]) -> Floats:
    """Convert independent probabilities to a distribution over categories that exclude each other."""
    each = np.clip(np.array(probabilities, np.float64), _MIN_PROBABILITY, 1 - 1e-7)
    odds = each / (1 - each)
    return np.asarray(odds / odds.sum())


def _judged(label_N: Ids, probs_NK: Floats) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Return which labels are issues, and the quality of each, 0 to 1."""
    if len(np.unique(label_N)) < 2:  # cleanlab needs two classes
        return np.zeros(len(label_N), np.bool_), probs_NK[np.arange(len(label_N)), label_N]
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cleanlab warns of classes with few records
        flagged_N = find_label_issues(label_N, probs_NK, n_jobs=1)
        return flagged_N, get_label_quality_scores(label_N, probs_NK, method="normalized_margin")


def _any_number(records: Sequence[Record], scores: Mapping[str, Scores]) -> Iterator[Suspect]:
    """Yield suspects of multilabel records. Each label is a binary classification of its own."""
    for name in dict.fromkeys(category.name for record in records for category in record.categories):
        own = [record for record in records if name in scores[record.record_id]]
        holds_N = np.array(
            [any(one.categories[label].name == name for label in one.labels) for one in own], np.int64
        )
        prob_N = np.array([scores[record.record_id][name] for record in own])
        flagged_N, quality_N = _judged(holds_N, np.stack([1 - prob_N, prob_N], 1))
        for record, holds, prob, flagged, quality in zip(own, holds_N, prob_N, flagged_N, quality_N, strict=True):
            if holds and prob < 0.5:
                yield Suspect(record, "spurious label", name, None, 1 - prob, 1 - quality, bool(flagged))
            elif not holds and prob > 0.5:
                yield Suspect(record, "missed label", None, name, prob, 1 - quality, bool(flagged))
