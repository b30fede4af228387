"""The precision of matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ubert.schema.specs.recipe import Precision


def runs_bf16(precision: Precision, device: torch.device) -> bool:
    """Return whether matrix products run in bfloat16. `auto`: if the processor has instructions for it."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def keep_half(encoder: Any) -> None:
    """Keep an encoder's hidden states in bfloat16 between layers, when it computes in bfloat16 on a CPU.

    Autocast casts the inputs of each matrix product, but sums and norms of the embeddings' output stay in
    float32. The casts and the float32 element-wise operations took a quarter of a step. Weights stay in
    float32.
    """
    if (embeddings := getattr(encoder, "embeddings", None)) is not None:
        embeddings.register_forward_hook(_half)


def _half(module: torch.nn.Module, inputs: Any, hidden_BLD: Any) -> Any:
    half = isinstance(hidden_BLD, Tensor) and not hidden_BLD.is_cuda and torch.is_autocast_enabled("cpu")
    return hidden_BLD.to(torch.get_autocast_dtype("cpu")) if half else hidden_BLD
