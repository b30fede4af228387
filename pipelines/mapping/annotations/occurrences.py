"""Finds the places in a text where the words of a mention occur."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Scripts written without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer and those of East Asia.
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u2e80-\U0010ffff]")


def anywhere(text: str, words: str) -> Iterator[int]:
    """Find the words in the text, also inside longer words."""
    at = text.find(words)
    while at >= 0:
        yield at
        at = text.find(words, at + 1)


def occurrences(text: str, words: str) -> Iterator[int]:
    """Find the words in the text, except inside longer words.

    A word is a run of letters and digits with their marks: H2O does not contain 2. In scripts without spaces, a
    change between letters and digits also ends a word: WWD6月2日 contains 6月2日.
    """
    unspaced = _UNSPACED.search(words) is not None
    for at in anywhere(text, words):
        end = at + len(words)
        if not (
            _joined(text[at - 1 : at], words[0], unspaced) or _joined(words[-1], text[end : end + 1], unspaced)
        ):
            yield at


def _joined(before: str, after: str, unspaced: bool) -> bool:
    """Tell whether two adjacent characters belong to one word."""
    if not (_is_part(before) and _is_part(after)) or _UNSPACED.search(before + after):
        return False
    return not unspaced or before.isdigit() == after.isdigit()


def _is_part(letter: str) -> bool:
    """Tell whether a character is part of a word: a letter, a digit, or a mark (an accent or a vowel sign)."""
    return letter.isalnum() or (letter != "" and unicodedata.category(letter).startswith("M"))
