"""Clozes of UniLM (Dong et al. 2019, sections 2.3 to 2.5): words of a text hidden, to be told from what their
sequence's mask lets them see; and a target's words, to be told from its source.

    bidirectional, 1/3     [CLS] first [SEP] second [SEP]    segments 0 and 1
    seq2seq, 1/3           [CLS] first [SEP] second [SEP]    segments 4 and 5
    left to right, 1/6     [CLS] text [SEP]                  segment 2
    right to left, 1/6     [CLS] text [SEP]                  segment 3

What is drawn is a function of a key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ubert.encoder.attention import PADDING, Direction, ranks
from ubert.encoder.ragged import Ids, Longs
from ubert.schema.keys import draws, uniform
from ubert.structure.batch import Special
from ubert.unilm.cloze import Cloze

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
_TO_MASK, _TO_ANY = 0.8, 0.9  # below the first: [MASK]; below the second: any word; else as it was
_DIRECTION, _CUT, _ORDER, _SIZE, _FATE, _WORD = range(6)  # what a key is drawn for


class Symbols(NamedTuple):
    """What clozes are made with: the ids of [CLS], [SEP] and [MASK], and how many ids there are."""

    cls: int
    sep: int
    mask: int
    vocabulary: int


def direction(*key: int) -> Direction:
    """One of the four, by their shares."""
    kinds = list(SHARES)
    below = np.cumsum(list(SHARES.values())[:-1])
    return kinds[int(np.searchsorted(below, next(draws(*key, _DIRECTION)), side="right"))]


def pretraining(text: Ids, second: Ids, symbols: Symbols, *key: int, chosen: Direction | None = None) -> Cloze:
    """A text with 15 % of its words hidden.

    Args:
        text: at least one token.
        second: its second part; where it has none and two are needed, the text is cut at a drawn place.
        chosen: drawn where it isn't given.
    """
    chosen = direction(*key) if chosen is None else chosen
    if chosen in ("left_to_right", "right_to_left"):
        parts = [np.concatenate([text, second])]
    elif len(second) or len(text) < 2:
        parts = [text, second]
    else:
        parts = np.split(text, [1 + int(next(draws(*key, _CUT)) * (len(text) - 1))])
    ids, source = _sequence(parts, symbols)
    within = np.ones(len(ids), np.bool_)
    within[[0, source - 1, -1]] = False  # not [CLS] and [SEP]
    return _cloze(ids, source, chosen, hide(np.flatnonzero(within), HIDDEN, *key), symbols, *key)


def generation(source: Ids, target: Ids, symbols: Symbols, *key: int) -> Cloze:
    """A source and its target, of which 70 % are hidden; the [SEP] after it counts as its last word, and so the
    end is learnt, too.

    Args:
        source: see `source_of`.
    """
    ids = np.concatenate([source, target, [symbols.sep]]).astype(np.int32)
    hidden = hide(np.arange(len(source), len(ids)), HIDDEN_TARGET, *key)
    return _cloze(ids, len(source), "seq2seq", hidden, symbols, *key)._replace(before=ids[hidden - 1])


def pseudo_masked(source: Ids, target: Ids, symbols: Symbols) -> Cloze:
    """A source, its target, and behind them a [MASK] for each of the target's words and for its end, in the word's
    position: it sees the source and the words before its own, as they are (UniLMv2, section 2.2, and the released
    s2s-ft). That is what decoding sees; nothing is drawn, and every word is told.

    Args:
        source: see `source_of`.
    """
    answers = np.concatenate([target, [symbols.sep]]).astype(np.int32)
    words, told = len(target), len(answers)
    ids = np.concatenate([source, target, np.full(told, symbols.mask)]).astype(np.int32)
    place = np.concatenate([np.arange(len(source) + words), len(source) + np.arange(told)]).astype(np.int32)
    rank = np.concatenate([ranks("seq2seq", len(source) + words, len(source)), np.arange(told, dtype=np.int32)])
    hidden = np.arange(len(source) + words, len(ids), dtype=np.int32)
    looked = rank.copy()
    looked[hidden] = PADDING
    types = np.where(np.arange(len(ids)) < len(source), *_SEGMENTS["seq2seq"]).astype(np.int32)
    before = np.concatenate([source[-1:], target]).astype(np.int32)
    return Cloze(ids, types, rank, hidden, answers, looked, place, before)


def source_of(instruction: Ids, pair: Ids, text: Ids, special: Special | Symbols) -> Ids:
    """What a target is written from: [CLS] instruction [SEP] (pair [SEP]) text [SEP]."""
    sep = np.array([special.sep], np.int32)
    parts = [instruction, pair, text] if len(pair) else [instruction, text]
    return np.concatenate([np.array([special.cls], np.int32), *(each for part in parts for each in (part, sep))])


def hide(candidates: Ids | Longs, share: float, *key: int) -> Ids:
    """Draw places to hide, one at least: single ones in 80 % of the draws, else two or three in a row.

    Args:
        candidates: places, ascending; a row of places ends where the next one is no candidate.
        share: of the candidates; rounded.
    """
    wanted = max(1, round(share * len(candidates)))
    number = np.arange(len(candidates))
    order = candidates[np.argsort(uniform(number, *key, _ORDER), kind="stable")].tolist()
    sizes = 1 + np.searchsorted([1 - _NGRAMS, 1 - _NGRAMS / 2], uniform(number, *key, _SIZE), side="right")
    left = set(order)
    hidden: set[int] = set()
    for first, size in zip(order, sizes.tolist(), strict=True):
        for place in range(first, first + size):
            if place not in left or len(hidden) == wanted:
                break
            left.remove(place)
            hidden.add(place)
    return np.array(sorted(hidden), np.int32)


def _sequence(parts: list[Ids], symbols: Symbols) -> tuple[Ids, int]:
    """[CLS] part [SEP] (part [SEP]), and how long that is up to and with the first [SEP]."""
    sep = np.array([symbols.sep], np.int32)
    pieces = [np.array([symbols.cls], np.int32), parts[0], sep]
    for part in parts[1:]:
        pieces += [part, sep] if len(part) else []
    return np.concatenate(pieces).astype(np.int32), len(parts[0]) + 2


def _cloze(ids: Ids, source: int, chosen: Direction, hidden: Ids, symbols: Symbols, *key: int) -> Cloze:
    """Of the hidden words, 80 % become [MASK], 10 % any word, and 10 % stay (BERT, section 3.1)."""
    answers, number = ids[hidden], np.arange(len(hidden))
    fate = uniform(number, *key, _FATE)
    any_word = (uniform(number, *key, _WORD) * symbols.vocabulary).astype(np.int32)
    covered = ids.copy()
    covered[hidden] = np.select([fate < _TO_MASK, fate < _TO_ANY], [symbols.mask, any_word], answers)
    first, second = _SEGMENTS[chosen]
    types = np.where(np.arange(len(ids)) < source, first, second).astype(np.int32)
    return Cloze(covered, types, ranks(chosen, len(ids), source), hidden, answers)
