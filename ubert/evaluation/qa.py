"""Metrics of extractive question answering, as defined by SQuAD (Rajpurkar et al. 2016, section 6.1; 2018 for
questions without an answer). Answers in Chinese and Japanese, which have no spaces between words, are compared by
characters, as by CMRC (Cui et al. 2019)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from ubert.evaluation.counts import Counts, mean
from ubert.objectives import Prediction, SpanPrediction
from ubert.schema.checks import covered
from ubert.schema.record import Record

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WITHOUT_SPACES = {"zh", "ja"}
_CHARACTERS = re.compile(r"[a-z0-9]+|\S")


def normal(answer: str, language: str = "en") -> str:
    """Normalise an answer: lower case, without ASCII punctuation, English articles and repeated white space. In
    Chinese and Japanese, without any punctuation, and with a space between characters. Latin words and numbers
    stay whole."""
    if language.split("-")[0] in _WITHOUT_SPACES:
        letters = (one for one in answer.lower() if not unicodedata.category(one).startswith("P"))
        return " ".join(_CHARACTERS.findall("".join(letters)))
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count questions (categories). The best predicted answer is compared with the nearest gold answer.

    "No answer" is the empty answer, and matches only itself.
    """
    counts: Counts = Counter()
    language = record.language
    for index, question in enumerate(record.categories):
        found = [p for p in predictions if isinstance(p, SpanPrediction) and p.category == question.name]
        given = normal(max(found, key=lambda span: span.score).text, language) if found else ""
        answers = [normal(covered(record, span), language) for span in record.spans if span.category == index]
        gold = [answer for answer in answers if answer] or [""]  # as the official script does
        counts["question", "all"] += 1
        counts["question", "exact"] += given in gold
        counts["f1", max(overlap(given, answer) for answer in gold)] += 1
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """exact_match: the share of questions whose normalised answer is a gold one. qa_f1: the mean over
    questions of the F1 between the bags of normalised words of the answer and of the nearest gold answer."""
    return {
        "exact_match": counts["question", "exact"] / max(1, counts["question", "all"]),
        "qa_f1": mean(counts, "f1"),
    }


def overlap(given: str, gold: str) -> float:
    """Return the F1 of two bags of words. If either is empty, it is 1 if both are, otherwise 0."""
    left, right = given.split(), gold.split()
    if not left or not right:
        return float(left == right)
    return 2 * (Counter(left) & Counter(right)).total() / (len(left) + len(right))
