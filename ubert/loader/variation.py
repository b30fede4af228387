"""Vary a prompt each time its text is shown: draw further categories than the gold ones, their order, and
synonyms. Every draw is a function of a key.

Shapes: k candidate categories.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.loader.shards import Lists, Prompt
from ubert.schema.keys import keys, uniform
from ubert.schema.specs.recipe import Prompting
from ubert.structure.batch import Region

_LEFT, _ORDER, _RENAMED, _WHICH, _FEWER = 1, 2, 3, 4, 5  # purposes of the keys
MIN_CATEGORIES = 2  # least labels to choose among: with only the right one, the answer would always be yes


class Varied(NamedTuple):
    """A varied prompt: its instruction, all candidate categories, and the chosen ones in order."""

    instruction: Ids
    categories: list[Ids]
    chosen: Ids


def vary(
    prompt: Prompt,
    gold: Ids,
    most: int,
    prompting: Prompting,
    words: Lists,
    others: Lists,
    share: float,
    *key: int,
) -> Varied:
    """Draw a prompt's categories, their order and their words.

    Args:
        gold: the categories that the text has, which are kept.
        most: maximum number of categories of a sequence, exceeded only if the text has more.
        words: tokenised words, for which `others` lists the synonyms.
        share: how much of `prompting.drop` this pack leaves out, in [0, 1).
        key: the draws are a function of it.
    """
    chosen = _drawn_categories(prompt, gold, most, 0.0 if prompt.scale else prompting.drop * share, *key)
    if prompting.shuffle and not prompt.scale:
        chosen = chosen[np.argsort(keys(chosen, _ORDER, *key))]
    if not prompting.rename:
        return Varied(prompt.instruction, prompt.categories, chosen)
    renamed = _drawn_words(prompt.words, prompting.rename, words, others, *key)
    return Varied(renamed[0], renamed[1:], chosen)


def _drawn_categories(prompt: Prompt, gold: Ids, most: int, left_out: float, *key: int) -> Ids:
    """Return the categories to ask for, ascending: the gold ones, and a draw of the others."""
    count = len(prompt.categories)
    least = min(count, MIN_CATEGORIES) if (prompt.regions == Region.ANCHOR).any() else 1
    others = count - len(gold)
    fewer = math.floor(left_out * others + uniform([0], _FEWER, *key)[0])  # rounded at random, exact on average
    kept = max(least, len(gold) + others - fewer)
    kept = max(len(gold), min(kept, most))
    if kept == count:
        return np.arange(count, dtype=np.int32)
    draw_k = keys(np.arange(count), _LEFT, *key)
    draw_k[gold] = 0
    return np.sort(np.argsort(draw_k, kind="stable")[:kept]).astype(np.int32)


def _drawn_words(wanted: list[int], rename: float, words: Lists, others: Lists, *key: int) -> list[Ids]:
    """Return each word, or one of its synonyms, unless another word of the prompt is or becomes the same."""
    renamed_k = (uniform(wanted, _RENAMED, *key) < rename).tolist()
    which_k = uniform(wanted, _WHICH, *key).tolist()
    drawn = []
    for word, renamed, which in zip(wanted, renamed_k, which_k, strict=True):
        other = others[word] if renamed else ()
        drawn.append(int(other[int(which * len(other))]) if len(other) else word)
    times = Counter([*wanted, *drawn])
    return [words[new if times[new] == 1 else word] for word, new in zip(wanted, drawn, strict=True)]
