"""Predict the next token of a target at a [MASK] after the tokens so far (Dong et al. 2019, section 2.5).

The sequences have the form that `ubert.unilm.sequences.generation` makes for training.

Shapes: S sources, L tokens of the longest source, N beams, t tokens so far, C new tokens, K attended tokens,
D width, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from ubert.encoder.attention import PADDING, dense, has_local_layers, mask, ranks
from ubert.encoder.ragged import Ids
from ubert.inference.generation.beam import Step
from ubert.inference.generation.cache import GrowingLayer
from ubert.unilm.cloze import Cloze, encode, padded
from ubert.unilm.copying import Copied, Copier

SOURCE, TARGET = 4, 5  # segment ids

Head = Callable[[Tensor], Tensor]


def decoder(
    encoder: Any,
    head: Head,
    sources: Sequence[Ids],
    hidden: int,
    first_position: int = 0,
    copier: Copier | None = None,
) -> Step:
    """Make a step of beam search. It uses a cache if the encoder accepts one and has no local layers.

    Args:
        head: maps hidden states [N, D] to logits [N, V].
        sources: ids of [CLS] ... [SEP].
        hidden: the id of [MASK].
        first_position: position id of the first token.
        copier: copies tokens from the source, if the model has one.
    """
    if "past_key_values" in inspect.signature(encoder.forward).parameters and not has_local_layers(encoder):
        return Cached(encoder, head, sources, hidden, first_position, copier)
    return Uncached(encoder, head, sources, hidden, copier)


class Uncached:
    """Encode the whole sequence again for each token, as in training."""

    def __init__(
        self, encoder: Any, head: Head, sources: Sequence[Ids], hidden: int, copier: Copier | None = None
    ) -> None:
        self.encoder, self.head, self.hidden, self.copier = encoder, head, hidden, copier
        self.sources = list(sources)

    def __call__(self, words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        self.sources = [self.sources[parent] for parent in parent_N.tolist()]
        words = words_Nt.cpu().numpy()
        items = [self._sequence(source, own) for source, own in zip(self.sources, words, strict=True)]
        batch = padded(items, self.hidden).to(words_Nt.device)
        sees = mask(self.encoder, batch.rank_BL, batch.looked_BL)
        hidden_BLD = encode(self.encoder, batch.ids_BL, batch.types_BL, sees)
        predicted_ND = hidden_BLD.flatten(0, 1)[batch.hidden_H]
        before_N = batch.ids_BL.flatten()[batch.hidden_H - 1]
        copied = Copied(hidden_BLD, batch.source_BL, batch.ids_BL)
        return _logp(self.head, self.copier, predicted_ND, before_N, copied)

    def _sequence(self, source: Ids, words: Ids) -> Cloze:
        ids = np.concatenate([source, words, [self.hidden]]).astype(np.int32)
        types = np.where(np.arange(len(ids)) < len(source), SOURCE, TARGET).astype(np.int32)
        last = np.array([len(ids) - 1], np.int32)
        return Cloze(ids, types, ranks("seq2seq", len(ids), len(source)), last, last)


class Cached:
    """Cache the keys and values of all tokens except [MASK]; a step encodes only the last token and [MASK].

    Sources are padded at their end. Target tokens follow the padding and don't attend to it. Their positions
    continue from the end of their own source.
    """

    def __init__(
        self,
        encoder: Any,
        head: Head,
        sources: Sequence[Ids],
        hidden: int,
        first_position: int = 0,
        copier: Copier | None = None,
    ) -> None:
        self.encoder, self.head, self.hidden, self.copier = encoder, head, hidden, copier
        self.first_position = first_position
        nothing = np.empty(0, np.int32)
        items = [Cloze(ids, np.full_like(ids, SOURCE), np.zeros_like(ids), nothing, nothing) for ids in sources]
        batch = padded(items, hidden).to(next(encoder.parameters()).device)
        self.cache = Cache(layer_class_to_replicate=GrowingLayer)
        self.ids_SL, self.types_SL = batch.ids_BL, batch.types_BL
        self.rank_NK = batch.rank_BL  # of the cached tokens
        self.source_N1 = (self.rank_NK != PADDING).sum(1, keepdim=True)

    def __call__(self, words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        length = words_Nt.shape[1]
        if length == 0:
            ids_NC, types_NC, rank_NC = self.ids_SL, self.types_SL, self.rank_NK
            place_NC = torch.arange(ids_NC.shape[1], device=ids_NC.device).expand_as(ids_NC)
        else:
            self._go_on(parent_N)
            ids_NC = words_Nt[:, -1:]
            types_NC, rank_NC = torch.full_like(ids_NC, TARGET), torch.full_like(ids_NC, length)
            place_NC = self.source_N1 + length - 1
            self.rank_NK = torch.cat([self.rank_NK, rank_NC], 1)
        one_N1 = torch.ones_like(ids_NC[:, :1])
        last_N1 = one_N1 * (length + 1)
        looking_NC, looked_NK = torch.cat([rank_NC, last_N1], 1), torch.cat([self.rank_NK, last_N1], 1)
        hidden_NCD = encode(
            self.encoder,
            torch.cat([ids_NC, one_N1 * self.hidden], 1),
            torch.cat([types_NC, one_N1 * TARGET], 1),
            dense(looking_NC, looked_NK),
            position_ids=torch.cat([place_NC, self.source_N1 + length], 1) + self.first_position,
            past_key_values=self.cache,
        )
        self.cache.crop(-1)  # the [MASK]
        if length == 0:
            self.copied = Copied(hidden_NCD[:, :-1], rank_NC == 0, ids_NC)
            before_N = ids_NC.gather(1, self.source_N1 - 1).squeeze(1)
        else:
            before_N = ids_NC[:, -1]
        return _logp(self.head, self.copier, hidden_NCD[:, -1], before_N, self.copied)

    def _go_on(self, parent_N: Tensor) -> None:
        """Reorder the cache to the beams that continue; skip the copy if all of them continue in order."""
        if torch.equal(parent_N, torch.arange(len(self.source_N1), device=parent_N.device)):
            return
        self.cache.reorder_cache(parent_N)  # type: ignore[arg-type]  # wants a LongTensor, which mypy never sees
        self.source_N1, self.rank_NK = self.source_N1[parent_N], self.rank_NK[parent_N]
        if self.copier is not None:
            self.copied = Copied(*(each[parent_N] for each in self.copied))


def _logp(head: Head, copier: Copier | None, predicted_ND: Tensor, before_N: Tensor, copied: Copied) -> Tensor:
    logp_NV = head(predicted_ND).float().log_softmax(-1)
    if copier is None:
        return logp_NV
    copied_NK = copier.attention(predicted_ND[:, None], before_N[:, None], copied).squeeze(1)
    return copier.of_all(logp_NV, predicted_ND, copied_NK, copied.ids_BK)
