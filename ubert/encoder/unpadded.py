"""Encode a batch without padding: its sequences form one row, and a token attends only to its own sequence.

Positions restart with each sequence, and a local layer's window stays within it. GPUs run flash attention
over sequences of different lengths. Elsewhere a block-diagonal mask is used, which the tests compare with
padding. Attention weights have no dropout, whatever the encoder's configuration says: the GPU kernels don't
support it, and on a CPU it is slow.

Shapes: B sequences, L padded tokens, N tokens without padding, D encoder width, H heads, K width of a head.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "ubert"  # name of this implementation in transformers


def prepare(encoder: Any) -> None:
    """Let an encoder that uses scaled dot-product attention take both padded and unpadded batches, if it can."""
    arguments = inspect.signature(encoder.forward).parameters
    able = encoder._supports_attention_backend and {"position_ids", "kwargs"} <= arguments.keys()
    if able and encoder.config._attn_implementation == "sdpa":
        encoder.set_attn_implementation(ATTENTION)


def pays(encoder: Any, ids_BL: Tensor) -> bool:
    """Return whether a batch should be unpadded: on a GPU in bfloat16, as the kernel requires."""
    return bool(
        ids_BL.is_cuda
        and encoder.config._attn_implementation == ATTENTION
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
    )


def encode(
    encoder: Any, ids_BL: Tensor, mask_BL: Tensor, first: int, tokens: int | None = None, **types: Tensor
) -> Tensor:
    """Return the encoder's output [B, L, D], 0 at padding.

    Args:
        encoder: one that `prepare` has prepared.
        first: the position of a sequence's first token.
        tokens: N, if known; otherwise the CPU waits for the device to count them.
        types: `token_type_ids` [B, L], if the encoder has them.
    """
    place_N = torch.nonzero_static(mask_BL.flatten(), size=int(mask_BL.sum()) if tokens is None else tokens)[:, 0]
    length_B = mask_BL.sum(1)
    offset_B = F.pad(length_B.cumsum(0), (1, 0)).int()
    position_BL = torch.arange(first, first + ids_BL.shape[1], device=ids_BL.device).expand_as(ids_BL)
    hidden_1ND = encoder(
        input_ids=ids_BL.flatten()[place_N][None],
        position_ids=position_BL.flatten()[place_N][None],
        offsets=offset_B,
        longest=ids_BL.shape[1],
        **{name: tensor.flatten()[place_N][None] for name, tensor in types.items()},
    ).last_hidden_state
    # not `masked_scatter`, whose gradient waits for the device
    hidden_BLD: Tensor = hidden_1ND.new_zeros(*ids_BL.shape, hidden_1ND.shape[-1])
    return hidden_BLD.flatten(0, 1).index_copy(0, place_N, hidden_1ND[0]).view_as(hidden_BLD)


def _attention(
    module: Any,
    query_BHLK: Tensor,
    key_BHLK: Tensor,
    value_BHLK: Tensor,
    attention_mask: Tensor | BlockMask | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    offsets: Tensor | None = None,
    longest: int = 0,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention of a layer, in the signature of transformers.

    Args:
        sliding_window: a token attends to tokens less than this distance away.
        dropout: the configuration's dropout, which is ignored.
    """
    if isinstance(attention_mask, BlockMask):
        return flex_attention_forward(module, query_BHLK, key_BHLK, value_BHLK, attention_mask, scaling=scaling)
    if offsets is not None and query_BHLK.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        reach = -1 if sliding_window is None else sliding_window - 1
        query, key, value = (
            tensor[0].transpose(0, 1).to(value_BHLK.dtype) for tensor in (query_BHLK, key_BHLK, value_BHLK)
        )
        window = (reach, reach)
        mixed: Any = varlen_attn(
            query, key, value, offsets, offsets, longest, longest, scale=scaling, window_size=window
        )
        return mixed[None], None
    if offsets is not None:
        attention_mask = block_diagonal(offsets, query_BHLK.shape[2], sliding_window)
    # transformers handles keys that heads share, and implicit causal masks
    simple = key_BHLK.shape == query_BHLK.shape and not getattr(module, "is_causal", True)
    if simple and torch.is_grad_enabled() and not query_BHLK.is_cuda:
        return _plain(query_BHLK, key_BHLK, value_BHLK, attention_mask, scaling), None
    return sdpa_attention_forward(
        module, query_BHLK, key_BHLK, value_BHLK, attention_mask, scaling=scaling, **others
    )


def _plain(
    query_BHLK: Tensor, key_BHLK: Tensor, value_BHLK: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Compute attention [B, L, H, K] by its definition. On a CPU, forward and backward are faster than with
    the kernels behind `scaled_dot_product_attention`."""
    scaling = query_BHLK.shape[-1] ** -0.5 if scaling is None else scaling
    score_BHLL = (query_BHLK * scaling) @ key_BHLK.mT
    if mask is not None and mask.dtype == torch.bool:
        score_BHLL = score_BHLL.masked_fill(~mask, torch.finfo(score_BHLL.dtype).min)
    elif mask is not None:
        score_BHLL = score_BHLL + mask
    return (score_BHLL.softmax(-1).to(value_BHLK.dtype) @ value_BHLK).transpose(1, 2)


def block_diagonal(offset_B: Tensor, tokens: int, sliding_window: int | None) -> Tensor:
    """Return which tokens attend to which [1, 1, N, N]."""
    place_N = torch.arange(tokens, device=offset_B.device)
    sequence_N = torch.searchsorted(offset_B[1:], place_N, right=True)
    mask_NN = sequence_N[:, None] == sequence_N
    if sliding_window is not None:
        mask_NN &= (place_N[:, None] - place_N).abs() < sliding_window
    return mask_NN[None, None]


def _mask(*, attention_mask: Tensor | None = None, **others: Any) -> Tensor | None:
    """Return the mask of a padded batch; an unpadded batch has none."""
    if attention_mask is None:
        return None
    if attention_mask.is_cuda:  # checking whether the mask can be skipped would wait for the device
        others["allow_is_bidirectional_skip"] = False
    return sdpa_mask(attention_mask=attention_mask, **others)


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)
