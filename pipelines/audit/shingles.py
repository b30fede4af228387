"""Represent texts as sets of shingles, and compute the similarity of two of them.

A shingle is two tokens in sequence, over text and pair, with a mark at both ends. If one of twenty words differs,
the similarity is about 0.8, in any language. Tokens come from the normal form, which also decides whether texts
are equal.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import NamedTuple

from ubert.schema.record import normal_form

# In scripts without spaces, each character is a token: Thai to Khmer, kana, Han with its extensions.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_UNSPACED += "\U00020000-\U0003ffff"
# Accents and vowel signs, which are parts of words, but not in `\w`. Rare ones above 0xffff would slow it down.
_MARKS = "".join(
    mark
    for mark in map(chr, range(0x300, 0x10000))
    if unicodedata.category(mark).startswith("M") and not re.match(f"[{_UNSPACED}]", mark)
)
_WORD = f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+(?:[{_MARKS}]+[^\\W{_UNSPACED}]*)*"
_WORDS = re.compile(_WORD)
_TOKENS = re.compile(f"{_WORD}|[^\\w\\s]+")
BETWEEN = "\x1f"  # separates text and pair


def words(text: str, pair: str | None) -> list[str]:
    """Return the words of the normal form, or characters in scripts without spaces. `BETWEEN` precedes a pair."""
    return _found(_WORDS, text, pair)


class Word(NamedTuple):
    """Characters [start, end) of a text, and their normal form."""

    start: int
    end: int
    normal: str


def placed_words(text: str) -> list[Word]:
    """Return the words of a text with their offsets."""
    return [Word(*found.span(), normal_form(found.group())) for found in _WORDS.finditer(text)]


def shingles(text: str, pair: str | None) -> set[str]:
    """Return the shingles of a text and its pair, never an empty set. Punctuation counts as tokens."""
    tokens = ["", *_found(_TOKENS, text, pair), ""]
    return set(map(" ".join, pairwise(tokens)))


def jaccard(a: set[str], b: set[str]) -> float:
    """Return the Jaccard similarity of two sets, 0 to 1."""
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


def _found(pattern: re.Pattern[str], text: str, pair: str | None) -> list[str]:
    tokens = pattern.findall(normal_form(text))
    return tokens if pair is None else [*tokens, BETWEEN, *pattern.findall(normal_form(pair))]
