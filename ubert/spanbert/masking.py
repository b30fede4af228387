"""Choose the tokens of a text to mask and to predict (SpanBERT, sections 3.1 and 3.2).

If the paper leaves a detail open, this module follows its released code. The budget is rounded up. Spans that
overlap or touch are merged before their replacement is drawn. A span at an end of the text has no boundary to
predict it from. Only the first 15 tokens of a long span are predicted from its boundaries.

If paper and code differ, `Masking` offers both. In the code, a span starts at the word of any token that
isn't masked yet, and the budget may end within a word. In the paper, a span starts with any word, and has
only complete words.

Every mask is a function of the text and its key.

Shapes: N tokens of a text, M masked tokens, S tokens predicted from the boundaries of their span.
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
from ubert.schema.specs.recipe import Masking

P = 0.2  # parameter of the geometric distribution of lengths
MAX_WORDS = 10  # most words of a span
BOUNDARY_TARGETS = 15  # most tokens of a span that are predicted from its boundaries
ENTITIES = 0.5  # share of masked spans that are entities of the corpus, in Table 6
TO_MASK, TO_RANDOM = 0.8, 0.9  # below the first: [MASK]; below the second: a random token; else unchanged
_WHICH, _WHAT, _RANDOM = 1, 2, 3  # purposes of the keys

Flags = npt.NDArray[np.bool_]


class Words(NamedTuple):
    """A tokenizer's properties for masking: the id of its mask token, and for each id whether it starts a word."""

    mask: int
    starts_V: Flags


class Masked(NamedTuple):
    """A masked text; the model's input is `ids` [N].

    `positions` [M] of the masked tokens; `targets` [M], their original ids. For the tokens that are predicted
    from the boundaries of their span: `boundary` [S, 3] has the positions of the tokens before and after the
    span, and the token's position in the span, from 0; `boundary_targets` [S] has the original ids.
    """

    ids: Ids
    positions: Ids
    targets: Ids
    boundary: Ids
    boundary_targets: Ids


def masked(
    ids_N: Ids, words: Words, masking: Masking, *key: int, pool: Ids, entities: Sequence[tuple[int, int]] = ()
) -> Masked:
    """Mask a text, as a function of its key.

    Args:
        pool: random tokens are drawn from these.
        entities: first and last token (inclusive) of the spans that the scheme `entity` masks.
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
    """Draw spans [first, stop) of tokens until the budget is spent. Spans may overlap.

    The last span ends where the budget does. With `anchors: words` it continues to the end of that word, and
    so exceeds the budget.

    Args:
        starts_N: whether a word starts with the token; the first token always starts one.
        draw: returns uniform numbers in [0, 1).
    """
    tokens = len(starts_N)
    begins = [0, *(1 + np.flatnonzero(starts_N[1:])).tolist(), tokens]  # start of each word, and the end
    complete = masking.anchors == "words"
    anchors: Sequence[int] = begins if complete else range(tokens + 1)
    is_masked = bytearray(tokens)
    left = ceil(masking.share * tokens)
    while left > 0:
        if masking.scheme == "entity" and entities and draw() < ENTITIES:
            first, last = entities[int(draw() * len(entities))]
            stop = last + 1
        else:
            length = 1 + bisect_right(_cumulative(masking.lengths), draw()) if masking.scheme == "span" else 1
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


@cache
def _cumulative(lengths: str) -> list[float]:
    """Return the cumulative probabilities of the span lengths below the longest."""
    share = [P * (1 - P) ** i for i in range(MAX_WORDS)]
    whole = sum(share) if lengths == "truncated" else 1.0
    return [part / whole for part in accumulate(share[:-1])]


def replaced(begins_M: Flags, starts_M: Flags, masking: Masking, *key: int) -> npt.NDArray[np.float64]:
    """Return a uniform number for each masked token, which decides its replacement.

    All tokens of a span share one number; with the scheme `word` the tokens of a word do, and with `subword`
    each token has its own.
    """
    if masking.scheme == "subword":
        begins_M = np.ones_like(begins_M)
    elif masking.scheme == "word":
        begins_M = begins_M | starts_M
    decided = uniform(np.arange(begins_M.sum()), *key)
    return np.asarray(decided[np.cumsum(begins_M) - 1])


def boundaries(positions: Ids, begins_M: Flags, tokens: int) -> tuple[Ids, npt.NDArray[Any]]:
    """Return the span boundary objective's inputs [S, 3], as in `Masked`, and the indices [S] of its targets.

    Args:
        positions: positions of the masked tokens, ascending.
        begins_M: whether a span begins at the masked token.
        tokens: number of tokens of the text.
    """
    span_M = np.cumsum(begins_M) - 1
    first_M = positions[begins_M][span_M]
    last_M = positions[np.append(begins_M[1:], True)][span_M] if len(positions) else positions
    place_M = positions - first_M
    at = np.flatnonzero((first_M > 0) & (last_M < tokens - 1) & (place_M < BOUNDARY_TARGETS))
    return np.stack([first_M - 1, last_M + 1, place_M], axis=1)[at].astype(np.int32), at
