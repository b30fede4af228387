"""Unpadded sequences are encoded like padded ones: positions restart, windows end, no sequence sees another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from test_model import batch_of, example
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
)

from ubert.encoder import unpadded
from ubert.model.ubert import Shape, UbertModel
from ubert.structure.batch import Batch

SIZE: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}


def bert() -> PreTrainedModel:
    return BertModel(BertConfig(**SIZE, max_position_embeddings=64), add_pooling_layer=False)


def after_padding(family: str) -> Callable[[], PreTrainedModel]:
    """A family whose positions begin after the padding id."""
    return lambda: AutoModel.from_config(AutoConfig.for_model(family, **SIZE, max_position_embeddings=64))


def modern_bert() -> PreTrainedModel:
    """A global layer, and two that look two tokens to each side."""
    return ModernBertModel(ModernBertConfig(**SIZE, global_attn_every_n_layers=3, local_attention=4))


def model_of(encoder: Callable[[], PreTrainedModel]) -> UbertModel:
    torch.manual_seed(0)
    return UbertModel.around(encoder(), Shape(table_size=8))


def batch() -> Batch:
    return batch_of([example(5, 3), example(30, 2), example(1, 1), example(17, 3)], "joint")


def types_of(model: UbertModel, given: Batch) -> dict[str, torch.Tensor]:
    return {"token_type_ids": given.types_BL} if model.has_types else {}


def padded_way(model: UbertModel, given: Batch) -> torch.Tensor:
    """The encoder's output at the tokens that aren't padding."""
    inputs = {"input_ids": given.ids_BL, "attention_mask": given.mask_BL, **types_of(model, given)}
    hidden: torch.Tensor = model.encoder(**inputs).last_hidden_state
    return hidden[given.mask_BL]


def both_ways(model: UbertModel, given: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The same output, and that of the unpadded batch."""
    packed = unpadded.encode(
        model.encoder, given.ids_BL, given.mask_BL, model.first_position, **types_of(model, given)
    )
    assert not packed[~given.mask_BL].any()
    return padded_way(model, given), packed[given.mask_BL]


FAMILIES = ("roberta", "data2vec-text", "xlm-roberta-xl", "roberta-prelayernorm", "esm")
AFTER_PADDING = [pytest.param(after_padding(family), id=family) for family in FAMILIES]
PADDED_ALONE = [pytest.param(after_padding(family), id=family) for family in ("ibert", "luke", "markuplm")]
ENCODERS = [bert, modern_bert, *AFTER_PADDING]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_are_those_of_the_padded_batch(encoder: Callable[[], PreTrainedModel]) -> None:
    model = model_of(encoder).eval()
    with torch.no_grad():
        padded, packed = both_ways(model, batch())
    assert padded.std() > 0.1
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_gradients_are_those_of_the_padded_batch(encoder: Callable[[], PreTrainedModel]) -> None:
    model = model_of(encoder).eval()
    gradients = []
    for way in (0, 1):
        model.zero_grad()
        both_ways(model, batch())[way].square().sum().backward()
        gradients.append([p.grad.clone() for p in model.encoder.parameters() if p.grad is not None])
    for padded, packed in zip(*gradients, strict=True):
        torch.testing.assert_close(packed, padded, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_padded_way_is_that_of_transformers(encoder: Callable[[], PreTrainedModel]) -> None:
    model = model_of(encoder).eval()
    given = batch()

    def encoded() -> torch.Tensor:
        return model.encode(given.ids_BL, given.mask_BL, given.types_BL)[given.mask_BL]

    def both() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Outputs as for predictions and in training, and gradients."""
        with torch.no_grad():
            outputs = [encoded()]
        model.zero_grad()
        outputs.append(encoded())
        outputs[1].square().sum().backward()
        return outputs, [p.grad for p in model.encoder.parameters() if p.grad is not None]

    ours = both()
    model.encoder.set_attn_implementation("eager")
    theirs = both()
    assert len(ours[1]) > 10
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("encoder", [*AFTER_PADDING, *PADDED_ALONE])
def test_the_longest_sequence_takes_all_positions(encoder: Callable[[], PreTrainedModel]) -> None:
    model = model_of(encoder).eval()
    assert (model.first_position, model.most_tokens) == (1, 63)
    for length in (63, 64):
        ids = torch.full((1, length), 5)
        inputs = ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids)
        with torch.no_grad(), nullcontext() if length == 63 else pytest.raises((IndexError, RuntimeError)):
            model.encode(*inputs)


def test_attention_weights_are_not_dropped_out() -> None:
    config = BertConfig(**SIZE, attention_probs_dropout_prob=0.9, hidden_dropout_prob=0.0)
    model, given = UbertModel.around(BertModel(config, add_pooling_layer=False), Shape(table_size=8)), batch()
    outputs = []
    for training in (True, False):
        model.train(training)
        outputs += [model.encode(given.ids_BL, given.mask_BL, given.types_BL)]
        with torch.no_grad():
            outputs += [model.encode(given.ids_BL, given.mask_BL, given.types_BL)]
    for other in outputs[1:]:
        torch.testing.assert_close(outputs[0], other, atol=1e-5, rtol=1e-5)


def test_a_mask_has_a_block_a_sequence_and_a_window_in_each() -> None:
    offsets = torch.tensor([0, 3, 5])
    whole = [[1, 1, 1, 0, 0]] * 3 + [[0, 0, 0, 1, 1]] * 2
    assert unpadded.block_diagonal(offsets, 5, None)[0, 0].int().tolist() == whole
    near = [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    assert unpadded.block_diagonal(offsets, 5, 2)[0, 0].int().tolist() == near


def test_a_processor_stays_with_padding() -> None:
    model = model_of(bert).eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert not unpadded.pays(model.encoder, batch().ids_BL)


def check_bf16(model: UbertModel, given: Batch) -> torch.Tensor:
    """In bf16 both ways are as far from fp32, and on average they don't differ.

    A number has 8 bits there: of two orders of the same sums, numbers differ by a hundredth. Returns what the
    unpadded way gave.
    """
    with torch.no_grad():
        exact = padded_way(model, given)  # on a GPU the other has no float32
    with torch.autocast(exact.device.type, torch.bfloat16):
        padded, packed = both_ways(model, given)
    off = [(found.float() - exact).square().mean().sqrt().item() for found in (padded, packed)]
    assert 0 < off[1] < 1.2 * off[0]
    assert abs((packed.float() - padded.float()).mean().item()) < 1e-3
    return packed


@pytest.mark.parametrize("encoder", ENCODERS)
def test_in_bf16_no_way_is_farther_from_fp32_than_the_other(encoder: Callable[[], PreTrainedModel]) -> None:
    check_bf16(model_of(encoder).eval(), batch())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_kernel_of_a_gpu(encoder: Callable[[], PreTrainedModel]) -> None:
    model, given = model_of(encoder).eval().cuda(), batch().to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert unpadded.pays(model.encoder, given.ids_BL)
    check_bf16(model, given).float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.encoder.parameters() if p.grad is not None)
