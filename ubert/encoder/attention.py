"""Who sees whom: the four attention masks of UniLM (Dong et al. 2019, section 2.3) as one number a token.

A token sees those whose rank is not above its own:

    bidirectional      0 0 0 0 0    all see all
    left to right      0 1 2 3 4    each sees itself and what is before it
    right to left      4 3 2 1 0    each sees itself and what is after it
    seq2seq            0 0 0 1 2    the source sees the source; the target the source and what is before itself

Padding has a rank that no token reaches, and so is seen by padding alone. Pseudo masks (UniLMv2, Bao et al. 2020,
section 2.2) look with one rank and are looked at with another, that of padding: each sees what a word in its place
would, and is seen by itself alone.

Local layers (ModernBERT's, of which two in three attend to what is near) have a mask of their own: there a token
sees those whose position is within their reach, too.

Shapes: B sequences, L tokens of one; Q tokens that look, K tokens that are looked at.
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
FULL, LOCAL = "full_attention", "sliding_attention"  # kinds of layers, as transformers calls them

Mask = Tensor | BlockMask


def ranks(direction: Direction, tokens: int, source: int) -> Ids:
    """The rank of each token of a sequence, the first `source` of which are a seq2seq sequence's source."""
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


def seen(looking_BQ: Tensor, looked_BK: Tensor) -> Tensor:
    """Whether token q sees token k, by their ranks [B, Q, K]."""
    return looked_BK[:, None, :] <= looking_BQ[:, :, None]


def dense(looking_BQ: Tensor, looked_BK: Tensor) -> Tensor:
    """A mask to add to the scores of all heads [B, 1, Q, K]: 0 where q sees k, else the least number there is."""
    unseen = ~seen(looking_BQ, looked_BK)[:, None]
    return torch.zeros(unseen.shape, device=unseen.device).masked_fill(unseen, torch.finfo(torch.float32).min)


def blocks(rank_BL: Tensor, looked_BL: Tensor, position_BL: Tensor | None = None, reach: int = 0) -> BlockMask:
    """The mask of `flex_attention`, which leaves out blocks of which nothing is seen.

    Args:
        position_BL: with it, none sees further than `reach`.
    """

    def sees(b: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        seen = (looked_BL[b, k] <= rank_BL[b, q]) | (q == k)
        if position_BL is None:
            return seen
        return seen & ((position_BL[b, q] - position_BL[b, k]).abs() <= reach)

    sequences, tokens = rank_BL.shape
    return create_block_mask(sees, sequences, None, tokens, tokens, device=rank_BL.device)


def mask(
    encoder: Any, rank_BL: Tensor, looked_BL: Tensor, position_BL: Tensor | None = None
) -> Mask | dict[str, Mask]:
    """The mask as the encoder takes it, of tokens that look with the one rank and are looked at with the other;
    each sees itself. One for each kind of layer, where some are local.

    Args:
        position_BL: of tokens, where they don't follow one another.
    """
    in_blocks = takes_blocks(encoder, rank_BL.device)
    every = blocks(rank_BL, looked_BL) if in_blocks else _dense_with_itself(rank_BL, looked_BL)
    if not has_local_layers(encoder):
        return every
    reach = encoder.config.sliding_window
    if position_BL is None:
        position_BL = torch.arange(rank_BL.shape[1], device=rank_BL.device).expand_as(rank_BL)
    if isinstance(every, BlockMask):
        return {FULL: every, LOCAL: blocks(rank_BL, looked_BL, position_BL, reach)}
    far_BLL = (position_BL[:, :, None] - position_BL[:, None, :]).abs() > reach
    return {FULL: every, LOCAL: every.masked_fill(far_BLL[:, None], torch.finfo(every.dtype).min)}


def has_local_layers(encoder: Any) -> bool:
    """Whether some of an encoder's layers attend to what is near alone."""
    return LOCAL in (getattr(encoder.config, "layer_types", None) or ())


def _dense_with_itself(rank_BL: Tensor, looked_BL: Tensor) -> Tensor:
    found = dense(rank_BL, looked_BL)
    found.diagonal(dim1=-2, dim2=-1).zero_()
    return found


def takes_blocks(encoder: Any, device: torch.device) -> bool:
    """Whether an encoder's mask is of blocks: on CUDA, where `unpadded.prepare` could prepare it."""
    return device.type == "cuda" and encoder.config._attn_implementation == unpadded.ATTENTION
