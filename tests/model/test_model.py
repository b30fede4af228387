"""The model's files, and properties of its layouts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    FunnelConfig,
    FunnelModel,
    RoFormerConfig,
    RoFormerModel,
    XLNetConfig,
    XLNetModel,
)
from transformers.utils import logging

from ubert.encoder.unpadded import ATTENTION
from ubert.model.ubert import Shape, UbertModel, quietly
from ubert.model.word_embeddings import read_words
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import INITIAL_BIAS, Layout
from ubert.structure import cells
from ubert.structure.batch import Example, Region, Special, collate, pieces
from ubert.structure.structure_table import StructureTable

SPECIAL = Special(cls=2, sep=3, pad=0, marker=4, types=True)
NONE = np.empty(0, np.int32)


def tiny(layout: Layout) -> UbertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    return UbertModel.around(BertModel(config, add_pooling_layer=False), Shape(layout, 8)).eval()


def example(words: int, categories: int, region: Region = Region.TRIANGLE) -> Example:
    return Example(
        instruction=np.array([5, 6], np.int32),
        categories=[np.array([10 + i], np.int32) for i in range(categories)],
        text=np.arange(20, 20 + words, dtype=np.int32),
        pair=NONE,
        regions=np.full(categories, region, np.int32),
        gold_anchors=NONE,
        gold_cells=np.array([[0, 0, 1]], np.int32),
    )


def batch_of(examples: list[Example], layout: Layout, most_categories: int = 99):  # type: ignore[no-untyped-def]
    items = [
        piece
        for i, one in enumerate(examples)
        for piece in pieces(one, i, layout, SPECIAL, most_categories=most_categories, most_tokens=64)
    ]
    return collate(items, SPECIAL, len(examples))


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_saved_and_loaded_models_score_alike(layout: Layout, tmp_path: Path) -> None:
    model = tiny(layout)
    model.save(tmp_path)
    loaded = UbertModel.load(tmp_path).eval()
    batch = batch_of([example(5, 3), example(9, 2, Region.ANCHOR | Region.TRIANGLE)], layout)
    with torch.no_grad():
        mine, theirs = model(batch), loaded(batch)
    torch.testing.assert_close(mine.anchor_T, theirs.anchor_T, rtol=0, atol=0)
    assert [column.tolist() for column in cells.above(mine, -99.0)] == [
        column.tolist() for column in cells.above(theirs, -99.0)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_padding_changes_no_score(layout: Layout) -> None:
    model = tiny(layout)
    with torch.no_grad():
        alone = model(batch_of([example(5, 3)], layout))
        padded = model(batch_of([example(5, 3), example(30, 3)], layout))
    torch.testing.assert_close(alone.anchor_T, padded.anchor_T[:3], rtol=1e-4, atol=1e-5)
    one, many = cells.above(alone, -99.0), cells.above(padded, -99.0)
    first = many.table < 3
    torch.testing.assert_close(one.score, many.score[first], rtol=1e-4, atol=1e-5)


def test_a_stacked_category_is_scored_by_itself_a_joint_one_beside_the_others() -> None:
    with torch.no_grad():
        for layout, same in (("stacked", True), ("joint", False)):
            model = tiny(layout)  # type: ignore[arg-type]
            few = model(batch_of([example(5, 1)], layout)).anchor_T[0]  # type: ignore[arg-type]
            more = model(batch_of([example(5, 3)], layout)).anchor_T[0]  # type: ignore[arg-type]
            assert torch.allclose(few, more, atol=1e-6) is same


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "config.json").unlink(), "is not a checkpoint: config.json is missing; name one"),
        (lambda path: (path / "model.safetensors").unlink(), "model.safetensors"),
        (lambda path: (path / "model.safetensors").write_bytes(b"\0" * 50), "damaged, or of another version"),
        (lambda path: (path / "config.json").write_text("{"), "damaged, or of another version"),
        (
            lambda path: (path / "config.json").write_text('{"model_type": "bert"}'),
            "model_type is 'bert', expected 'ubert'",
        ),
        (lambda path: _edit(path, "shape", {"table_size": 4}), "damaged, or of another version"),
    ],
)
def test_a_spoilt_checkpoint_says_what_is_wrong(spoil, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    tiny("joint").save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(UserError, match=message):
        UbertModel.load(tmp_path)


def _edit(path: Path, key: str, value: object) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, key: value}))


def test_an_encoder_that_isn_t_there_is_named() -> None:
    with pytest.raises(UserError, match="no/such/folder"):
        UbertModel.new("./no/such/folder", Shape(table_size=8), vocabulary=1, seed=0)


def test_an_encoder_of_several_classes_that_doesn_t_say_which_is_refused(tmp_path: Path) -> None:
    config = FunnelConfig(vocab_size=50, d_model=16, block_sizes=[1, 1], n_head=2, d_head=8, d_inner=32)
    FunnelModel(config).save_pretrained(tmp_path)
    new = UbertModel.new(str(tmp_path), Shape(table_size=8), vocabulary=50, seed=0)
    new.save(tmp_path / "saved")
    assert isinstance(UbertModel.load(tmp_path / "saved").encoder, FunnelModel)
    written = json.loads((tmp_path / "config.json").read_text())
    del written["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(written))
    with pytest.raises(UserError, match=f"encoder '{tmp_path}' can't be loaded"):
        UbertModel.new(str(tmp_path), Shape(table_size=8), vocabulary=50, seed=0)


def test_xlnet_is_an_encoder_of_any_length() -> None:
    encoder = XLNetModel(XLNetConfig(vocab_size=50, d_model=16, n_layer=2, n_head=2, d_inner=32))
    model = UbertModel.around(encoder, Shape(table_size=8)).eval()
    assert model.most_tokens == 512
    with torch.no_grad():
        padded = model(batch_of([example(5, 3), example(30, 2)], "joint")).anchor_T[:3]
        alone = model(batch_of([example(5, 3)], "joint")).anchor_T
    torch.testing.assert_close(padded, alone, atol=1e-5, rtol=1e-5)


def test_only_a_new_table_has_the_initial_bias(tmp_path: Path) -> None:
    model = tiny("joint")
    assert model.table is not None and model.table.U[-1, -1] == INITIAL_BIAS
    model.encoder.save_pretrained(tmp_path / "encoder")

    def new(encoder: str, **bias: float) -> UbertModel:
        return UbertModel.new(str(tmp_path / encoder), Shape(table_size=8), vocabulary=51, seed=7, **bias)

    usual, chosen = new("encoder"), new("encoder", initial_bias=-1.5)
    assert (usual.table.U[-1, -1], chosen.table.U[-1, -1]) == (-4, -1.5)
    assert torch.equal(usual.table.U[:-1], chosen.table.U[:-1])
    chosen.save_pretrained(tmp_path / "saved")
    assert new("saved", initial_bias=3).table.U[-1, -1] == -1.5


def test_new_weights_follow_the_seed_and_the_vocabulary_grows(tmp_path: Path) -> None:
    encoder = tiny("joint").encoder
    encoder.save_pretrained(tmp_path)
    same = [UbertModel.new(str(tmp_path), Shape(table_size=8), vocabulary=51, seed=7) for _ in range(2)]
    other = UbertModel.new(str(tmp_path), Shape(table_size=8), vocabulary=51, seed=8)
    assert torch.equal(same[0].table.U, same[1].table.U)
    assert not torch.equal(same[0].table.U, other.table.U)
    assert same[0].encoder.get_input_embeddings().num_embeddings == 51
    pretrained = dict(encoder.named_parameters())
    for name, parameter in same[0].encoder.named_parameters():
        assert torch.equal(parameter[: len(pretrained[name])], pretrained[name]), f"{name} is not as pretrained"


def test_an_encoder_with_more_embeddings_than_words_keeps_them(tmp_path: Path) -> None:
    encoder = tiny("joint").encoder
    encoder.save_pretrained(tmp_path)
    embeddings = encoder.get_input_embeddings().num_embeddings
    model = UbertModel.new(str(tmp_path), Shape(table_size=8), vocabulary=embeddings - 3, seed=7)
    assert model.encoder.get_input_embeddings().num_embeddings == embeddings


def test_a_checkpoint_is_a_start_with_its_table(tmp_path: Path) -> None:
    model = tiny("stacked")
    model.save(tmp_path)
    start = UbertModel.new(str(tmp_path), Shape("stacked", 8, max_tokens=99), vocabulary=50, seed=5)
    assert start.shape.max_tokens == 99
    for name, parameter in start.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)) and parameter.requires_grad
    with pytest.raises(UserError, match="has a table of layout stacked and size 8; expected joint and 8"):
        UbertModel.new(str(tmp_path), Shape("joint", 8), vocabulary=50, seed=5)


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_transformers_reads_a_checkpoint(layout: Layout, tmp_path: Path) -> None:
    model = tiny(layout)
    model.save(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert isinstance(loaded, UbertModel) and loaded.shape == model.shape
    assert AutoConfig.from_pretrained(tmp_path).encoder.to_diff_dict() == model.encoder.config.to_diff_dict()
    batch = batch_of([example(5, 3)], layout)
    with torch.no_grad():
        assert torch.equal(model(batch).anchor_T, loaded(batch).anchor_T)
    assert str(tmp_path.parent) not in (tmp_path / "config.json").read_text()


def test_what_transformers_writes_is_a_checkpoint(tmp_path: Path) -> None:
    model = tiny("joint")
    model.save_pretrained(tmp_path)
    for one, other in zip(model.parameters(), UbertModel.load(tmp_path).parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_weight_that_is_missing_is_not_drawn_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tiny("joint").save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["table.U"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"damaged, or of another version \(table\.U is missing\)"):
        UbertModel.load(tmp_path)
    assert not any(capfd.readouterr()), "one sentence is all that is said"


def test_an_encoder_that_cannot_write_texts_is_refused_where_it_would_have_to(tmp_path: Path) -> None:
    config = RoFormerConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    RoFormerModel(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"type 'roformer' can't generate text: it takes no position_ids"):
        UbertModel.new(str(tmp_path), Shape(table_size=8, unilm=True), vocabulary=50, seed=0)
    UbertModel.new(str(tmp_path), Shape(table_size=8), vocabulary=50, seed=0)


def test_the_encoder_keeps_its_fast_attention(tmp_path: Path) -> None:
    model = tiny("joint")
    model.save(tmp_path)
    attention = [one.encoder.config._attn_implementation for one in (model, UbertModel.load(tmp_path))]
    assert attention == [ATTENTION, ATTENTION], "scaled dot products, and unpadded"


def test_a_new_table_starts_with_small_scores_that_depend_little_on_its_size() -> None:
    torch.manual_seed(0)
    for width, size in ((64, 128), (256, 32)):
        head = StructureTable(width, size, conditioned=True)
        assert head.U[:-1, :-1].std().item() == pytest.approx(4 / size, rel=0.1)
        assert not head.U[-1, :-1].any() and not head.U[:-1, -1].any() and not head.anchor_bias.any()
        assert isinstance(head.conditioning, nn.Linear) and not head.conditioning.bias.any()
        assert head.conditioning.weight.std().item() == pytest.approx(width**-0.5, rel=0.1)


@pytest.mark.parametrize(("types", "has"), [(1, False), (2, True)])
def test_encoders_of_two_segment_types_receive_them(types: int, has: bool) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    encoder = BertModel(BertConfig(vocab_size=50, type_vocab_size=types, **sizes), add_pooling_layer=False)
    model, batch = UbertModel.around(encoder, Shape(table_size=8)).eval(), batch_of([example(5, 3)], "joint")
    assert model.has_types is has
    with torch.no_grad():
        one, other = (model.encode(batch.ids_BL, batch.mask_BL, n * batch.types_BL) for n in (1, 0))
    assert torch.equal(one, other) is not has


def test_a_checkpoint_is_a_start_with_what_copies_words(tmp_path: Path) -> None:
    tiny("joint").encoder.save_pretrained(tmp_path / "encoder")
    shape = Shape(table_size=8, unilm=True, copies=True)
    first = UbertModel.new(str(tmp_path / "encoder"), shape, vocabulary=50, seed=1)
    assert first.copier is not None and first.masked is not None
    for parameter in (*first.copier.parameters(), *first.masked.parameters()):
        nn.init.normal_(parameter)
    first.save(tmp_path / "saved")
    second = UbertModel.new(str(tmp_path / "saved"), shape, vocabulary=50, seed=2)
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name)), name


def test_word_embeddings_are_found_behind_any_prefix(tmp_path: Path) -> None:
    name, vectors = "embeddings.word_embeddings.weight", torch.rand(5, 3)

    def found(*names: str) -> torch.Tensor:
        others = {f"my_{name}": torch.zeros(1), f"{name}.scale": torch.zeros(1)}
        save_file(others | {one: vectors.clone() for one in names}, tmp_path / "model.safetensors")
        return read_words(str(tmp_path), name)

    assert torch.equal(found(name), vectors) and torch.equal(found(f"bert.{name}"), vectors)
    for names in ([], [f"bert.{name}", f"other.{name}"]):
        with pytest.raises(UserError, match=f"no word embeddings called {name}; install the encoder"):
            found(*names)


@pytest.mark.parametrize("shown", [True, False])
def test_transformers_is_quiet_for_a_while_and_then_as_before(shown: bool) -> None:
    def state() -> tuple[bool, int]:
        return logging.is_progress_bar_enabled(), logging.get_verbosity()

    def restore(bars: bool, level: int) -> None:
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
        logging.set_verbosity(level)

    before = state()
    restore(shown, logging.INFO)
    try:
        with pytest.raises(ValueError, match="within"), quietly():
            assert state() == (False, logging.ERROR)
            raise ValueError("within")
        assert state() == (shown, logging.INFO)
    finally:
        restore(*before)
