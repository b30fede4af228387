"""Metrics of coreference, as defined by the CoNLL-2012 shared task: the mean F1 of MUC (Vilain et al. 1995),
B-cubed (Bagga and Baldwin 1998) and CEAF with phi_4 (Luo 2005), each over the mentions of all texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ubert.evaluation.annotations import Mention, annotated, predicted
from ubert.evaluation.counts import Counts, values
from ubert.objectives import Prediction
from ubert.schema.record import Record

Clusters = list[frozenset[Mention]]
MEASURES = ("muc", "b_cubed", "ceaf")


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count each text's terms of the measures, as sums of numerators and of denominators.

    Clusters of one mention count as in the corpus: if it has none, none should be predicted.
    """
    gold, found = (
        [frozenset(each.mentions) for each in sorted(annotations) if each.kind == "cluster"]
        for annotations in (annotated(record), predicted(record, predictions))
    )
    counts: Counts = Counter()
    for measure, compute in (("muc", _muc), ("b_cubed", _b_cubed)):
        for side, numbers in (("recall", compute(gold, found)), ("precision", compute(found, gold))):
            for part, number in zip(("of", "all"), numbers, strict=True):
                counts[f"{measure} {side} {part}", number] += 1
    similarity = _ceaf(gold, found)
    for side, clusters in (("recall", gold), ("precision", found)):
        counts[f"ceaf {side} of", similarity] += 1
        counts[f"ceaf {side} all", len(clusters)] += 1
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """conll_f1: the mean of muc_f1, b_cubed_f1 and ceaf_f1."""
    f1 = {f"{measure}_f1": _f1(counts, measure) for measure in MEASURES}
    return {"conll_f1": sum(f1.values()) / len(f1), **f1}


def _f1(counts: Counts, measure: str) -> float:
    rates = []
    for side in ("recall", "precision"):
        part, whole = (
            sum(value * n for value, n in values(counts, f"{measure} {side} {of}")) for of in ("of", "all")
        )
        rates.append(part / whole if whole else 0.0)
    recall, precision = rates
    return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


def _muc(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Return the number of the key's links that the response keeps, and of all its links.

    A cluster of n mentions has n - 1 links. If the response splits it into m parts, it loses m - 1.
    """
    of = _places(response)
    parts = [len({of.get(mention, mention) for mention in cluster}) for cluster in key]
    kept = sum(len(cluster) - n for cluster, n in zip(key, parts, strict=True))
    return float(kept), float(sum(len(cluster) - 1 for cluster in key))


def _b_cubed(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Return the sum, over the key's mentions, of the share of the mention's cluster that the response puts
    with it; and the number of mentions."""
    of = _places(response)
    shares = []
    for cluster in key:
        together = Counter(of[mention] for mention in cluster if mention in of)
        shares += [n * n / len(cluster) for n in together.values()]
    return sum(sorted(shares)), float(sum(map(len, key)))


def _ceaf(key: Clusters, response: Clusters) -> float:
    """Return the sum of phi_4 in the best one-to-one alignment of clusters. phi_4 is twice the number of
    common mentions over the number of mentions of both clusters."""
    from scipy.optimize import linear_sum_assignment  # here because it takes a while to import

    if not key or not response:
        return 0.0
    phi = np.array([[2 * len(k & r) / (len(k) + len(r)) for r in response] for k in key])
    rows, columns = linear_sum_assignment(phi, maximize=True)
    return float(sum(sorted(phi[rows, columns].tolist())))


def _places(clusters: Clusters) -> dict[Mention, int]:
    return {mention: i for i, cluster in enumerate(clusters) for mention in cluster}
