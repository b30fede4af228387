"""Clozes, which are sequences with hidden words to predict: their padded batch and their loss.

Shapes: B sequences, L padded tokens of one, H hidden tokens, D width, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ubert.encoder.attention import PADDING, mask, ranks
from ubert.encoder.movable import Movable
from ubert.encoder.ragged import Ids
from ubert.schema.errors import UserError
from ubert.unilm.copying import Copied, Copier

SEGMENTS = 6  # segment ids of UniLM: bidirectional 0 and 1, left to right 2, right to left 3, seq2seq 4 and 5
_LEARNT_AS = (0, 1, 0, 0, 0, 1)  # BERT's segment from which each is initialised


class Cloze(NamedTuple):
    """One sequence. `ids` with hidden words, segment ids and `ranks` (see `ubert.encoder.attention`) have an
    entry per token.

    `hidden` [h]: positions of the hidden words, ascending. `answers` [h]: their ids. `looked`: ranks of the
    tokens as attention keys, if they differ from `ranks`. `positions`: positions of the tokens, if they
    aren't consecutive. `before` [h]: the word before each hidden one, only for a target with a source.
    """

    ids: Ids
    types: Ids
    ranks: Ids
    hidden: Ids
    answers: Ids
    looked: Ids | None = None
    positions: Ids | None = None
    before: Ids | None = None


@dataclass(frozen=True)
class ClozeBatch(Movable):
    """Padded sequences. `hidden_H` counts through the batch: b * L + position.

    `smoothing`: the part of the answer's probability that is spread over the vocabulary. `before_BL`: for
    targets, the word before each hidden one, at the hidden word's position; -1 elsewhere.
    """

    ids_BL: Tensor  # int64
    mask_BL: Tensor  # bool: False at padding
    types_BL: Tensor  # int64
    rank_BL: Tensor  # int64
    looked_BL: Tensor  # int64
    position_BL: Tensor | None  # int64; None if consecutive
    hidden_H: Tensor  # int64
    answer_H: Tensor  # int64
    smoothing: float
    before_BL: Tensor | None  # int64

    @property
    def counts(self) -> tuple[int]:
        """The number of words that the loss sums over."""
        return (len(self.hidden_H),)

    @property
    def source_BL(self) -> Tensor:  # noqa: N802
        """Whether a token belongs to the source of a target: all tokens attend to the source."""
        return self.looked_BL == 0


def padded(items: Sequence[Cloze], pad: int, smoothing: float = 0.0) -> ClozeBatch:
    """Pad sequences to the longest of them, with the token `pad`."""
    longest = max(len(item.ids) for item in items)

    def stacked(columns: Sequence[Ids], filler: int) -> Tensor:
        table = np.full((len(items), longest), filler, np.int64)
        for row, column in zip(table, columns, strict=True):
            row[: len(column)] = column
        return torch.from_numpy(table)

    hidden = [item.hidden.astype(np.int64) + b * longest for b, item in enumerate(items)]
    positions = [item.positions for item in items if item.positions is not None]
    rank_BL = stacked([item.ranks for item in items], PADDING)
    return ClozeBatch(
        ids_BL=stacked([item.ids for item in items], pad),
        mask_BL=rank_BL != PADDING,
        types_BL=stacked([item.types for item in items], 0),
        rank_BL=rank_BL,
        looked_BL=stacked([item.ranks if item.looked is None else item.looked for item in items], PADDING),
        position_BL=stacked(positions, 0) if positions else None,
        hidden_H=torch.from_numpy(np.concatenate(hidden)),
        answer_H=torch.from_numpy(np.concatenate([item.answers for item in items]).astype(np.int64)),
        smoothing=smoothing,
        before_BL=None if items[0].before is None else _before(items, longest),
    )


def _before(items: Sequence[Cloze], longest: int) -> Tensor:
    table = np.full((len(items), longest), -1, np.int64)
    for row, item in zip(table, items, strict=True):
        assert item.before is not None
        row[item.hidden] = item.before
    return torch.from_numpy(table)


def loss(
    encoder: Any,
    head: Callable[[Tensor], Tensor],
    batch: ClozeBatch,
    first_position: int = 0,
    copier: Copier | None = None,
) -> tuple[Tensor, int]:
    """Return the summed cross-entropy of the hidden words, with label smoothing (Szegedy et al. 2016, section
    7), and their number.

    With a copier, label smoothing applies only to the distribution of `head`.

    Args:
        head: hidden states of the hidden words [H, D] to logits [H, V].
        first_position: position of a sequence's first token.
        copier: copies words of a target from its source.
    """
    more = {} if batch.position_BL is None else {"position_ids": batch.position_BL + first_position}
    sees = mask(encoder, batch.rank_BL, batch.looked_BL, batch.position_BL)
    hidden_BLD = encode(encoder, batch.ids_BL, batch.types_BL, sees, **more)
    predicted_HD = hidden_BLD.flatten(0, 1)[batch.hidden_H]
    logits_HV = head(predicted_HD).float()
    if copier is None or batch.before_BL is None:
        summed = F.cross_entropy(logits_HV, batch.answer_H, reduction="sum", label_smoothing=batch.smoothing)
    else:
        logp_HV = logits_HV.log_softmax(-1)
        copied = Copied(hidden_BLD, batch.source_BL, batch.ids_BL)
        copied_HL = copier.attention(hidden_BLD, batch.before_BL, copied).flatten(0, 1)[batch.hidden_H]
        ids_HL = batch.ids_BL[batch.hidden_H // batch.ids_BL.shape[1]]
        answer_H = copier.of_answers(logp_HV, predicted_HD, copied_HL, ids_HL, batch.answer_H)
        summed = -((1 - batch.smoothing) * answer_H + batch.smoothing * logp_HV.mean(-1)).sum()
    return summed, len(batch.hidden_H)


def encode(encoder: Any, ids_BL: Tensor, types_BL: Tensor, mask: Any, **more: Any) -> Tensor:
    """Return the encoder's output [B, L, D]. Segment ids are passed only to an encoder that has all of them."""
    types = {"token_type_ids": types_BL} if getattr(encoder.config, "type_vocab_size", 0) >= SEGMENTS else {}
    output: Tensor = encoder(input_ids=ids_BL, attention_mask=mask, **types, **more).last_hidden_state
    return output


def check_encoder(encoder: Any) -> None:
    """Check that an encoder can generate texts.

    Raises:
        UserError: it takes no position ids, which a [MASK] in place of a word needs; or a mask does not limit its
            attention.
    """
    if "position_ids" not in inspect.signature(encoder.forward).parameters:
        lacks = "it takes no position_ids"
    elif not _hides(encoder):
        lacks = "no mask hides its words from one another"
    else:
        return
    raise UserError(
        f"an encoder of type {encoder.config.model_type!r} can't generate text: {lacks}; leave unilm and seq2seq "
        "out of `objectives`, or give another encoder, such as BERT, RoBERTa or ModernBERT"
    )


@torch.no_grad()
def _hides(encoder: Any) -> bool:
    """Check on a small example that, with a left-to-right mask, words don't depend on later ones. Some
    encoders refuse such a mask, others ignore it."""
    ids_BL = torch.arange(8).remainder(4).repeat(2, 1)
    ids_BL[1, -1] = 0
    rank_BL = torch.from_numpy(ranks("left_to_right", 8, 0)).long().expand_as(ids_BL)
    try:
        hidden_BLD = encode(encoder, ids_BL, torch.zeros_like(ids_BL), mask(encoder, rank_BL, rank_BL))
    except (RuntimeError, ValueError, IndexError, AssertionError):  # the encoder refuses the mask
        return False
    one_LD, other_LD = hidden_BLD[:, :-1]
    return torch.allclose(one_LD, other_LD, atol=1e-4)


def learn_segments(encoder: Any) -> None:
    """Extend the encoder's segment embeddings to those of UniLM. New ones start as the most similar ones of BERT.

    An encoder without segment embeddings stays as it is: only the masks distinguish its sequences.
    """
    table = getattr(getattr(encoder, "embeddings", None), "token_type_embeddings", None)
    if table is None or table.num_embeddings >= SEGMENTS:
        return
    like = torch.tensor(_LEARNT_AS).clamp(max=table.num_embeddings - 1)
    grown = torch.nn.Embedding(SEGMENTS, table.embedding_dim, device=table.weight.device, dtype=table.weight.dtype)
    with torch.no_grad():
        grown.weight.copy_(table.weight[like.to(table.weight.device)])
    encoder.embeddings.token_type_embeddings = grown
    encoder.config.type_vocab_size = SEGMENTS
