"""Which tokens of a text are masked, and what is to be predicted (SpanBERT, sections 3.1 and 3.2).

Where the paper leaves it open, this is what its released code does: the budget is rounded up; spans that overlap
or touch become one, before it is decided what replaces them; one that touches an end of the text has no boundary
to predict it from; and of a long one the first 15 tokens are predicted so. Where the two differ, `Masking` has
both: in the code the anchor of a span is any token that isn't masked yet, whose word it begins with, and the
budget may end amid a word; in the paper a span begins with any word, and has complete ones alone.

Every mask is a function of the text and of its key.

Shapes: N tokens of a text, M masked ones, S tokens predicted from the boundaries of their span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ubert.encoder.ragged import Ids
from ubert.schema.keys import draws, uniform
from ubert.schema.recipe import Masking

P = 0.2  # of the geometric distribution
LONGEST = 10  # words of a span
BOUNDARY_TARGETS = 15  # tokens of a span that are predicted from its boundaries
ENTITIES = 0.5  # share of spans that the corpus marks, in Table 6
TO_MASK, TO_RANDOM = 0.8, 0.9  # below the first: [MASK]; below the second: a random token; else as it was
_WHICH, _WHAT, _RANDOM = 1, 2, 3  # what a key is drawn for

Flags = npt.NDArray[np.bool_]


class Words(NamedTuple):
    """What masking knows of a tokenizer: the id of its mask, and of each id whether a word begins with it."""

    mask: int
    starts_V: Flags


class Masked(NamedTuple):
    """A text to be read with masks: `ids` [N] are what the model sees.

    `positions` [M]: of masked tokens; `targets` [M]: what they were. `boundary` [S, 3]: of each token that is
    predicted from the boundaries of its span, the positions of the tokens before and after the span, and its place
    in the span, from 0; `boundary_targets` [S]: what it was.
    """

    ids: Ids
    positions: Ids
    targets: Ids
    boundary: Ids
    boundary_targets: Ids


def masked(
    ids_N: Ids, words: Words, masking: Masking, *key: int, pool: Ids, entities: Sequence[tuple[int, int]] = ()
) -> Masked:
    """Mask a text, by its key.

    Args:
        pool: random tokens are drawn from these.
        entities: first and last token (inclusive) of what the scheme `entity` masks.
    """
    starts_N = words.starts_V[ids_N]
    mask_N = np.zeros(len(ids_N), np.bool_)
    for first, stop in spans(starts_N, masking, draws(*key, _WHICH).__next__, entities):
        mask_N[first:stop] = True
    positions = np.flatnonzero(mask_N).astype(np.int32)
    begins_M = np.diff(positions, prepend=-2) > 1
    replaced_M = replaced(begins_M, starts_N[positions], masking, *key, _WHAT)
    random_M = pool[(uniform(np.arange(len(positions)), *key, _RANDOM) * len(pool)).astype(np.int64)]
    seen = ids_N.copy()
    seen[positions] = np.select(
        [replaced_M < TO_MASK, replaced_M < TO_RANDOM], [words.mask, random_M], seen[positions]
    )
    boundary, at = boundaries(positions, begins_M, len(ids_N))
    if not masking.boundary:
        boundary, at = boundary[:0], at[:0]
    return Masked(seen, positions, ids_N[positions], boundary, ids_N[positions[at]])


def spans(
    starts_N: Flags, masking: Masking, draw: Callable[[], float], entities: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """Spans [first, stop) of tokens, as they are drawn, until the budget is spent; some overlap. The last one ends
    there, or with `anchors: words` at the end of the word that is there: the budget is exceeded by what is left of
    that one.

    Args:
        starts_N: whether a word begins with the token; the first one always does.
        draw: uniform numbers in [0, 1).
    """
    tokens = len(starts_N)
    begins = [0, *(1 + np.flatnonzero(starts_N[1:])).tolist(), tokens]  # of each word, and the end
    complete = masking.anchors == "words"
    anchors: Sequence[int] = begins if complete else range(tokens + 1)
    is_masked = bytearray(tokens)
    left = ceil(masking.share * tokens)
    while left > 0:
        if masking.scheme == "entity" and entities and draw() < ENTITIES:
            first, last = entities[int(draw() * len(entities))]
            stop = last + 1
        else:
            length = span_length(draw(), masking.lengths) if masking.scheme == "span" else 1
            anchor = int(draw() * (len(anchors) - 1))
            first, stop = anchors[anchor], anchors[anchor + 1]
            if all(is_masked[first:stop]):
                continue
            if masking.scheme != "subword":
                word = bisect_right(begins, first) - 1
                first, stop = begins[word], begins[min(word + length, len(begins) - 1)]
        for i in range(first, stop):
            left -= not is_masked[i]
            is_masked[i] = 1
            if left <= 0 and not (complete and i + 1 < tokens and not starts_N[i + 1]):
                stop = i + 1
                break
        yield first, stop


def span_length(draw: float, lengths: str) -> int:
    """Words of a span, from a uniform number in [0, 1)."""
    return bisect_right(_cumulative(lengths), draw) + 1


@cache
def _cumulative(lengths: str) -> list[float]:
    """Of each length below the longest, how likely a span is no longer."""
    share = [P * (1 - P) ** i for i in range(LONGEST)]
    whole = sum(share) if lengths == "truncated" else 1.0
    return [part / whole for part in accumulate(share[:-1])]


def replaced(begins_M: Flags, starts_M: Flags, masking: Masking, *key: int) -> npt.NDArray[np.float64]:
    """A uniform number for each masked token, which says what replaces it: one for all tokens of a span; of the
    schemes of single tokens and words, for all tokens of these."""
    if masking.scheme == "subword":
        begins_M = np.ones_like(begins_M)
    elif masking.scheme == "word":
        begins_M = begins_M | starts_M
    decided = uniform(np.arange(begins_M.sum()), *key)
    return np.asarray(decided[np.cumsum(begins_M) - 1])


def boundaries(positions: Ids, begins_M: Flags, tokens: int) -> tuple[Ids, npt.NDArray[Any]]:
    """What the span boundary objective predicts from [S, 3], as in `Masked`, and which masked tokens it predicts
    [S].

    Args:
        positions: of masked tokens, ascending. `begins_M`: where a span begins among them.
        tokens: of the text.
    """
    span_M = np.cumsum(begins_M) - 1
    first_M = positions[begins_M][span_M]
    last_M = positions[np.append(begins_M[1:], True)][span_M] if len(positions) else positions
    place_M = positions - first_M
    at = np.flatnonzero((first_M > 0) & (last_M < tokens - 1) & (place_M < BOUNDARY_TARGETS))
    return np.stack([first_M - 1, last_M + 1, place_M], axis=1)[at].astype(np.int32), at
