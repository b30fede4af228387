"""Split long texts into overlapping windows, and merge the windows' scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.objectives import Scored, merge
from ubert.structure.batch import Region

TARGET_SHARE = 4  # a target gets at least 1/4 of a sequence


class Window(NamedTuple):
    """Tokens [start, stop) of a text. The window owns [first, last) of them.

    The owned parts of a text's windows partition its tokens. Each token belongs to the window with the most
    context around it.
    """

    start: int
    stop: int
    first: int
    last: int


def windows(tokens: int, most: int, overlap: int) -> list[Window]:
    """Cover `tokens` tokens by the fewest windows of at most `most` tokens that overlap by at least `overlap`.

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
    """Split `tokens` tokens into the fewest blocks of at most `most` tokens, all of about the same length."""
    count = max(1, -(-tokens // most))
    cuts = [i * tokens // count for i in range(count + 1)]
    return [Window(start, stop, start, stop) for start, stop in pairwise(cuts)]


def around(tokens: int, most: int, place: tuple[int, int]) -> Window:
    """Return the window of at most `most` tokens centred on `place` (first and last token).

    It is shifted to stay within the text, and owns all its tokens.
    """
    start = max(0, min((place[0] + place[1] + 1 - most) // 2, tokens - most))
    stop = min(tokens, start + most)
    return Window(start, stop, start, stop)


def cover(tokens: int, most: int, place: tuple[int, int] | None = None) -> list[Window]:
    """Cover a text by windows that overlap by a quarter, or take only the window around a place."""
    return windows(tokens, most, most // 4) if place is None else [around(tokens, most, place)]


def target_room(most: int) -> int:
    """Return the tokens reserved for a target, out of `most` for source and target. A longer target takes more."""
    return most // TARGET_SHARE


def pair_room(text: int, most: int) -> int:
    """Return the maximum tokens of a second text: half of `most`, or what a text of `text` tokens leaves."""
    return max(most // 2, most - text, 0)


def source_window(text: Ids, pair: Ids, most: int) -> Window:
    """Return the window of at most `most` tokens of a source for generation.

    It is centred on the first occurrence of the second text, such as an answer, or else begins with the text.
    """
    size = len(pair)
    if not 0 < size <= len(text):
        return around(len(text), most, (0, 0))
    found = np.flatnonzero((np.lib.stride_tricks.sliding_window_view(text, size) == pair).all(axis=1))
    return around(len(text), most, (int(found[0]), int(found[0]) + size - 1) if len(found) else (0, 0))


def own(window: Window, scored: Scored) -> Scored:
    """Keep the scores that a window owns: its anchors, and the cells whose middle token it owns.

    A mention no longer than the overlap lies entirely in the window that owns it. A fragment of a mention at a
    window's edge is dropped, because the neighbour owns its middle.
    """
    cells = scored.cells
    middle = (cells.start + cells.end) // 2 + window.start
    kept = (window.first <= middle) & (middle < window.last)
    return Scored(scored.anchor, cells.only(kept))


def whole(parts: Sequence[tuple[Window, Scored]], region: Region, *, best: bool = False) -> Scored:
    """Merge the scores of a text's windows.

    Each window contributes the cells that it owns. If windows return only their best cell (`best`), each
    contributes it wherever it lies, since the owner may have returned another.

    An anchor for the absence of cells (a question without an answer) is the minimum over the windows: a text has
    no answer if none of its windows has one. An anchor for the whole text is the mean over the windows, weighted
    by their owned tokens.
    """
    merged = merge([(window.start, scored if best else own(window, scored)) for window, scored in parts])
    if region != Region.ANCHOR:
        return merged
    weights = [max(1, window.last - window.first) for window, _ in parts]
    mean = np.average([scored.anchor for _, scored in parts], axis=0, weights=weights)
    return Scored(mean.astype(np.float32), merged.cells)
