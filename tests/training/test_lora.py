"""Adapters: which weights train, what is saved, how a run resumes, and predictions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_training import World, assert_same_run
from tiny_run import losses, make_encoder, make_recipe, make_shards

import ubert
from ubert.encoder import lora
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.checkpoints import checkpoint

pytest.importorskip("peft", reason="needs the extra `lora`")
TEXTS = ["Ada Lovelace went to Paris", "Film number good"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("store")
    encoder = make_encoder(root / "encoder")
    return World(root, encoder, make_shards(root, encoder))


@pytest.fixture(scope="module")
def recipe(world: World) -> Recipe:
    return make_recipe(world.encoder, lora=4, head_learning_rate=1e-2)


@pytest.fixture(scope="module")
def finished(world: World, recipe: Recipe) -> Path:
    run = world.run("uninterrupted")
    keeping = recipe.model_copy(update={"keep_checkpoints": 9})
    loop.train(keeping, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    return run


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step-{step:06}/model.safetensors")


def test_adapters_and_head_change_and_nothing_else(finished: Path) -> None:
    before, after = weights(finished, 0), weights(finished, 8)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    adapters = {name for name in before if ".lora_" in name}
    assert len(adapters) == 2 * 6 * 2, "two matrices for each of the six linear layers of two blocks"
    assert adapters < changed
    assert {name for name in changed - adapters if not name.startswith("table.")} == set()
    assert sum(losses(finished)[4:]) < sum(losses(finished)[:4])


def test_only_what_trains_has_optimizer_state(finished: Path) -> None:
    names = {
        name.partition("/")[2] for name in load_file(finished / "checkpoints/step-000008/optimizer.safetensors")
    }
    assert names and all(".lora_" in name or name.startswith("table.") for name in names)


def test_resumed_equals_uninterrupted(world: World, recipe: Recipe, finished: Path) -> None:
    run = world.run("resumed")
    shutil.copytree(finished, run)
    (run / "manifest.json").unlink()
    for lost in ("step-000006", "step-000008"):
        shutil.rmtree(run / "checkpoints" / lost)
    lines = (run / "logs/train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "logs/train.jsonl").write_text("".join(lines[:3]), encoding="utf-8")
    loop.train(recipe, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    assert_same_run(run, finished, tolerance=0)


def test_it_predicts_as_it_was_trained(finished: Path) -> None:
    directory = checkpoint.latest(finished)
    assert directory is not None
    ids = torch.arange(1, 20)[None]
    model = UbertModel.load(directory).eval()
    with torch.no_grad():
        beside = model.encoder(ids).last_hidden_state
        model.without_adapters()
        merged = model.encoder(ids).last_hidden_state
        lora_free = UbertModel.load(directory.with_name("step-000000")).eval().encoder(ids).last_hidden_state
    torch.testing.assert_close(beside, merged, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(lora_free, merged, atol=1e-3)
    [first, _] = ubert.load(finished).predict(TEXTS, task="classification", categories=["good", "bad"])
    assert len(first) == 1


def test_a_merged_model_is_saved_as_a_plain_one(finished: Path, tmp_path: Path) -> None:
    directory = checkpoint.latest(finished)
    assert directory is not None
    model = UbertModel.load(directory)
    model.without_adapters()
    model.save(tmp_path)
    again = UbertModel.load(tmp_path)
    assert again.shape.lora is None
    assert not any("lora" in name or "base_layer" in name for name in load_file(tmp_path / "model.safetensors"))
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_new_adapters_change_nothing_and_follow_the_seed(world: World) -> None:
    plain, one, other = (
        UbertModel.new(str(world.encoder), Shape(table_size=8, lora=rank), vocabulary=9, seed=seed).eval()
        for rank, seed in ((None, 0), (4, 0), (4, 1))
    )
    ids = torch.arange(1, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(plain.encoder(ids)[0], one.encoder(ids)[0])
    drawn = [dict(model.named_parameters()) for model in (one, other)]
    assert any(not torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0] if "lora_A" in name)


def test_without_peft_it_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"need the package peft; run pip install 'ubert\[lora\]'"):
        UbertModel.new(str(world.encoder), Shape(lora=4), vocabulary=9, seed=0)


def test_a_checkpoint_with_adapters_is_a_start(finished: Path) -> None:
    directory = checkpoint.latest(finished)
    assert directory is not None
    merged = UbertModel.load(directory).without_adapters()
    start = UbertModel.new(str(directory), Shape(table_size=8, lora=2), vocabulary=1, seed=9).without_adapters()
    for name, parameter in merged.named_parameters():
        assert torch.equal(parameter, start.get_parameter(name)), name
    plain, tuned = (
        UbertModel.new(str(directory), Shape(table_size=8, lora=rank), vocabulary=1, seed=9) for rank in (None, 2)
    )
    assert all(parameter.requires_grad for parameter in plain.parameters())
    trained = {name for name, parameter in tuned.named_parameters() if parameter.requires_grad}
    assert {name for name, _ in tuned.named_parameters() if ".lora_" in name or "encoder." not in name} == trained


@pytest.mark.parametrize("rank", [1, 4])
def test_an_adapter_s_product_is_added_twice_whatever_its_rank(world: World, rank: int) -> None:
    model = UbertModel.new(str(world.encoder), Shape(table_size=8, lora=rank), vocabulary=9, seed=0)
    name = "encoder.encoder.layer.0.output.dense"
    before, down, up = (
        model.get_parameter(f"{name}.{part}.weight") for part in ("base_layer", "lora_A.default", "lora_B.default")
    )
    assert len(down) == rank
    torch.nn.init.normal_(up)
    expected = (before + 2 * up @ down).detach()
    torch.testing.assert_close(model.without_adapters().get_parameter(f"{name}.weight").detach(), expected)
