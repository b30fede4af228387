"""The four attention masks of UniLM (Dong et al. 2019, section 2.3), stored as one integer per token, its rank.

A token attends to every token whose rank is not above its own:

    bidirectional      0 0 0 0 0    every token attends to all
    left to right      0 1 2 3 4    each attends to itself and to the tokens before it
    right to left      4 3 2 1 0    each attends to itself and to the tokens after it
    seq2seq            0 0 0 1 2    the source attends to itself; a target token also to itself and those before

Padding has a rank above all others, so only padding attends to it. A pseudo mask (UniLMv2, Bao et al. 2020,
section 2.2) has one rank as a query and the padding's rank as a key. It attends to what a word in its place
would attend to, and no other token attends to it.

Local layers (two thirds of ModernBERT's layers) have a second mask, which also limits the distance between
positions.

Shapes: B sequences, L tokens of a sequence; Q query tokens, K key tokens.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from ubert.encoder import unpadded
from ubert.encoder.ragged import Ids

Direction = Literal["bidirectional", "left_to_right", "right_to_left", "seq2seq"]
PADDING = 2**31 - 1  # rank
FULL, LOCAL = "full_attention", "sliding_attention"  # layer types of transformers

Mask = Tensor | BlockMask


def ranks(direction: Direction, tokens: int, source: int) -> Ids:
    """Return the rank of each token of a sequence. `source`: the length of the source, for seq2seq."""
    order = np.arange(tokens, dtype=np.int32)
    match direction:
        case "bidirectional":
            return np.zeros_like(order)
        case "left_to_right":
            return order
        case "right_to_left":
            return np.ascontiguousarray(order[::-1])
        case "seq2seq":
            return np.maximum(order - (source - 1), 0)


def seen(query_rank_BQ: Tensor, key_rank_BK: Tensor) -> Tensor:
    """Return whether query q attends to key k, by their ranks [B, Q, K]."""
    return key_rank_BK[:, None, :] <= query_rank_BQ[:, :, None]


def dense(query_rank_BQ: Tensor, key_rank_BK: Tensor) -> Tensor:
    """Return an additive mask for all heads [B, 1, Q, K]: 0 where q attends to k, the lowest float32 elsewhere."""
    unseen = ~seen(query_rank_BQ, key_rank_BK)[:, None]
    return torch.zeros(unseen.shape, device=unseen.device).masked_fill(unseen, torch.finfo(torch.float32).min)


def blocks(rank_BL: Tensor, key_rank_BL: Tensor, position_BL: Tensor | None = None, reach: int = 0) -> BlockMask:
    """Return the mask for `flex_attention`, which skips blocks in which nothing is attended to.

    Args:
        position_BL: if given, a token attends only to positions at a distance of at most `reach`.
    """

    def sees(b: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        seen = (key_rank_BL[b, k] <= rank_BL[b, q]) | (q == k)
        if position_BL is None:
            return seen
        return seen & ((position_BL[b, q] - position_BL[b, k]).abs() <= reach)

    sequences, tokens = rank_BL.shape
    return create_block_mask(sees, sequences, None, tokens, tokens, device=rank_BL.device)


def mask(
    encoder: Any, rank_BL: Tensor, key_rank_BL: Tensor, position_BL: Tensor | None = None
) -> Mask | dict[str, Mask]:
    """Return the mask in the encoder's form, or one for each layer type if some layers are local. Each token
    attends to itself.

    Args:
        rank_BL: ranks of the tokens as queries.
        key_rank_BL: ranks of the tokens as keys.
        position_BL: positions of the tokens, if they aren't consecutive.
    """
    in_blocks = takes_blocks(encoder, rank_BL.device)
    every = blocks(rank_BL, key_rank_BL) if in_blocks else _dense_with_itself(rank_BL, key_rank_BL)
    if not has_local_layers(encoder):
        return every
    reach = encoder.config.sliding_window
    if position_BL is None:
        position_BL = torch.arange(rank_BL.shape[1], device=rank_BL.device).expand_as(rank_BL)
    if isinstance(every, BlockMask):
        return {FULL: every, LOCAL: blocks(rank_BL, key_rank_BL, position_BL, reach)}
    far_BLL = (position_BL[:, :, None] - position_BL[:, None, :]).abs() > reach
    return {FULL: every, LOCAL: every.masked_fill(far_BLL[:, None], torch.finfo(every.dtype).min)}


def has_local_layers(encoder: Any) -> bool:
    """Return whether some layers of an encoder attend only to nearby tokens."""
    return LOCAL in (getattr(encoder.config, "layer_types", None) or ())


def _dense_with_itself(rank_BL: Tensor, key_rank_BL: Tensor) -> Tensor:
    found = dense(rank_BL, key_rank_BL)
    found.diagonal(dim1=-2, dim2=-1).zero_()
    return found


def takes_blocks(encoder: Any, device: torch.device) -> bool:
    """Return whether an encoder takes block masks: on CUDA, if `unpadded.prepare` has prepared it."""
    return device.type == "cuda" and encoder.config._attn_implementation == unpadded.ATTENTION
