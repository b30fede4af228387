"""Clozes of UniLM (Dong et al. 2019, sections 2.3 to 2.5): words of a text hidden, to be told from what their
sequence's mask lets them see; and a target's words, to be told from its source.

    bidirectional, 1/3     [CLS] first [SEP] second [SEP]    segments 0 and 1
    seq2seq, 1/3           [CLS] first [SEP] second [SEP]    segments 4 and 5
    left to right, 1/6     [CLS] text [SEP]                  segment 2
    right to left, 1/6     [CLS] text [SEP]                  segment 3

Every draw is one of the generator's that is given.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ubert.model.attention import Direction, ranks
from ubert.model.batch import Ids, Longs
from ubert.model.cloze import Cloze

SHARES: dict[Direction, float] = {
    "bidirectional": 1 / 3,
    "seq2seq": 1 / 3,
    "left_to_right": 1 / 6,
    "right_to_left": 1 / 6,
}
_SEGMENTS: dict[Direction, tuple[int, int]] = {
    "bidirectional": (0, 1),
    "left_to_right": (2, 2),
    "right_to_left": (3, 3),
    "seq2seq": (4, 5),
}
HIDDEN = 0.15  # of a text's words
HIDDEN_TARGET = 0.7  # of a target's, where generation is what is learnt
SMOOTHING = 0.1  # there, too
_NGRAMS = 0.2  # of the draws hide two or three words in a row, half of these draws each


class Words(NamedTuple):
    """What clozes are made with: the ids of [CLS], [SEP] and [MASK], and how many ids there are."""

    cls: int
    sep: int
    mask: int
    vocabulary: int


def direction(draw: Generator) -> Direction:
    """One of the four, by their shares."""
    kinds = list(SHARES)
    return kinds[int(draw.choice(len(kinds), p=list(SHARES.values())))]


def pretraining(text: Ids, second: Ids, words: Words, draw: Generator, chosen: Direction | None = None) -> Cloze:
    """A text with 15 % of its words hidden.

    Args:
        text: at least one token.
        second: its second part; where it has none and two are needed, the text is cut at a drawn place.
        chosen: drawn where it isn't given.
    """
    chosen = direction(draw) if chosen is None else chosen
    if chosen in ("left_to_right", "right_to_left"):
        parts = [np.concatenate([text, second])]
    elif len(second) or len(text) < 2:
        parts = [text, second]
    else:
        parts = np.split(text, [int(draw.integers(1, len(text)))])
    ids, source = _sequence(parts, words)
    within = np.ones(len(ids), np.bool_)
    within[[0, source - 1, -1]] = False  # not [CLS] and [SEP]
    return _cloze(ids, source, chosen, hide(np.flatnonzero(within), HIDDEN, draw), words, draw)


def generation(source: Ids, target: Ids, words: Words, draw: Generator) -> Cloze:
    """A source and its target, of which 70 % are hidden; the [SEP] after it counts as its last word, and so the
    end is learnt, too.

    Args:
        source: what comes after [CLS], without the [SEP] at its end.
    """
    ids, length = _sequence([source, target], words)
    return _cloze(ids, length, "seq2seq", hide(np.arange(length, len(ids)), HIDDEN_TARGET, draw), words, draw)


def hide(candidates: Ids | Longs, share: float, draw: Generator) -> Ids:
    """Draw places to hide, one at least: single ones in 80 % of the draws, else two or three in a row.

    Args:
        candidates: places, ascending; a row of places ends where the next one is no candidate.
        share: of the candidates; rounded.
    """
    wanted = max(1, round(share * len(candidates)))
    sizes = np.where(draw.random(len(candidates)) < _NGRAMS, draw.integers(2, 4, len(candidates)), 1).tolist()
    left = set(candidates.tolist())
    hidden: set[int] = set()
    for first, size in zip(draw.permutation(candidates).tolist(), sizes, strict=True):
        for place in range(first, first + size):
            if place not in left or len(hidden) == wanted:
                break
            left.remove(place)
            hidden.add(place)
    return np.array(sorted(hidden), np.int32)


def _sequence(parts: list[Ids], words: Words) -> tuple[Ids, int]:
    """[CLS] part [SEP] (part [SEP]), and how long that is up to and with the first [SEP]."""
    sep = np.array([words.sep], np.int32)
    pieces = [np.array([words.cls], np.int32)]
    for part in parts:
        if len(part) or len(pieces) == 1:
            pieces += [part, sep]
    return np.concatenate(pieces).astype(np.int32), len(parts[0]) + 2


def _cloze(ids: Ids, source: int, chosen: Direction, hidden: Ids, words: Words, draw: Generator) -> Cloze:
    """Of the hidden words, 80 % become [MASK], 10 % any word, and 10 % stay (BERT, section 3.1)."""
    answers = ids[hidden]
    fate = draw.random(len(hidden))
    shown = np.where(
        fate < 0.8, words.mask, np.where(fate < 0.9, draw.integers(words.vocabulary, size=len(fate)), answers)
    )
    covered = ids.copy()
    covered[hidden] = shown
    first, second = _SEGMENTS[chosen]
    types = np.where(np.arange(len(ids)) < source, first, second).astype(np.int32)
    return Cloze(covered, types, ranks(chosen, len(ids), source), hidden, answers)
