"""Metrics of written texts: BLEU-4 (Papineni et al. 2002) by sacrebleu, ROUGE-L (Lin 2004) by rouge-score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from ubert.evaluation.counts import Counts, mean
from ubert.objectives import Prediction, WrittenPrediction
from ubert.schema.record import Record

_ORDERS = range(1, 5)  # of n-grams
_WORDS = {"zh": "zh", "ja": "char"}  # to sacrebleu; others as mteval-v13a


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Unit: a record, by its target and the first of the predicted texts; none is the empty text.

    BLEU of a corpus is made of sums (n-grams, those of them that are the target's too, and lengths). ROUGE-L is
    the mean of the records' F1, which are kept as a count of each value.
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
    """bleu4: of the corpus, 0 to 1, without smoothing; words as mteval-v13a has them, Chinese and Japanese by
    characters, in lower case, as most encoders write. rouge_l: as rouge-score has it for English (lower case,
    letters and digits), else over the words of BLEU."""
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
    """The words of BLEU, in lower case."""

    def __init__(self, language: str) -> None:
        self.words = _bleu(language).tokenizer

    def tokenize(self, text: str) -> list[str]:
        return str(self.words(text.lower())).split()
