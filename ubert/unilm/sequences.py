"""Build the clozes of UniLM (Dong et al. 2019, sections 2.3 to 2.5).

In pretraining, the model predicts hidden words of a text from the tokens that the sequence's mask lets them attend
to:

    bidirectional, 1/3     [CLS] first [SEP] second [SEP]    segments 0 and 1
    seq2seq, 1/3           [CLS] first [SEP] second [SEP]    segments 4 and 5
    left to right, 1/6     [CLS] text [SEP]                  segment 2
    right to left, 1/6     [CLS] text [SEP]                  segment 3

In generation, it predicts hidden words of a target from the source and the words before them. All draws are
functions of a key.
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
HIDDEN = 0.15  # share of a text's words
HIDDEN_TARGET = 0.7  # share of a target's words, for generation
SMOOTHING = 0.1  # label smoothing, for generation
_NGRAMS = 0.2  # share of draws that hide several consecutive words; half of them two, half three
_TO_MASK, _TO_ANY = 0.8, 0.9  # below the first: [MASK]; below the second: any word; else unchanged
_DIRECTION, _CUT, _ORDER, _SIZE, _FATE, _WORD = range(6)  # purposes of the keys


class Symbols(NamedTuple):
    """The ids of [CLS], [SEP] and [MASK], and the size of the vocabulary."""

    cls: int
    sep: int
    mask: int
    vocabulary: int


def direction(*key: int) -> Direction:
    """Draw one of the four directions by their shares."""
    kinds = list(SHARES)
    below = np.cumsum(list(SHARES.values())[:-1])
    return kinds[int(np.searchsorted(below, next(draws(*key, _DIRECTION)), side="right"))]


def pretraining(text: Ids, second: Ids, symbols: Symbols, *key: int, chosen: Direction | None = None) -> Cloze:
    """Hide 15 % of a text's words.

    Args:
        text: at least one token.
        second: its second part. If it is empty and two parts are needed, the text is cut at a random position.
        chosen: the direction; drawn if not given.
    """
    chosen = direction(*key) if chosen is None else chosen
    if chosen in ("left_to_right", "right_to_left"):
        parts = [np.concatenate([text, second])]
    elif len(second) or len(text) < 2:
        parts = [text, second]
    else:
        parts = np.split(text, [1 + int(next(draws(*key, _CUT)) * (len(text) - 1))])
    ids = _separated([parts[0], *(part for part in parts[1:] if len(part))], symbols)
    source = len(parts[0]) + 2
    within = np.ones(len(ids), np.bool_)
    within[[0, source - 1, -1]] = False  # [CLS] and [SEP] are never hidden
    return _cloze(ids, source, chosen, hide(np.flatnonzero(within), HIDDEN, *key), symbols, *key)


def generation(source: Ids, target: Ids, symbols: Symbols, *key: int) -> Cloze:
    """Build a source and its target, and hide 70 % of the target. The final [SEP] counts as its last word, so
    that the model learns where to end.

    Args:
        source: see `source_of`.
    """
    ids = np.concatenate([source, target, [symbols.sep]]).astype(np.int32)
    hidden = hide(np.arange(len(source), len(ids)), HIDDEN_TARGET, *key)
    return _cloze(ids, len(source), "seq2seq", hidden, symbols, *key)._replace(before=ids[hidden - 1])


def pseudo_masked(source: Ids, target: Ids, symbols: Symbols) -> Cloze:
    """Build a source, its target, and after them one [MASK] for each word of the target and for its end.

    Each [MASK] has the position of its word. It attends to the source and to the words before its own, as
    decoding does (UniLMv2, section 2.2, and the released s2s-ft). Nothing is drawn, and every word is
    predicted.

    Args:
        source: see `source_of`.
    """
    answers = np.concatenate([target, [symbols.sep]]).astype(np.int32)
    words, masks = len(target), len(answers)
    ids = np.concatenate([source, target, np.full(masks, symbols.mask)]).astype(np.int32)
    place = np.concatenate([np.arange(len(source) + words), len(source) + np.arange(masks)]).astype(np.int32)
    rank = np.concatenate([ranks("seq2seq", len(source) + words, len(source)), np.arange(masks, dtype=np.int32)])
    hidden = np.arange(len(source) + words, len(ids), dtype=np.int32)
    looked = rank.copy()
    looked[hidden] = PADDING
    types = np.where(np.arange(len(ids)) < len(source), *_SEGMENTS["seq2seq"]).astype(np.int32)
    before = np.concatenate([source[-1:], target]).astype(np.int32)
    return Cloze(ids, types, rank, hidden, answers, looked, place, before)


def source_of(instruction: Ids, pair: Ids, text: Ids, special: Special | Symbols) -> Ids:
    """Build the source of a target: [CLS] instruction [SEP] (pair [SEP]) text [SEP]."""
    return _separated([instruction, pair, text] if len(pair) else [instruction, text], special)


def hide(candidates: Ids | Longs, share: float, *key: int) -> Ids:
    """Draw positions to hide, at least one. 80 % of the draws hide a single one, the others two or three in a row.

    Args:
        candidates: positions, ascending. A run ends before the first position that is not a candidate.
        share: share of the candidates to hide; their number is rounded.
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


def _separated(parts: list[Ids], special: Special | Symbols) -> Ids:
    """Build [CLS] part [SEP] (part [SEP])..."""
    sep = np.array([special.sep], np.int32)
    pieces = [np.array([special.cls], np.int32), *(each for part in parts for each in (part, sep))]
    return np.concatenate(pieces).astype(np.int32)


def _cloze(ids: Ids, source: int, chosen: Direction, hidden: Ids, symbols: Symbols, *key: int) -> Cloze:
    """Replace 80 % of the hidden words with [MASK] and 10 % with any word; 10 % stay (BERT, section 3.1)."""
    answers, number = ids[hidden], np.arange(len(hidden))
    fate = uniform(number, *key, _FATE)
    any_word = (uniform(number, *key, _WORD) * symbols.vocabulary).astype(np.int32)
    covered = ids.copy()
    covered[hidden] = np.select([fate < _TO_MASK, fate < _TO_ANY], [symbols.mask, any_word], answers)
    first, second = _SEGMENTS[chosen]
    types = np.where(np.arange(len(ids)) < source, first, second).astype(np.int32)
    return Cloze(covered, types, ranks(chosen, len(ids), source), hidden, answers)
