"""Packed checkpoints: what they omit comes from the encoder, and all else stays the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import handmade
import pytest
import torch
from handmade import ner, sentiment
from safetensors.torch import load_file, save_file
from tiny_run import make_encoder, make_recipe
from transformers import AutoModel, DebertaV2Config, DebertaV2Model, ModernBertConfig, ModernBertModel
from typer.testing import CliRunner

import ubert
from pipelines.cli.commands import app
from pipelines.models.find import find_checkpoint
from ubert.inference.thresholds import Fitted, to_json
from ubert.model import pretrained
from ubert.model.ubert import UbertModel
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.checkpoints.checkpoint import read_state
from ubert.training.checkpoints.packed import pack
from ubert.training.run_directory import finished

QUIET = loop.Worker(progress=False)
TEXTS = ["Ada Lovelace went to Paris by train.", "Max Born went to Oslo by train and slept."]
WORDS = "encoder.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def encoder(root: Path) -> Path:
    return make_encoder(root / "encoder")


@pytest.fixture(scope="module")
def shards(root: Path, encoder: Path) -> Path:
    corpora = {"people": [ner(i) for i in range(20)], "reviews": [sentiment(i) for i in range(20)]}
    return handmade.make_shards(root, corpora, encoder=str(encoder), max_tokens=32, name="tiny")


def trained(root: Path, encoder: Path, shards: Path, name: str, **changed: Any) -> Path:
    recipe = make_recipe(encoder, **{"name": name, "steps": 4, "freeze_words": True} | changed)
    return loop.train(recipe, shards=shards, run=root / "runs" / name, worker=QUIET)


@pytest.fixture(scope="module")
def small(root: Path, encoder: Path, shards: Path) -> Path:
    return pack(trained(root, encoder, shards, "base"), root / "small")


def scores(folder: Path) -> list[Any]:
    found = ubert.load(folder, precision="fp32").predict(
        TEXTS, task="ner", categories=["person", "place"], threshold=0.01
    )
    return [(one.start, one.end, one.category) for of_text in found for one in of_text]  # type: ignore[union-attr]


def test_frozen_words_stay_the_encoders_and_the_rest_learns(root: Path, encoder: Path, small: Path) -> None:
    before, after = (
        load_file(root / f"runs/base/checkpoints/step-00000{step}/model.safetensors") for step in (0, 4)
    )
    assert torch.equal(before[WORDS], after[WORDS])
    unchanged = {name for name in before if torch.equal(before[name], after[name])}
    assert unchanged == {WORDS}


def test_frozen_layers_stay_and_those_above_learn(root: Path, encoder: Path, shards: Path) -> None:
    trained(root, encoder, shards, "top", freeze_words=False, freeze_layers=1)
    before, after = (
        load_file(root / f"runs/top/checkpoints/step-00000{step}/model.safetensors") for step in (0, 4)
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    above = {name for name in before if ".layer." in name and ".layer.0." not in name}
    assert changed == above | {name for name in before if not name.startswith("encoder.")}
    assert above and changed < before.keys()


def test_what_comes_after_the_layers_or_is_shared_by_them_learns() -> None:
    small = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}
    tokens = {"vocab_size": 16, "pad_token_id": 0, "max_position_embeddings": 16}
    modern = ModernBertModel(ModernBertConfig(**small, **tokens))
    relative = {"relative_attention": True, "pos_att_type": ["p2c"], "norm_rel_ebd": "layer_norm"}
    deberta = DebertaV2Model(DebertaV2Config(**small, **tokens, **relative))
    for model, after in ((modern, "final_norm.weight"), (deberta, "encoder.rel_embeddings.weight")):
        recipe = Recipe(name="a", mixture="a", steps=1, freeze_layers=1)
        loop._freeze(SimpleNamespace(encoder=model), recipe)  # type: ignore[arg-type]
        learns = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        assert after in learns and any(".1." in name for name in learns)
        assert not any("embeddings.word" in name or "tok_embeddings" in name for name in learns)
        assert not any(f"{prefix}.0." in name for name in learns for prefix in ("layers", "layer"))


def test_more_layers_than_there_are_cannot_be_frozen(root: Path, encoder: Path, shards: Path) -> None:
    with pytest.raises(UserError, match=r"freeze_layers: expected at most the encoder's \d+ layers, got 99"):
        trained(root, encoder, shards, "ice", freeze_layers=99)
    with pytest.raises(ValueError, match="no effect with lora"):
        make_recipe(encoder, lora=2, freeze_layers=1)


def test_the_small_form_predicts_as_the_whole(root: Path, small: Path) -> None:
    whole = root / "runs/base/checkpoints/step-000004"
    tensors = load_file(small / "model.safetensors")
    assert WORDS not in tensors and {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    one, other = ubert.load(whole).model.state_dict(), ubert.load(small).model.state_dict()
    assert one.keys() == other.keys() and torch.equal(one[WORDS], other[WORDS])
    assert all(torch.equal(tensor.half().float(), other[name]) for name, tensor in one.items() if name != WORDS)
    assert scores(small) == scores(whole) != []
    assert len({path.stat().st_mode for path in small.iterdir()}) == 1  # who may read one, may read all
    assert read_state(small).sources == ["people/train", "reviews/train"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_reads_the_small_form_with_the_encoders_words(small: Path, dtype: torch.dtype) -> None:
    mine, theirs = UbertModel.load(small).state_dict(), AutoModel.from_pretrained(small, dtype=dtype).state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor.to(dtype), theirs[name]) for name, tensor in mine.items())


def test_a_model_of_ours_is_found_by_its_name(
    small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", small.parent)
    monkeypatch.chdir(tmp_path)
    assert ubert.checkpoint("small") == small == find_checkpoint(Path("small"), tmp_path)
    for name in ("large", "../small", "small/.."):
        with pytest.raises(UserError, match=r"no such folder; .* or the name of a model that comes with ubert"):
            ubert.checkpoint(name)


def test_a_recipe_begins_with_a_model_of_ours(
    root: Path, encoder: Path, shards: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", small.parent)
    trained(root, encoder, shards, "tuned", **{"from": "small", "freeze_words": False})
    mine = load_file(root / "runs/tuned/checkpoints/step-000000/model.safetensors")
    assert all(
        torch.equal(tensor, mine[name].half()) for name, tensor in load_file(small / "model.safetensors").items()
    )
    assert WORDS in mine  # a run of one's own is whole, and may train them
    manifest = finished(root / "runs/tuned")
    assert manifest and [(one.run, one.sources) for one in manifest.ancestry] == [
        ("small", ["people/train", "reviews/train"])
    ]


@pytest.mark.parametrize(("split", "seen"), [("train", True), ("test", False)])
def test_what_an_ancestor_was_trained_on_is_not_evaluated(
    root: Path, encoder: Path, shards: Path, small: Path, split: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", small.parent)
    changed = {"from": "small", "evaluate": [{"corpus": "people", "split": split}]}
    name = f"seen-{split}"
    if seen:
        with pytest.raises(UserError, match=r"small was trained on people/train, which .* `seen: allow`"):
            trained(root, encoder, shards, name, **changed)
        changed["seen"] = "allow"
    assert trained(root, encoder, shards, name, **changed).is_dir()


def test_words_beside_a_marker_of_ours_are_not_left_out(
    root: Path, encoder: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = trained(root, encoder, shards, "base")
    shorter = load_file(checkpoint / "model.safetensors")[WORDS][:-1]
    monkeypatch.setattr("ubert.training.checkpoints.packed.read_words", lambda *_: shorter)
    with pytest.raises(UserError, match=r"because training added a marker .* use the checkpoint as it is"):
        pack(checkpoint, root / "never")


def test_words_that_were_trained_are_not_left_out(root: Path, encoder: Path, shards: Path) -> None:
    checkpoint = trained(root, encoder, shards, "thawed", freeze_words=False)
    with pytest.raises(UserError, match=r"word embeddings are not those of .* `freeze_words: true`"):
        pack(checkpoint, root / "never")
    assert not (root / "never").exists()


def test_an_average_has_the_mean_of_all_weights_and_all_ancestors(
    root: Path, encoder: Path, shards: Path, small: Path
) -> None:
    other = trained(root, encoder, shards, "other", seed=1)
    third = trained(root, encoder, shards, "third", **{"from": "base", "seed": 2})
    fitted = Fitted(threshold=0.3, value=0.5, corpora=["people"], split="validation", records=9)
    (ubert.checkpoint(other) / "thresholds.json").write_text(to_json({"ner": fitted}), encoding="utf-8")
    mean = pack(other, root / "mean", average_with=[small, third])
    parts = [ubert.load(one).model.state_dict() for one in (other, small, third)]
    for name, tensor in ubert.load(mean).model.state_dict().items():
        assert torch.equal(tensor, (sum(part[name] for part in parts) / 3).half().float()) or name == WORDS
    assert [one.run for one in read_state(mean).ancestry] == ["small", "base", "third"]
    assert not (mean / "thresholds.json").exists(), "they were fitted for other weights"


@pytest.mark.parametrize("rank", [4, 2])
def test_an_average_of_adapters_has_the_mean_of_their_products(
    root: Path, encoder: Path, shards: Path, rank: int
) -> None:
    """It has no adapters, so theirs may have different ranks."""
    pytest.importorskip("peft", reason="needs the extra `lora`")
    one = trained(root, encoder, shards, f"four-{rank}", lora=4, learning_rate=1e-2)
    other = trained(root, encoder, shards, f"rank-{rank}", lora=rank, learning_rate=1e-2, seed=1)
    merged = [UbertModel.load(directory).without_adapters().state_dict() for directory in (one, other)]
    mean = UbertModel.load(pack(one, root / f"mean-{rank}", average_with=[other])).without_adapters()
    for name, tensor in mean.state_dict().items():
        assert torch.equal(tensor, (sum(part[name] for part in merged) / 2).half().float()) or name == WORDS


def test_thresholds_are_packed_and_damaged_weights_are_not_averaged(
    root: Path, encoder: Path, shards: Path, small: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(root / "runs/base/checkpoints/step-000004", tmp_path / "source"))
    fitted = Fitted(threshold=0.3, value=0.5, corpora=["people"], split="validation", records=9)
    (source / "thresholds.json").write_text(to_json({"ner": fitted}), encoding="utf-8")
    packed = pack(source, tmp_path / "packed")
    assert ubert.load(packed).thresholds == ubert.load(source).thresholds != {}
    damaged = Path(shutil.copytree(small, tmp_path / "damaged"))
    (damaged / "config.json").write_bytes((damaged / "config.json").read_bytes() + b"\n")
    with pytest.raises(UserError, match=r"damaged: changed since it was written"):
        pack(source, tmp_path / "never", average_with=[small, damaged])
    assert not (tmp_path / "never").exists()


def test_a_folder_that_cannot_be_written_whole_is_not_there(
    root: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    source, out = root / "runs/base/checkpoints/step-000004", tmp_path / "new" / "packed"
    with monkeypatch.context() as patched, pytest.raises(UserError, match=r"packed: cannot be written \(No space"):
        patched.setattr("ubert.training.checkpoints.checkpoint.write_state", full)
        pack(source, out)
    assert list(out.parent.iterdir()) == []
    assert scores(pack(source, out)) == scores(small)


def test_models_of_other_sizes_are_not_averaged(root: Path, encoder: Path, shards: Path, small: Path) -> None:
    wide = trained(root, encoder, shards, "wide", table_size=24)
    with pytest.raises(UserError, match=r"wide/.*: its weights have other names or sizes than those of .*small"):
        pack(small, root / "never", average_with=[wide])
    assert not (root / "never").exists()


def test_a_missing_encoder_is_named(root: Path, small: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(small, tmp_path / "copied")
    config = copied / "config.json"
    config.write_text(config.read_text().replace(str(root / "encoder"), str(tmp_path / "gone")))
    with pytest.raises(UserError, match=r"gone.model.safetensors: cannot be read .* install the encoder"):
        ubert.load(copied, verify=False)


def test_an_encoder_of_another_vocabulary_is_refused(root: Path, small: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(small, tmp_path / "copied"))
    config = (copied / "config.json").read_text().replace(str(root / "encoder"), str(tmp_path))
    (copied / "config.json").write_text(config)
    save_file({WORDS.removeprefix("encoder."): torch.zeros(5, 32)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"has word embeddings of \(5, 32\), and .* was trained on \(\d\d, 32\)"):
        ubert.load(copied, verify=False)


def test_the_command_says_how_large_it_is(root: Path, small: Path, tmp_path: Path) -> None:
    given = ["pack", "base", str(tmp_path / "packed"), "--average-with", "base, base", "--root", str(root)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0 and "MiB" in done.output
    again = CliRunner().invoke(app, given)
    assert isinstance(again.exception, UserError) and "already exists" in str(again.exception)


def test_dropout_is_the_recipes(root: Path, encoder: Path, shards: Path) -> None:
    losses = [
        finished(root / "runs" / name).loss  # type: ignore[union-attr]
        for name, share in (("dry", 0.0), ("wet", 0.5))
        if trained(root, encoder, shards, name, dropout=share)
    ]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(("layers", "drops"), [(1, True), (2, False)])
def test_frozen_layers_have_no_dropout(root: Path, encoder: Path, shards: Path, layers: int, drops: bool) -> None:
    losses = [
        finished(root / "runs" / name).loss  # type: ignore[union-attr]
        for name, share in ((f"dry-{layers}", 0.0), (f"wet-{layers}", 0.5))
        if trained(root, encoder, shards, name, freeze_layers=layers, dropout=share)
    ]
    assert (losses[0] != losses[1]) == drops
