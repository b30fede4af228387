"""In which precision matrix products run."""

from __future__ import annotations

import torch

from ubert.schema.recipe import Precision


def runs_bf16(precision: Precision, device: torch.device) -> bool:
    """Whether matrix products run in bfloat16. `auto`: where the processor has instructions for it."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
