"""The precision of matrix products, and of hidden states between layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_unpadded import batch, bert, model_of

from ubert.encoder.precision import runs_bf16
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")
PLAIN = {"avx512_f": True, "avx512_bf16": False}


@pytest.mark.parametrize(
    ("precision", "capabilities", "expected"),
    [
        ("auto", {}, False),
        ("auto", PLAIN, False),
        ("auto", PLAIN | {"avx512_bf16": True}, True),
        ("auto", PLAIN | {"amx_bf16": True}, True),
        ("auto", PLAIN | {"bf16": True}, True),
        ("bf16", PLAIN, True),
        ("fp32", {"bf16": True}, False),
    ],
)
def test_a_processor_with_instructions_for_bf16_uses_them_unless_set_otherwise(
    precision: Precision, capabilities: dict[str, bool], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert runs_bf16(precision, CPU) is expected


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize("precision", ["bfloat16", "fp16", "", None])
def test_an_unknown_precision_is_refused(precision: Any, device: torch.device) -> None:
    with pytest.raises(UserError, match=f"precision {precision!r}: expected one of auto, bf16, fp32"):
        runs_bf16(precision, device)


@pytest.mark.parametrize(
    ("precision", "native", "expected"),
    [("auto", True, True), ("auto", False, False), ("bf16", False, True), ("fp32", True, False)],
)
def test_a_gpu_that_only_emulates_bf16_uses_it_if_set_so(
    precision: Precision, native: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"bf16": not native})
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert runs_bf16(precision, GPU) is expected


def test_hidden_states_stay_in_bf16_between_layers_where_products_are() -> None:
    model, given = model_of(bert).eval(), batch()
    seen: list[torch.dtype] = []
    for layer in model.encoder.encoder.layer:
        layer.register_forward_hook(lambda _, inputs, hidden: seen.append(inputs[0].dtype))
    with torch.no_grad():
        exact = model.encode(given.ids_BL, given.mask_BL, given.types_BL)
        with torch.autocast("cpu", torch.bfloat16):
            half = model.encode(given.ids_BL, given.mask_BL, given.types_BL)
    assert seen == [torch.float32] * 3 + [torch.bfloat16] * 3
    assert (exact.dtype, half.dtype) == (torch.float32, torch.bfloat16)
