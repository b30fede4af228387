"""The batch, the head and the losses for masked words (SpanBERT, section 3, equations 1 to 4).

Only the hidden states of masked tokens pass through the head and the vocabulary: a full head would discard
most of its output.

Shapes: B texts, L padded tokens, D width of the encoder, E width of its word embeddings (less than D in
ALBERT and ELECTRA), M masked tokens of the batch, S tokens predicted from the boundaries of their span, V
tokens of the vocabulary. Positions count through the padded batch: b * L + l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ubert.encoder.movable import Movable
from ubert.encoder.ragged import Ids
from ubert.spanbert.masking import BOUNDARY_TARGETS, Masked
from ubert.structure.batch import Special
from ubert.structure.structure_table import at_least_float32

PLACE_SIZE = 200  # width of the embedding of a token's position in its span (section 4.2)


@dataclass(frozen=True)
class MaskedBatch(Movable):
    """Padded texts with masks, each [CLS] text [SEP]."""

    ids_BL: Tensor  # int64
    mask_BL: Tensor  # bool
    types_BL: Tensor  # int64
    position_M: Tensor  # int64
    target_M: Tensor  # int64
    boundary_S3: Tensor  # int64: positions of the tokens before and after the span, position in the span
    boundary_target_S: Tensor  # int64
    tokens: int  # without padding

    @property
    def counts(self) -> tuple[int, int]:
        """The number of tokens that each of the two losses sums over."""
        return len(self.target_M), len(self.boundary_target_S)


def masked_batch(texts: Sequence[Masked], special: Special) -> MaskedBatch:
    """Pad texts to the longest of them."""
    length_B = np.array([len(text.ids) + 2 for text in texts])
    width = int(length_B.max())
    position_L = np.arange(width)
    mask_BL = position_L < length_B[:, None]
    ids_BL = np.full(mask_BL.shape, special.pad, np.int64)
    ids_BL[mask_BL & (position_L > 0) & (position_L < length_B[:, None] - 1)] = np.concatenate(
        [t.ids for t in texts]
    )
    ids_BL[:, 0] = special.cls
    ids_BL[np.arange(len(texts)), length_B - 1] = special.sep
    first_B = np.arange(len(texts)) * width + 1  # the first token of each text

    def joined(parts: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(np.int64))

    def moved(places: list[Ids]) -> Tensor:
        """Convert positions in texts to positions in the batch."""
        return joined([at + b for at, b in zip(places, first_B, strict=True)])

    sides = [moved([text.boundary[:, side] for text in texts]) for side in (0, 1)]
    place = joined([text.boundary[:, 2] for text in texts])
    return MaskedBatch(
        ids_BL=torch.from_numpy(ids_BL),
        mask_BL=torch.from_numpy(mask_BL),
        types_BL=torch.zeros(mask_BL.shape, dtype=torch.int64),
        position_M=moved([text.positions for text in texts]),
        target_M=joined([text.targets for text in texts]),
        boundary_S3=torch.stack([*sides, place], dim=1),
        boundary_target_S=joined([text.boundary_targets for text in texts]),
        tokens=int(length_B.sum()),
    )


class MaskedHead(nn.Module):
    """Logits of the vocabulary from the encoder's output. The output weights are the encoder's word embeddings.

    A masked token is predicted through one layer from its own hidden state (BERT, section 3.1). It is also
    predicted through two layers from the two tokens beside its span and its position in it (equations 2 and
    3).
    """

    def __init__(self, width: int, vocabulary: int, embedded: int) -> None:
        super().__init__()
        self.own = _layer(width, embedded)
        self.bias_V = nn.Parameter(torch.zeros(vocabulary))
        self.place = nn.Embedding(BOUNDARY_TARGETS, PLACE_SIZE)
        self.boundary = nn.Sequential(_layer(2 * width + PLACE_SIZE, width), _layer(width, embedded))
        self.boundary_bias_V = nn.Parameter(torch.zeros(vocabulary))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def from_own(self, hidden_MD: Tensor, words_VE: Tensor) -> Tensor:
        """Return logits [M, V] of tokens from their own hidden states."""
        return functional.linear(self.own(hidden_MD), words_VE, self.bias_V)

    def from_boundary(self, before_SD: Tensor, after_SD: Tensor, place_S: Tensor, words_VE: Tensor) -> Tensor:
        """Return logits [S, V] of tokens from the hidden states beside their span and their positions in it."""
        joined = torch.cat([before_SD, after_SD, self.place(place_S).to(before_SD.dtype)], dim=1)
        return functional.linear(self.boundary(joined), words_VE, self.boundary_bias_V)

    def forward(self, hidden_BLD: Tensor, words_VE: Tensor, batch: MaskedBatch) -> Tensor:
        """Return the summed cross-entropies [2] of the masked tokens and of those predicted from boundaries.

        The caller divides each by its number of tokens over all workers; equation 4 is the sum of both.
        """
        rows = hidden_BLD.reshape(-1, hidden_BLD.shape[-1])
        own = self.from_own(rows[batch.position_M], words_VE)
        before_S, after_S, place_S = batch.boundary_S3.unbind(1)
        beside = self.from_boundary(rows[before_S], rows[after_S], place_S, words_VE)
        # a softmax over a vocabulary has too many terms for sums in bf16
        return torch.stack(
            [
                functional.cross_entropy(at_least_float32(own), batch.target_M, reduction="sum"),
                functional.cross_entropy(at_least_float32(beside), batch.boundary_target_S, reduction="sum"),
            ]
        )


def _layer(inner: int, outer: int) -> nn.Sequential:
    """Build LayerNorm(GELU(linear)), in the order of BERT's own head."""
    return nn.Sequential(nn.Linear(inner, outer), nn.GELU(), nn.LayerNorm(outer, eps=1e-12))
