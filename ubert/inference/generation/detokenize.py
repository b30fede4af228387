"""Turn generated tokens into text, with the spaces, capitals and accents that a word-piece vocabulary drops.

Words that are copied from the source keep its characters. Other words keep the vocabulary's spelling, and are
spaced by typographic rules.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.model.tokenizer import CONTINUED, Tokenizer
from ubert.spanbert.masking import Flags

_CLOSING = frozenset(".,;:?!)]}%’…”»")  # no space before
_OPENING = frozenset("([{$£€#¿¡“‘«")  # no space after
_BINDING = frozenset("-/’_–")  # no space on either side, between letters or digits
_IN_NUMBERS = frozenset(".,:")
_ENDS = frozenset(".?!")  # end a sentence
_QUOTES = frozenset("\"'")
_CONTRACTED = frozenset(("s", "t", "d", "m", "re", "ve", "ll", "em"))  # may follow an apostrophe
_ELIDED = 2  # maximum letters before an apostrophe of elision: o'clock, l'avenir, qu'il
_UNSPACED = re.compile("[\u2e80-\u312f\u31a0-\ua4cf\uf900-\ufaff\uff00-\uffef]")  # Chinese and Japanese


class Source(NamedTuple):
    """A source text, the tokens of each of its words (as bytes), and the characters [start, end) of each word."""

    text: str
    words: list[bytes]
    spans: list[tuple[int, int]]


def detokenize(written: Sequence[Ids], tokenizer: Tokenizer, starts_V: Flags, source: str) -> list[str]:
    """Turn generated tokens into texts.

    Args:
        starts_V: whether a token begins a word.
        source: the text that they were generated from.
    """
    if tokenizer.keeps_spaces:
        return [tokenizer.words(ids).strip() for ids in written]
    ids, starts, ends = tokenizer.encode([source])[0]
    cuts = _words(starts_V[ids])
    spans = [(int(starts[i]), int(ends[j - 1])) for i, j in cuts]
    known = Source(source, [ids[i:j].tobytes() for i, j in cuts], spans)
    return [_as_in(known, [one[i:j] for i, j in _words(starts_V[one])], tokenizer) for one in written]


def _as_in(source: Source, words: Sequence[Ids], tokenizer: Tokenizer) -> str:
    """Join words, given by their tokens, with the source's spelling and spaces where they are copied."""
    spelled = [tokenizer.words(ids).removeprefix(CONTINUED) for ids in words]
    apart: dict[int, bool] = {}  # copied word -> whether a space precedes it in the source
    for first, count, at in _copies([ids.tobytes() for ids in words], source.words):
        for i in range(count):
            start, end = source.spans[at + i]
            before = source.spans[at + i - 1][1] if at + i else 0
            word, begins = source.text[start:end], not before or source.text[before - 1] in _ENDS
            # a capital at the start of a sentence does not belong to the word
            if not (begins and word[:1].lower() + word[1:] == spelled[first + i]):
                spelled[first + i] = word
            if i:
                apart[first + i] = any(map(str.isspace, source.text[before:start]))
    return _joined(spelled, apart)


def _words(starts: Flags) -> list[tuple[int, int]]:
    """Return the tokens [start, stop) of each word; the first token always begins a word."""
    begins = [0, *(1 + np.flatnonzero(starts[1:])).tolist(), len(starts)]
    return list(pairwise(begins)) if len(starts) else []


def _copies(words: Sequence[bytes], source: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield the longest match in the source from each word on, greedily from left to right: its first word, its
    number of words, and the word of the source where it begins."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for at, word in enumerate(source):
        places[word].append(at)
    first = 0
    while first < len(words):
        rows = [(_row(words, first, source, at), -at) for at in places[words[first]]]
        longest, at = max(rows, default=(0, 0))
        if longest:
            yield first, longest, -at
        first += max(longest, 1)


def _row(words: Sequence[bytes], first: int, source: Sequence[bytes], at: int) -> int:
    """Count the words that match from `first` and `at` on."""
    pairs = zip(words[first:], source[at:], strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(words) - first, len(source) - at)
    )


def _joined(words: Sequence[str], apart: Mapping[int, bool]) -> str:
    """Join words; `apart` overrides the typographic rules for the words that it holds."""
    leaning = {i: word in _OPENING for i, word in enumerate(words) if word in _OPENING | _CLOSING} | _quotes(words)
    parts = [" " * (i > 0 and apart.get(i, _has_space(words, i, leaning))) + word for i, word in enumerate(words)]
    return "".join(parts)


def _quotes(words: Sequence[str]) -> dict[int, bool]:
    """Map each quotation mark to whether it opens. An unpaired last mark closes: the dogs' tails."""
    opens: dict[int, bool] = {}
    for mark in _QUOTES:
        places = [i for i, word in enumerate(words) if word == mark and not _apostrophe(words, i)]
        opens |= {place: n % 2 == 0 and n + 1 < len(places) for n, place in enumerate(places)}
    return opens


def _has_space(words: Sequence[str], i: int, leaning: Mapping[int, bool]) -> bool:
    """Whether a space precedes word i by typographic rules.

    Args:
        leaning: punctuation mark -> whether it attaches to the next word instead of the previous one.
    """
    before, last, word, following = ["", *words, ""][i - 1 : i + 3]
    if _apostrophe(words, i) or _apostrophe(words, i - 1) or _UNSPACED.match(last) or _UNSPACED.match(word):
        return False
    if leaning.get(i) is False or leaning.get(i - 1):
        return False
    if word in _BINDING:
        return not (last.isalnum() and following.isalnum())
    if last in _BINDING:
        return not (before.isalnum() and word.isalnum())
    if last in _IN_NUMBERS and before.isdecimal() and word.isdecimal():
        return False
    return not (last == "." and before.isalpha() and len(before) == len(word) == 1)  # u.s.


def _apostrophe(words: Sequence[str], i: int) -> bool:
    """Whether word i is an apostrophe within a word."""
    if words[i] != "'" or not 0 < i < len(words) - 1:
        return False
    last, following = words[i - 1], words[i + 1]
    return following in _CONTRACTED or (last.isalpha() and len(last) <= _ELIDED and following.isalpha())
