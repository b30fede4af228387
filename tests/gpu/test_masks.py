"""On a GPU: flex attention with block masks equals attention with dense masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel, PreTrainedModel

from ubert.encoder import attention, unpadded
from ubert.encoder.attention import PADDING, Direction, ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SIZE = {"vocab_size": 50, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64}


def bert() -> PreTrainedModel:
    return BertModel(BertConfig(**SIZE, num_hidden_layers=2), add_pooling_layer=False)


def modern_bert() -> PreTrainedModel:
    sparse = {"global_attn_every_n_layers": 3, "local_attention": 16, "pad_token_id": 0}
    return ModernBertModel(ModernBertConfig(**SIZE, **sparse, num_hidden_layers=3))


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left", "seq2seq"])
@pytest.mark.parametrize("encoder", [bert, modern_bert])
@pytest.mark.parametrize("tokens", [5, 300])
def test_block_masks_equal_dense_ones(
    tokens: int, encoder: Callable[[], PreTrainedModel], direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = encoder().eval().cuda()
    unpadded.prepare(model)
    padded = np.append(ranks(direction, tokens, 3), np.full(7, PADDING))
    rank = np.stack([padded, ranks(direction, tokens + 7, 4)])
    rank_BL = torch.from_numpy(rank.astype(np.int64)).cuda()
    ids_BL = torch.randint(50, rank_BL.shape, device="cuda")
    found = []
    for blocks in (True, False):
        monkeypatch.setattr(attention, "takes_blocks", lambda *_, blocks=blocks: blocks)
        mask = attention.mask(model, rank_BL, rank_BL)
        hidden_BLD = model(ids_BL, attention_mask=mask).last_hidden_state
        hidden_BLD[:, :tokens].square().sum().backward()
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        found.append((hidden_BLD[:, :tokens], grads))
    (hidden, grads), (expected, wanted) = found
    torch.testing.assert_close(hidden, expected, rtol=1e-3, atol=2e-3)
    for grad, want in zip(grads, wanted, strict=True):
        assert float((grad - want).abs().max()) <= 2e-2 * max(float(want.abs().max()), 1e-2)
