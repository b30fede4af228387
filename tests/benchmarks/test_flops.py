"""The arithmetic of `benchmarks/gpu.py`, compared with torch's own count of a step's matrix products."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmarks.flops import GPUS, Encoder, Flops, Table, least_seconds, of_step

BENCHMARK = Path(__file__).parents[2] / "benchmarks/gpu.py"


@pytest.mark.parametrize("length", [16, 128])
@pytest.mark.parametrize(("layers", "width", "inner"), [(1, 32, 64), (3, 64, 256)])
def test_the_encoder_has_as_many_as_torch_counts(length: int, layers: int, width: int, inner: int) -> None:
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner}
    config = BertConfig(vocab_size=100, num_attention_heads=2, attn_implementation="eager", **sizes)
    encoder = BertModel(config, add_pooling_layer=False)
    embedded = torch.randn(3, length, width, requires_grad=True)  # what the lowest layer gives its gradient to
    with FlopCounterMode(display=False) as counted:
        encoder(inputs_embeds=embedded).last_hidden_state.sum().backward()
    lengths = [length] * 3
    mine = of_step(Encoder(layers, width, inner), Table(8, False), lengths, lengths, [0] * 3)
    assert mine.weights + mine.attention == counted.get_total_flops()


def test_tables_have_two_a_coordinate_of_each_cell() -> None:
    none = of_step(Encoder(1, 8, 8), Table(4, False), [10], [0], [1])
    some = of_step(Encoder(1, 8, 8), Table(4, False), [10], [5], [1])
    assert some.head - none.head == 3 * 15 * 2 * 4
    assert (some.weights, some.attention) == (none.weights, none.attention)


def test_longer_sequences_have_more_attention_alone() -> None:
    whole = of_step(Encoder(2, 8, 16), Table(4, True), [20], [0], [0])
    parts = of_step(Encoder(2, 8, 16), Table(4, True), [10, 10], [0, 0], [0, 0])
    assert (whole.weights, whole.head) == (parts.weights, parts.head)
    assert whole.attention == 2 * parts.attention


def test_a_roofline_is_arithmetic_and_then_the_optimizer() -> None:
    assert least_seconds(Flops(989 * 10**9, 0, 0), 0, GPUS["H100"]) == pytest.approx(1e-3)
    assert least_seconds(Flops(0, 0, 0), 10**9, GPUS["H200"]) == pytest.approx(28e9 / 4.8e12)


def test_without_a_gpu_the_benchmark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(BENCHMARK)])
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        SystemExit, match=r"^gpu\.py needs a CUDA device, and torch sees none; run it on a machine with one$"
    ):
        runpy.run_path(str(BENCHMARK), run_name="__main__")
