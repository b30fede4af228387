"""The precision of matrix products."""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor, nn

from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision


def runs_bf16(precision: Precision, device: torch.device) -> bool:
    """Return whether matrix products run in bfloat16. `auto`: if the processor has instructions for it.

    Raises:
        UserError: there is no such precision.
    """
    if precision not in get_args(Precision):
        raise UserError(f"precision {precision!r}: expected one of {', '.join(get_args(Precision))}")
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def keep_half(encoder: Any) -> None:
    """Keep an encoder's hidden states in bfloat16 between layers, when it computes in bfloat16.

    Autocast casts the inputs of each matrix product, but the output of the embeddings stays in float32. On a GPU
    the output of each norm stays in float32, too, and query, key and value would each cast it. The casts and the
    element-wise operations in float32 took a quarter of a step. Norms are computed in float32, and weights stay in
    float32.
    """
    for name, module in encoder.named_modules():
        if name == "embeddings" or isinstance(module, nn.LayerNorm):
            module.register_forward_hook(_half)


def _half(module: nn.Module, inputs: Any, hidden_BLD: Any) -> Any:
    if not isinstance(hidden_BLD, Tensor) or not torch.is_autocast_enabled(hidden_BLD.device.type):
        return hidden_BLD
    return hidden_BLD.to(torch.get_autocast_dtype(hidden_BLD.device.type))
