"""Metrics of generated texts: BLEU-4 (Papineni et al. 2002) by sacrebleu, ROUGE-L (Lin 2004) by rouge-score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from ubert.evaluation.counts import Counts, mean
from ubert.objectives import Prediction, WrittenPrediction
from ubert.schema.record import Record

_ORDERS = range(1, 5)  # lengths of n-grams
_WORDS = {"zh": "zh", "ja": "char"}  # sacrebleu's tokenizers; mteval-v13a for other languages


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count the n-grams of the first predicted text, compared with the record's target. No prediction counts
    as an empty text.

    A corpus's BLEU is computed from sums: n-grams, those that match the target, and lengths. ROUGE-L is the
    mean of the records' F1; each distinct value is kept with its count.
    """
    written = next((p.text for p in predictions if isinstance(p, WrittenPrediction)), "")
    target, language = record.target or "", record.language.split("-")[0]
    bleu = _bleu(language).sentence_score(written, [target])
    counts: Counts = Counter()
    for n, total, right in zip(_ORDERS, bleu.totals, bleu.counts, strict=True):
        counts["ngrams", n] += total
        counts["right", n] += right
    counts["length", "written"] += bleu.sys_len
    counts["length", "target"] += bleu.ref_len
    counts["rouge_l", _rouge(language).score(target, written)["rougeL"].fmeasure] += 1
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """bleu4: corpus BLEU from 0 to 1, without smoothing and in lower case, as most encoders write. Words are
    those of mteval-v13a, or characters for Chinese and Japanese. rouge_l: over the words of rouge-score for
    English (lower case, letters and digits), and over the words of BLEU for other languages."""
    from sacrebleu.metrics.bleu import BLEU

    ngrams, right = ([counts[what, n] for n in _ORDERS] for what in ("ngrams", "right"))
    bleu = BLEU.compute_bleu(right, ngrams, counts["length", "written"], counts["length", "target"])
    return {"bleu4": bleu.score / 100, "rouge_l": mean(counts, "rouge_l")}


@cache
def _bleu(language: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=_WORDS.get(language, "13a"), effective_order=True, lowercase=True)


@cache
def _rouge(language: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], tokenizer=None if language == "en" else _Lower(language))


class _Lower:
    """BLEU's tokenizer after lower-casing."""

    def __init__(self, language: str) -> None:
        self.words = _bleu(language).tokenizer

    def tokenize(self, text: str) -> list[str]:
        return str(self.words(text.lower())).split()
