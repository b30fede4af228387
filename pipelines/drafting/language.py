"""Guesses the language of texts from their script, and for Latin script from the most frequent words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_SCRIPTS = {
    "ja": "\u3040-\u30ff", "ko": "\uac00-\ud7af", "zh": "\u4e00-\u9fff", "ru": "\u0400-\u04ff",
    "ar": "\u0600-\u06ff",
    "he": "\u0590-\u05ff", "el": "\u0370-\u03ff", "hi": "\u0900-\u097f", "th": "\u0e00-\u0e7f",
}  # fmt: skip
_WORDS = {
    "en": "the of and to is in that for it was with on this you not are",
    "de": "der die und das ist nicht ein zu mit den auf ich für von sich",
    "fr": "le la les et des est une dans que pour pas sur du qui je",
    "es": "el la los y de que en un una por con para no se del",
    "it": "il la di che e un una per non con sono del gli è mi",
    "nl": "de het een en van ik niet dat te op voor met zijn er om",
    "da": "og i at det er en til på jeg ikke med for af den et",
    "pt": "o a os de que e não um uma para com em do da se",
    "tr": "bir ve bu için da de ne çok mı ile var gibi en kadar bana",
    "id": "yang dan di itu dengan untuk tidak ini dari saya ke ada pada akan apa",
    "pl": "w i na nie się to jest z że do jak co po ale o",
}


def guess_language(texts: Iterable[str]) -> tuple[str, str]:
    """Return a BCP-47 code, and what it was inferred from."""
    whole = " ".join(texts)[:200_000]
    letters = len(re.findall(r"[^\W\d_]", whole)) or 1
    shares = {code: len(re.findall(f"[{range_}]", whole)) / letters for code, range_ in _SCRIPTS.items()}
    if shares["ja"] > 0.1:
        return "ja", "most letters are kana and kanji"
    best = max(shares, key=shares.__getitem__)
    if shares[best] > 0.3:
        return best, "from its script"
    words = Counter(re.findall(r"[^\W\d_]+", whole.lower()))
    counts = {code: sum(words[word] for word in listed.split()) for code, listed in _WORDS.items()}
    best = max(counts, key=counts.__getitem__)
    if not counts[best]:
        return "en", "no common word of a known language was found"
    return best, "from its most common words"
