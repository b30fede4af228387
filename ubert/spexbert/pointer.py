"""SpEx-BERT (section 3): the answer is a span of a source, and two vectors score where it starts and ends.

    one text      [CLS] c_1, c_2, ... c_k [SEP] t [SEP] text [SEP]
    two texts     [CLS] text c_1, c_2, ... c_k [SEP] t [SEP] pair [SEP]
    a question    [CLS] text unanswerable [SEP] t [SEP] question [SEP] (pair [SEP])

The source reaches to the first [SEP] (segment 0). The auxiliary text follows (segment 1); it starts with the
instruction t. Table 1 of the paper has no t, as one model of the paper seldom has two tasks with the same
choices.

Shapes: B sequences, L padded tokens of one, D width, k choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ubert.encoder.movable import Movable
from ubert.encoder.ragged import Ids
from ubert.schema.specs.recipe import LossScale
from ubert.structure.batch import Example, Region, Special, groups

NOWHERE = -100  # the index that cross-entropy ignores
BETWEEN, NO_ANSWER = ",", "unanswerable"


class Phrases(NamedTuple):
    """Tokens of a source. `between`: the separator of choices, a comma, or the category marker if the comma
    is several tokens. `no_answer`: the tokens of "unanswerable" (section 4.1)."""

    between: int
    no_answer: Ids


class Pointed(NamedTuple):
    """One sequence, whose source is the `source` tokens from position 1.

    The model may point at any span of the source's first `text` tokens, or at one of the choices. `choices`
    [k, 2]: positions of their first and last tokens. `categories` [k]: their categories in the example.
    `gold`: first and last position of the right span, or `NOWHERE`.
    """

    ids: Ids
    source: int
    choices: Ids
    categories: Ids
    text: int
    gold: tuple[int, int]


@dataclass(frozen=True)
class PointerBatch(Movable):
    """Padded sequences."""

    ids_BL: Tensor  # int64
    mask_BL: Tensor  # bool
    types_BL: Tensor  # int64
    source_B: Tensor  # int64: tokens of each source
    gold_B2: Tensor  # int64: positions
    examples: int  # texts in the batch; a text has a sequence for each question
    tokens: int  # without padding

    @property
    def counts(self) -> tuple[int]:
        """The number of sequences that the loss sums over."""
        return (len(self.source_B),)


def sequences(
    example: Example, chosen: Ids, phrases: Phrases, special: Special, *, most_categories: int, most_tokens: int
) -> Iterator[Pointed]:
    """Yield the sequences of an example: one for each question, or as many choices together as the limits allow.

    If a question has several answers, the first one is gold, as the paper has only one.

    Args:
        chosen: indices of the categories to ask for, ascending.
        most_categories: maximum number of categories of a sequence.
        most_tokens: maximum length of a sequence.

    Raises:
        ValueError: the texts and one choice don't fit into `most_tokens`.
    """
    if len(chosen) and example.regions[chosen[0]] & Region.TRIANGLE:
        yield from (_question(example, category, phrases, special) for category in chosen.tolist())
        return
    room = most_tokens - len(example.text) - len(example.pair) - 1
    for group in groups(example.instruction, example.categories, chosen, most_categories, room):
        yield _choices(example, group, phrases, special)


def _choices(example: Example, chosen: Ids, phrases: Phrases, special: Special) -> Pointed:
    """Build the sequence of several choices. With two texts, the first one is part of the source (section 6.1)."""
    source, auxiliary = (example.text, example.pair) if len(example.pair) else (example.pair, example.text)
    size_k = np.array([len(example.categories[i]) for i in chosen.tolist()])
    first_k = 1 + len(source) + np.cumsum(size_k + 1) - size_k - 1
    places = np.stack([first_k, first_k + size_k - 1], axis=1).astype(np.int32)
    between = np.array([phrases.between], np.int32)
    parts = [part for i in chosen.tolist() for part in (example.categories[i], between)][:-1]
    ids, length = _joined([source, *parts], [example.instruction, auxiliary], special)
    right = np.flatnonzero(np.isin(chosen, example.gold_anchors))
    return Pointed(ids, length, places, chosen, 0, _span(places[right]))


def _question(example: Example, category: int, phrases: Phrases, special: Special) -> Pointed:
    auxiliary = [example.instruction, example.categories[category], example.pair]
    ids, length = _joined([example.text, phrases.no_answer], auxiliary, special)
    text = len(example.text)
    nothing = np.array([[1 + text, length]], np.int32)
    answers = example.gold_cells[example.gold_cells[:, 0] == category, 1:] + 1
    right = answers if len(answers) else nothing[: int(category in example.gold_anchors)]
    return Pointed(ids, length, nothing, np.array([category], np.int32), text, _span(right))


def _joined(source: Sequence[Ids], auxiliary: Sequence[Ids], special: Special) -> tuple[Ids, int]:
    """Build [CLS] source [SEP] (part [SEP])... Also return the number of the source's tokens."""
    sep = np.array([special.sep], np.int32)
    after = [each for part in auxiliary if len(part) for each in (part, sep)]
    ids = np.concatenate([np.array([special.cls], np.int32), *source, sep, *after])
    return ids.astype(np.int32), sum(map(len, source))


def _span(spans: Ids) -> tuple[int, int]:
    return (int(spans[0, 0]), int(spans[0, 1])) if len(spans) else (NOWHERE, NOWHERE)


def padded(items: Sequence[Pointed], special: Special, examples: int) -> PointerBatch:
    """Pad sequences to the longest of them.

    Args:
        examples: how many texts the sequences come from.
    """
    length_B = np.array([len(item.ids) for item in items])
    source_B = np.array([item.source for item in items])
    position_L = np.arange(length_B.max())
    mask_BL = position_L < length_B[:, None]
    ids_BL = np.full(mask_BL.shape, special.pad, np.int64)
    ids_BL[mask_BL] = np.concatenate([item.ids for item in items])
    types_BL = mask_BL & (position_L > source_B[:, None] + 1)
    return PointerBatch(
        ids_BL=torch.from_numpy(ids_BL),
        mask_BL=torch.from_numpy(mask_BL),
        types_BL=torch.from_numpy(types_BL.astype(np.int64)),
        source_B=torch.from_numpy(source_B),
        gold_B2=torch.tensor([item.gold for item in items]),
        examples=examples,
        tokens=int(length_B.sum()),
    )


class Pointer(nn.Module):
    """The two vectors d_start and d_end (equation 5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ends = nn.Linear(width, 2, bias=False)
        nn.init.normal_(self.ends.weight, std=0.02)

    def forward(self, hidden_BLD: Tensor, source_B: Tensor) -> Tensor:
        """Return logits [B, L, 2] of starts and ends, in fp32 or wider; -inf outside the source."""
        position_L = torch.arange(hidden_BLD.shape[1], device=hidden_BLD.device)
        within_BL = (position_L >= 1) & (position_L <= source_B[:, None])
        with torch.autocast(hidden_BLD.device.type, enabled=False):
            wide_BLD = hidden_BLD.to(torch.promote_types(hidden_BLD.dtype, self.ends.weight.dtype))
            logits_BL2: Tensor = self.ends(wide_BLD)
        return logits_BL2.masked_fill(~within_BL[:, :, None], float("-inf"))


def loss(logits_BL2: Tensor, batch: PointerBatch, scale: LossScale = "sum") -> Tensor:
    """Return the cross-entropies of start and end (equation 6), summed over a batch. Sequences without gold add 0.

    Args:
        scale: `log` divides a sequence's loss by the log of the number of tokens to choose among (MUPPET, section
            3.2), so that an untrained model has a loss of 2 for any number of choices or length of text.
    """
    nats_B2 = F.cross_entropy(logits_BL2, batch.gold_B2, reduction="none", ignore_index=NOWHERE)
    if scale == "log":
        nats_B2 = nats_B2 / batch.source_B.clamp(min=2).to(nats_B2).log()[:, None]
    return nats_B2.sum()
