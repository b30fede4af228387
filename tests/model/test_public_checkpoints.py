"""Public UBERT checkpoints (Erlangshen-Ubert) score and predict as in their own implementation.

That is restated here: dense tables over padded sequences, one for each category.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertModel
from typer.testing import CliRunner

import ubert
from pipelines.cli.commands import app
from ubert.inference.predictor import Predictor
from ubert.inference.scoring import score
from ubert.model.convert_public import convert, read
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape
from ubert.objectives import LabelPrediction, SpanPrediction
from ubert.schema.errors import UserError
from ubert.structure.batch import Example, Region

LENGTH = 48  # theirs, padded
TEXTS = ["雅清苑是政府公务员的房", "Anna 去 了 北京。", "房"]
CATEGORIES = ["小区名字", "岗位职责", "地址"]
EXTRACTION, CLASSIFICATION = "抽取任务", "分类任务"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in that layout, with vocab.txt."""
    folder = tmp_path_factory.mktemp("public")
    prompts = "".join([*TEXTS, *CATEGORIES, EXTRACTION, CLASSIFICATION, "实体识别主题"])
    words = [*SPECIAL, *sorted({c.lower() for c in prompts} - {" "}), "##n", "##a", "anna"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.3,
        architectures=["UbertModel"],
        biaffine_size=12,
    )
    config.save_pretrained(folder)
    torch.manual_seed(1)
    weights = {f"bert.{name}": tensor for name, tensor in BertModel(config).state_dict().items()}  # with a pooler
    for layer in ("query_layer", "key_layer"):
        weights[f"{layer}.0.weight"], weights[f"{layer}.0.bias"] = torch.randn(12, 24) * 0.3, torch.randn(12)
    weights["biaffine_query_key_cls.U"] = torch.randn(13, 1, 13) * 0.5
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def converted(public: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("ours") / "converted"
    convert(str(public), folder)
    return ubert.load(folder, precision="fp32")


@torch.no_grad()
def tables(public: Path, task: str, subtask: str, text: str) -> tuple[torch.Tensor, list[int]]:
    """Their scores [categories, LENGTH, LENGTH] before any mask, and where each sequence's text begins."""
    tokenizer = AutoTokenizer.from_pretrained(public)
    prompts = [f"{task}[SEP]{subtask}[SEP]{category}" for category in CATEGORIES]
    settings = {"max_length": LENGTH, "padding": "max_length", "truncation": "longest_first"}
    inputs = tokenizer(prompts, [text] * len(prompts), return_tensors="pt", **settings)
    weights = load_file(public / "model.safetensors")
    bert = BertModel(BertConfig.from_pretrained(public)).eval()
    bert.load_state_dict({name[5:]: tensor for name, tensor in weights.items() if name.startswith("bert.")})
    hidden = bert(**inputs).last_hidden_state
    one = torch.ones(*hidden.shape[:2], 1)
    query, key = (
        torch.cat([F.gelu(hidden @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"]), one], -1)
        for name in ("query_layer", "key_layer")
    )
    scores = torch.einsum("bxi,ioj,byj->bxyo", query, weights["biaffine_query_key_cls.U"], key)[..., 0]
    return scores, [len(tokenizer.encode(prompt)) for prompt in prompts]


def mentions(public: Path, text: str, threshold: float) -> dict[tuple[str, int, int], float]:
    """What they extract: cells with start <= end above the threshold, whose ends are tokens of the text."""
    tokens = AutoTokenizer.from_pretrained(public)(text, add_special_tokens=False, return_offsets_mapping=True)
    places = tokens["offset_mapping"]
    scores, starts = tables(public, EXTRACTION, "实体识别", text)
    found = {}
    for category, table, first in zip(CATEGORIES, scores.sigmoid(), starts, strict=True):
        for i, (start, _) in enumerate(places):
            for j, (_, end) in enumerate(places[i:], i):
                if table[first + i, first + j] > threshold:
                    found[category, start, end] = float(table[first + i, first + j])
    return found


def logit(probability: float) -> float:
    return float(np.log(probability) - np.log1p(-probability))


@pytest.mark.parametrize("text", TEXTS)
def test_every_cell_of_a_text_scores_the_same(public: Path, converted: Predictor, text: str) -> None:
    theirs = mentions(public, text, 0.0)
    assert theirs
    [ours] = converted.predict(
        [text],
        task="ner",
        categories=CATEGORIES,
        instruction=f"{EXTRACTION}[SEP]实体识别",
        threshold=1e-9,
        overlap="nested",
    )
    spans = {(p.category, p.start, p.end): p.score for p in ours if isinstance(p, SpanPrediction)}
    assert spans.keys() == theirs.keys()
    for place, value in spans.items():
        assert logit(value) == pytest.approx(logit(theirs[place]), abs=1e-4)  # their sigmoids are float32


def test_predictions_are_the_same_at_their_threshold(public: Path, converted: Predictor) -> None:
    found = converted.predict(
        TEXTS, task="ner", categories=CATEGORIES, instruction=f"{EXTRACTION}[SEP]实体识别", overlap="nested"
    )
    theirs = [mentions(public, text, 0.5) for text in TEXTS]
    assert 0 < sum(map(len, theirs)) < sum(len(mentions(public, text, 0.0)) for text in TEXTS)
    for ours, expected in zip(found, theirs, strict=True):
        assert {(p.category, p.start, p.end) for p in ours if isinstance(p, SpanPrediction)} == expected.keys()


def test_a_converted_model_has_their_sizes(converted: Predictor) -> None:
    assert converted.model.shape == Shape("stacked", table_size=12, categories_per_piece=1, max_tokens=64)


def test_the_label_of_a_text_is_theirs(public: Path, converted: Predictor) -> None:
    instruction = f"{CLASSIFICATION}[SEP]主题"
    labels = converted.predict(TEXTS, task="classification", categories=CATEGORIES, instruction=instruction)
    all_of_them = converted.predict(
        TEXTS, task="multilabel", categories=CATEGORIES, instruction=instruction, threshold=1e-9
    )
    for text, [label], scored in zip(TEXTS, labels, all_of_them, strict=True):
        scores = tables(public, CLASSIFICATION, "主题", text)[0][:, 0, 0]
        assert isinstance(label, LabelPrediction)
        assert label.category == CATEGORIES[int(scores.argmax())]
        assert [logit(p.score) for p in scored] == pytest.approx(scores.tolist(), abs=1e-5)


def test_raw_scores_agree_to_rounding(public: Path, converted: Predictor) -> None:
    """Without a sigmoid between: the factors of our table give each of their cells to 1e-5."""
    text = TEXTS[0]
    theirs, starts = tables(public, EXTRACTION, "实体识别", text)
    tokenizer, model = load_tokenizer(str(public)), read(str(public)).eval()
    instruction = tokenizer.instruction(f"{EXTRACTION}[SEP]实体识别")
    ids = [encoding.ids for encoding in tokenizer.encode([text, *CATEGORIES])]
    none = np.empty(0, np.int32)
    example = Example(
        instruction=instruction,
        categories=ids[1:],
        text=ids[0],
        pair=none,
        regions=np.full(len(CATEGORIES), int(Region.ANCHOR | Region.TRIANGLE), np.int32),
        gold_anchors=none,
        gold_cells=np.empty((0, 3), np.int32),
    )
    [scored], _ = score(model, tokenizer.special, [example], threshold=-1e9, batch_tokens=1000, bf16=False)
    cells = scored.cells
    assert len(cells.score) == len(CATEGORIES) * len(ids[0]) * (len(ids[0]) + 1) // 2
    first = torch.tensor(starts)[torch.from_numpy(cells.category).long()]
    start, end = (torch.from_numpy(column) for column in (cells.start, cells.end))
    at = (torch.from_numpy(cells.category).long(), first + start, first + end)
    torch.testing.assert_close(torch.from_numpy(cells.score), theirs[at], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.from_numpy(scored.anchor), theirs[:, 0, 0], atol=1e-5, rtol=1e-5)


def as_torch_file(public: Path, folder: Path, weights: Any) -> Path:
    folder.mkdir()
    for name in ("config.json", "vocab.txt"):
        (folder / name).write_bytes((public / name).read_bytes())
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


def test_weights_in_the_form_that_they_were_published_in(public: Path, tmp_path: Path) -> None:
    bin_file = as_torch_file(public, tmp_path / "bin", load_file(public / "model.safetensors"))
    for one, other in zip(read(str(public)).parameters(), read(str(bin_file)).parameters(), strict=True):
        assert torch.equal(one, other)


class Touch:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, Sequence[str]]:
        return os.mkdir, (str(self.path),)


def test_a_file_that_brings_code_is_refused_unrun(public: Path, tmp_path: Path) -> None:
    folder = as_torch_file(public, tmp_path / "bin", {"bert": Touch(tmp_path / "ran")})
    with pytest.raises(UserError, match="its weights are not plain tensors, and are not read"):
        read(str(folder))
    assert not (tmp_path / "ran").exists()


def test_the_command_converts_and_refuses(public: Path, tmp_path: Path) -> None:
    run = CliRunner()
    out = tmp_path / "converted"
    assert run.invoke(app, ["convert", str(public), str(out)]).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json", "model.safetensors", "special.json", "tokenizer.json",
    ]  # fmt: skip
    again = run.invoke(app, ["convert", str(public), str(out)])
    assert isinstance(again.exception, UserError) and "name a new folder" in str(again.exception)


def test_what_is_no_such_checkpoint_says_so(public: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a public UBERT checkpoint"):
        read(str(tmp_path))
    plain = tmp_path / "plain"
    config = BertConfig.from_pretrained(public)
    BertModel(config).save_pretrained(plain)
    with pytest.raises(UserError, match="it has no weights biaffine_query_key_cls"):
        read(str(plain))
    del config.biaffine_size
    config.save_pretrained(plain)
    with pytest.raises(UserError, match="biaffine_size"):
        read(str(plain))
