"""Long texts as overlapping windows, and the scores of windows as the scores of their text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.objectives import Scored, merge
from ubert.structure.batch import Region

TARGET_SHARE = 4  # the part of a sequence that a text to be written has, at least


class Window(NamedTuple):
    """Tokens [start, stop) of a text, of which the window answers for [first, last): its own part.

    The own parts of a text's windows follow each other without gap or overlap, so each token has one window that
    answers for it: the one that sees most around it.
    """

    start: int
    stop: int
    first: int
    last: int


def windows(tokens: int, most: int, overlap: int) -> list[Window]:
    """Cover `tokens` tokens by as few windows of at most `most` tokens as overlap by `overlap` or more.

    Raises:
        ValueError: `overlap` is not smaller than `most`.
    """
    if not 0 <= overlap < most:
        raise ValueError(f"overlap is {overlap}, expected 0 to {most - 1}")
    if tokens <= most:
        return [Window(0, tokens, 0, tokens)]
    count = -(-(tokens - overlap) // (most - overlap))
    starts = [i * (tokens - most) // (count - 1) for i in range(count)]
    cuts = [(left + most + right) // 2 for left, right in pairwise(starts)]
    return [
        Window(start, start + most, first, last)
        for start, first, last in zip(starts, [0, *cuts], [*cuts, tokens], strict=True)
    ]


def blocks(tokens: int, most: int) -> list[Window]:
    """Cut `tokens` tokens into as few blocks of at most `most` tokens as may be, all of about one length."""
    count = max(1, -(-tokens // most))
    cuts = [i * tokens // count for i in range(count + 1)]
    return [Window(start, stop, start, stop) for start, stop in pairwise(cuts)]


def around(tokens: int, most: int, place: tuple[int, int]) -> Window:
    """The window of at most `most` tokens whose middle is that of a place (first and last token), as far as the
    text's ends allow; it answers for all that it sees."""
    start = max(0, min((place[0] + place[1] + 1 - most) // 2, tokens - most))
    stop = min(tokens, start + most)
    return Window(start, stop, start, stop)


def target_room(most: int) -> int:
    """Tokens that are left to a target, of the `most` tokens of a source with it; a longer one takes more."""
    return most // TARGET_SHARE


def pair_room(text: int, most: int) -> int:
    """Tokens of a second text, of the `most` tokens of a text of so many with it: half, or what is left."""
    return max(most // 2, most - text, 0)


def about(text: Ids, pair: Ids, most: int) -> Window:
    """The window of at most `most` tokens of a text that another is written from: around the first place where it
    has the words of its second text, such as an answer; its beginning where it lacks them."""
    size = len(pair)
    if not 0 < size <= len(text):
        return around(len(text), most, (0, 0))
    found = np.flatnonzero((np.lib.stride_tricks.sliding_window_view(text, size) == pair).all(axis=1))
    return around(len(text), most, (int(found[0]), int(found[0]) + size - 1) if len(found) else (0, 0))


def own(window: Window, scored: Scored) -> Scored:
    """The scores that a window answers for: its anchors, and the cells whose middle token is its own.

    A mention no longer than the overlap is seen whole by the one window that answers for it, and what is left of
    a mention at a window's edge is no mention of its own: its middle is the neighbour's.
    """
    cells = scored.cells
    middle = (cells.start + cells.end) // 2 + window.start
    kept = (window.first <= middle) & (middle < window.last)
    return Scored(scored.anchor, cells.only(kept))


def whole(parts: Sequence[tuple[Window, Scored]], region: Region, *, best: bool = False) -> Scored:
    """Scores of a text from those of its windows.

    Of each window the cells count that it answers for. Where it has given its best cell alone (`best`), this one
    counts wherever it lies: the neighbour that answers for it may have given another.

    An anchor that stands for the absence of cells (a question without an answer) is the lowest of the windows':
    a text has no answer when none of its windows has one. An anchor that stands for the text is the mean of the
    windows', weighted by the tokens that each answers for.
    """
    merged = merge([(window.start, scored if best else own(window, scored)) for window, scored in parts])
    if region != Region.ANCHOR:
        return merged
    weights = [max(1, window.last - window.first) for window, _ in parts]
    mean = np.average([scored.anchor for _, scored in parts], axis=0, weights=weights)
    return Scored(mean.astype(np.float32), merged.cells)
