"""The four attention masks of UniLM, entry by entry, in both forms, and their effect on an encoder."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel, PreTrainedModel

from ubert.encoder import attention, unpadded
from ubert.encoder.attention import PADDING, Direction, blocks, dense, ranks, seen

MASKS: dict[Direction, list[str]] = {  # a source of three tokens, a target of two; row: who looks
    "bidirectional": ["11111", "11111", "11111", "11111", "11111"],
    "left_to_right": ["10000", "11000", "11100", "11110", "11111"],
    "right_to_left": ["11111", "01111", "00111", "00011", "00001"],
    "seq2seq": ["11100", "11100", "11100", "11110", "11111"],
}


def of(direction: Direction, padding: int = 0) -> torch.Tensor:
    rank = np.append(ranks(direction, 5, 3), np.full(padding, PADDING))
    return torch.from_numpy(rank.astype(np.int64))[None]


def allowed(direction: Direction) -> torch.Tensor:
    return torch.tensor([[entry == "1" for entry in row] for row in MASKS[direction]])


@pytest.mark.parametrize("direction", MASKS)
def test_each_entry_of_each_mask(direction: Direction) -> None:
    rank = of(direction)
    assert torch.equal(seen(rank, rank)[0], allowed(direction))
    added = dense(rank, rank)
    assert added.shape == (1, 1, 5, 5)
    assert torch.equal(added[0, 0] == 0, allowed(direction))
    assert added[0, 0][~allowed(direction)].lt(-1e30).all()


@pytest.mark.parametrize("direction", MASKS)
def test_a_block_mask_has_the_same_entries(direction: Direction) -> None:
    mask = blocks(of(direction), of(direction))
    entries = [[bool(mask.mask_mod(*map(torch.tensor, (0, 0, q, k)))) for k in range(5)] for q in range(5)]
    assert entries == allowed(direction).tolist()


@pytest.mark.parametrize("direction", MASKS)
def test_padding_is_seen_by_nobody_and_no_row_is_empty(direction: Direction) -> None:
    rank = of(direction, padding=3)
    found = seen(rank, rank)[0]
    assert torch.equal(found[:5, :5], allowed(direction))
    assert not found[:5, 5:].any()
    assert found.any(1).all()


@given(st.sampled_from(list(MASKS)), st.integers(2, 40), st.data())
def test_masks_of_any_length_follow_their_definition(
    direction: Direction, tokens: int, data: st.DataObject
) -> None:
    source = data.draw(st.integers(1, tokens - 1))
    rank = torch.from_numpy(ranks(direction, tokens, source))[None]
    q, k = torch.meshgrid(torch.arange(tokens), torch.arange(tokens), indexing="ij")
    expected = {
        "bidirectional": torch.ones_like(q, dtype=torch.bool),
        "left_to_right": k <= q,
        "right_to_left": k >= q,
        "seq2seq": (k < source) | ((q >= source) & (k <= q)),
    }[direction]
    assert torch.equal(seen(rank, rank)[0], expected)


def tiny() -> BertModel:
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    return BertModel(config, add_pooling_layer=False).eval()


@pytest.mark.parametrize("direction", MASKS)
def test_a_word_changes_those_that_see_it_and_no_others(direction: Direction) -> None:
    encoder = tiny()
    ids = torch.arange(1, 6)[None]
    before = outputs(encoder, ids, of(direction))
    for changed in range(5):
        other = ids.clone()
        other[0, changed] = 30
        moved = (outputs(encoder, other, of(direction)) - before).abs().amax(-1)[0] > 1e-6
        assert torch.equal(moved, allowed(direction)[:, changed])


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_all_implementations_of_attention_agree() -> None:
    encoder = tiny()
    rank = torch.cat([of(direction, padding=2) for direction in MASKS])
    ids = torch.arange(28).view(4, 7)
    expected = outputs(encoder, ids, rank)[:, :5]
    encoder.set_attn_implementation("eager")
    torch.testing.assert_close(outputs(encoder, ids, rank)[:, :5], expected, atol=1e-5, rtol=0)
    encoder.set_attn_implementation("sdpa")
    unpadded.prepare(encoder)
    torch.testing.assert_close(outputs(encoder, ids, rank)[:, :5], expected, atol=1e-5, rtol=0)
    with torch.enable_grad():  # another way than for predictions
        found = encoder(ids, attention_mask=attention.mask(encoder, rank, rank)).last_hidden_state
    torch.testing.assert_close(found[:, :5], expected, atol=1e-5, rtol=0)
    with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
        found = encoder(ids, attention_mask=blocks(rank, rank)).last_hidden_state
    torch.testing.assert_close(found[:, :5], expected, atol=1e-5, rtol=0)


def local() -> ModernBertModel:
    """Three layers, of which two see eight tokens on each side."""
    config = ModernBertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
        local_attention=16, pad_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    return ModernBertModel(config).eval()


def test_local_layers_stay_local() -> None:
    """All see all is what the encoder does by itself, also of a text that is longer than its windows."""
    encoder = local()
    ids = torch.arange(100)[None] % 50
    own = encoder(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    torch.testing.assert_close(outputs(encoder, ids, torch.zeros_like(ids)), own, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_local_layers_have_the_same_mask_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = local()
    unpadded.prepare(encoder)
    ids, rank = torch.arange(40)[None] % 50, torch.from_numpy(ranks("seq2seq", 40, 25).astype(np.int64))[None]
    expected = outputs(encoder, ids, rank)
    monkeypatch.setattr(attention, "takes_blocks", lambda *_: True)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(outputs(encoder, ids, rank), expected, atol=1e-5, rtol=0)


def outputs(encoder: PreTrainedModel, ids: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return encoder(ids, attention_mask=attention.mask(encoder, rank, rank)).last_hidden_state


@pytest.mark.parametrize(("implementation", "expected"), [(unpadded.ATTENTION, True), ("sdpa", False)])
def test_blocks_are_for_cuda_and_our_attention(implementation: str, expected: bool) -> None:
    encoder = SimpleNamespace(config=SimpleNamespace(_attn_implementation=implementation))
    assert attention.takes_blocks(encoder, torch.device("cuda")) == expected
    assert not attention.takes_blocks(encoder, torch.device("cpu"))
