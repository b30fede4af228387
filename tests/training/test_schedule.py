"""Schedules, runs that start from another's checkpoint, averages of weights, and metrics during training."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import World, losses, make_recipe, make_world
from transformers import ModernBertConfig, ModernBertModel

from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log
from ubert.training.optimizer import adamw, set_rates, share_of_peak

QUIET = loop.Worker(progress=False)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"))


@pytest.fixture
def trained(world: World) -> Callable[..., Path]:
    def train(name: str, **changed: object) -> Path:
        recipe = make_recipe(world.encoder, name=name, **changed)
        loop.train(recipe, shards=world.shards, run=world.run(name), worker=QUIET)
        return world.run(name)

    return train


@given(st.integers(1, 500), st.floats(0, 0.5), st.floats(0.01, 0.5))
def test_wsd_rises_stays_and_falls(total: int, warmup: float, decay: float) -> None:
    recipe = make_recipe(Path("unused"), schedule="wsd", warmup=warmup, decay=decay)
    shares = [share_of_peak(step, total, recipe) for step in range(total)]
    assert max(shares) == 1.0 and min(shares) > 0
    peak = shares.index(1.0)
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)
    assert shares.count(1.0) >= total * (1 - warmup - decay) - 1


def test_wsd_is_what_its_paper_says() -> None:
    """f = 1 - sqrt((n - N_start) / N_decay): frozen, for a decay of the last 4 of 10 steps."""
    recipe = make_recipe(Path("unused"), schedule="wsd", warmup=0.2, decay=0.4)
    expected = [0.5, 1, 1, 1, 1, 1, 1, 0.5, 0.292893, 0.133975]
    assert [share_of_peak(step, 10, recipe) for step in range(10)] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("warmup", "total", "rising"), [(0.07, 100, 7), (0.07, 101, 8), (0.1, 8, 1), (0.0, 8, 0)])
def test_a_share_of_the_steps_is_as_written_and_rounded_up(warmup: float, total: int, rising: int) -> None:
    recipe = make_recipe(Path("unused"), warmup=warmup)
    assert [share_of_peak(step, total, recipe) for step in range(total)].index(1.0) == max(rising - 1, 0)


def test_a_run_that_starts_from_anothers_stable_step_ends_as_one_run(trained: Callable[..., Path]) -> None:
    """The stable phase of 30 steps and of 8 is the same: a decay from its step 3 is what 8 steps would be."""
    wsd = {"schedule": "wsd", "warmup": 0.0}
    whole = trained("whole", **wsd, decay=0.5)
    trained("stable", **wsd, steps=6, decay=0.01)
    ended = trained("ended", **wsd, decay=0.5, continue_from="stable/step-000003")
    assert [row.step for row in log.read(ended)[0]] == [4, 5, 6, 7, 8]
    assert [row.loss for row in log.read(ended)[0]] == losses(whole)[3:]
    assert_equal(ended, whole, "model.safetensors", "optimizer.safetensors")
    assert checkpoint.first(ended).name == "step-000003"


def test_a_run_may_start_at_the_last_step_before_the_decay(trained: Callable[..., Path]) -> None:
    wsd = {"schedule": "wsd", "warmup": 0.0}
    trained("four", **wsd, decay=0.01, checkpoint_every=4)
    ended = trained("from-four", **wsd, decay=0.5, continue_from="four/step-000004")
    assert [row.step for row in log.read(ended)[0]] == [5, 6, 7, 8]


def test_a_run_with_an_ancestor_has_many_ends(trained: Callable[..., Path]) -> None:
    """What the first run began with is no setting that the run which ends it could repeat."""
    wsd = {"schedule": "wsd", "warmup": 0.0}
    trained("grandparent", **wsd, decay=0.01)
    trained("parent", **wsd, steps=6, decay=0.01, **{"from": "grandparent"})
    ended = trained("end", **wsd, decay=0.5, continue_from="parent/step-000003")
    assert [row.step for row in log.read(ended)[0]] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 7}, r"continue_from base/step-000006 was trained with other settings: seed 0 -> 7; give"),
        (
            {"decay": 0.5},
            r"continue_from base/step-000006 is after step 4, the last of 8 before the decay; raise steps",
        ),
        ({"continue_from": "base/step-000007"}, r"step-000007: not a complete checkpoint .* give another"),
        (
            {"schedule": "linear", "continue_from": "base/step-000008"},
            r"continue_from base/step-000008 is after step 7, the last of 8 before the end",
        ),
    ],
)
def test_a_start_that_does_not_fit_is_refused(
    trained: Callable[..., Path], world: World, changed: dict[str, object], said: str
) -> None:
    if not world.run("base").exists():
        trained("base", schedule="wsd", warmup=0.0, decay=0.01)
    with pytest.raises(UserError, match=said):
        trained("late", **{"schedule": "wsd", "warmup": 0.0, "continue_from": "base/step-000006"} | changed)


def test_an_average_is_what_a_checkpoint_predicts_with(trained: Callable[..., Path]) -> None:
    """Computed again, in float64, from the weights of every step."""
    run = trained("average", ema=0.5, checkpoint_every=1, keep_checkpoints=9)
    name = min(model(run, 0))
    expected = model(run, 0)[name].double()
    for step in range(1, 9):
        decay = min(0.5, (1 + step) / (10 + step))
        weight = load_file(run / f"checkpoints/step-{step:06}/optimizer.safetensors")[f"weight/{name}"]
        expected = decay * expected + (1 - decay) * weight.double()
        torch.testing.assert_close(model(run, step)[name].double(), expected, atol=1e-6, rtol=0)
        assert not torch.equal(model(run, step)[name], weight)


def test_with_an_average_training_is_the_same_and_resumes_bit_by_bit(
    trained: Callable[..., Path], world: World
) -> None:
    plain, run = trained("plain"), trained("averaged", ema=0.9)
    assert losses(run) == losses(plain)
    again = world.run("averaged-again")
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints/step-000008")
    recipe = make_recipe(world.encoder, name="averaged", ema=0.9)
    loop.train(recipe, shards=world.shards, run=again, worker=QUIET)
    assert losses(again) == losses(run)
    assert_equal(again, run, "model.safetensors", "optimizer.safetensors")


def test_metrics_on_the_way_are_logged_and_the_best_checkpoint_stays(world: World) -> None:
    values = iter([0.5, 0.9, 0.2, 0.3])
    seen: list[bool] = []

    def measure(model: UbertModel, tokenizer: Tokenizer) -> dict[str, float]:
        seen.append(model.eval().training)  # as a predictor leaves it
        return {"people/test/span_f1": next(values)}

    evaluating = {"evaluate": [{"corpus": "people"}], "evaluate_every": 2, "keep_best": "people/test/span_f1"}
    recipe = make_recipe(world.encoder, name="best", **evaluating, checkpoint_every=100, keep_checkpoints=1)
    run, plain = world.run("best"), world.run("without")
    loop.train(recipe, shards=world.shards, run=run, worker=QUIET, measure=measure)
    assert {path.name for path in (run / "checkpoints").iterdir()} == {
        "step-000000",
        "step-000004",
        "step-000008",
    }
    assert run_directory.finished(run).best == "checkpoints/step-000004"  # type: ignore[union-attr]
    found = {row.step: row.metrics for row in log.read(run)[0] if row.metrics}
    assert found == {
        step: {"people/test/span_f1": v} for step, v in zip((2, 4, 6, 8), (0.5, 0.9, 0.2, 0.3), strict=True)
    }
    events = EventAccumulator(str(run / "logs")).Reload()
    assert [event.step for event in events.Scalars("people/test/span_f1")] == [2, 4, 6, 8]
    loop.train(make_recipe(world.encoder), shards=world.shards, run=plain, worker=QUIET)
    assert losses(run) == losses(plain), "measuring leaves training as it is"


def test_the_last_step_may_be_the_best(tmp_path: Path, world: World) -> None:
    evaluating = {"evaluate": [{"corpus": "people"}], "evaluate_every": 5, "keep_best": "people/test/span_f1"}
    recipe, values = make_recipe(world.encoder, **evaluating), iter([0.1, 0.4])
    loop.train(
        recipe, shards=world.shards, run=tmp_path / "run", worker=QUIET,
        measure=lambda *_: {"people/test/span_f1": next(values)},
    )  # fmt: skip
    assert run_directory.finished(tmp_path / "run").best == "checkpoints/step-000008"  # type: ignore[union-attr]


def test_of_errors_the_smallest_is_the_best(tmp_path: Path, world: World) -> None:
    evaluating = {"evaluate": [{"corpus": "people"}], "evaluate_every": 4, "keep_best": "people/test/rmse"}
    recipe = make_recipe(world.encoder, **evaluating, keep_checkpoints=1)
    values = iter([0.1, 0.4])
    loop.train(
        recipe, shards=world.shards, run=tmp_path / "run", worker=QUIET,
        measure=lambda *_: {"people/test/rmse": next(values)},
    )  # fmt: skip
    assert checkpoint.best_by(tmp_path / "run", "people/test/rmse") == tmp_path / "run/checkpoints/step-000004"


def test_a_metric_that_is_not_measured_is_refused(tmp_path: Path, world: World) -> None:
    evaluating = {"evaluate": [{"corpus": "people"}], "evaluate_every": 1, "keep_best": "people/test/accuracy"}
    recipe = make_recipe(world.encoder, **evaluating)
    measured = {"people/test/span_f1": 0.0}
    with pytest.raises(UserError, match=r"accuracy is not measured; expected one of people/test/span_f1"):
        loop.train(recipe, shards=world.shards, run=tmp_path, worker=QUIET, measure=lambda *_: measured)
    with pytest.raises(UserError, match="evaluate_every needs a store's corpora; train with `ubert pretrain`"):
        loop.train(recipe, shards=world.shards, run=tmp_path, worker=QUIET)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schedule": "wsd", "warmup": 0.6, "decay": 0.5}, "warmup 0.6 and decay 0.5 add up to more than 1"),
        ({"evaluate_every": 5}, "evaluate_every needs splits to `evaluate`"),
        ({"evaluate": [{"corpus": "a"}], "keep_best": "a/test/f1"}, "keep_best needs `evaluate_every`"),
        (
            {"evaluate": [{"corpus": "a"}], "evaluate_every": 5, "keep_best": "b/test/f1"},
            "expected a metric of one of a/test/",
        ),
        ({"continue_from": "../up/step-000001"}, "continue_from"),
        ({"copies": True}, "copies apply only to seq2seq; leave them out, or add"),
        ({"pseudo_masks": True}, "apply only to seq2seq; leave them out, or add"),
        ({"steps": None}, "exactly one of `steps` and `epochs`"),
        ({"epochs": 1.0}, "exactly one of `steps` and `epochs`"),
        ({"shuffle_blocks": 2, "batches": "cycle"}, "leave it out, or set batches: mixed"),
        ({"objectives": {"structure": 0.5, "spanbert": 0.498}}, "shares of batches that sum to 1"),
    ],
)
def test_recipes_that_contradict_themselves_are_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Recipe.model_validate(make_recipe(Path("unused")).model_dump() | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"schedule": "wsd", "warmup": 0.5, "decay": 0.5},
        {"schedule": "linear", "warmup": 0.7, "decay": 0.5},
        {"steps": None, "epochs": 0.5},
        {"shuffle_blocks": 2, "batches": "by_task"},
        {"shuffle_blocks": 1, "batches": "cycle"},
        {"objectives": {"structure": 0.3333, "spanbert": 0.3333, "unilm": 0.3333}},
        {"objectives": {"seq2seq": 1.0}, "pseudo_masks": True},
        {"objectives": {"seq2seq": 1.0}, "copies": True},
        {
            "evaluate": [{"corpus": "a"}, {"corpus": "b", "split": "validation"}],
            "evaluate_every": 5,
            "keep_best": "b/validation/f1",
        },
    ],
)
def test_recipes_at_the_bounds_are_taken(changed: dict[str, object]) -> None:
    assert Recipe.model_validate(make_recipe(Path("unused")).model_dump() | changed)


def model(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step-{step:06}/model.safetensors")


def assert_equal(run: Path, other: Path, *files: str) -> None:
    """Compare the last checkpoints bit by bit."""
    for file in files:
        mine, theirs = (load_file(one / "checkpoints/step-000008" / file) for one in (run, other))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items()), file


def test_each_layer_learns_at_a_share_of_the_rate_above_it(world: World) -> None:
    """ModernBERT's layers have another name than BERT's, and a norm comes after them."""
    small = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    modern = ModernBertModel(ModernBertConfig(**small, num_hidden_layers=2, pad_token_id=0))
    recipe = make_recipe(world.encoder, learning_rate=0.1, head_learning_rate=0.3, layer_decay=0.5)
    for model in (
        UbertModel.new(str(world.encoder), Shape(), vocabulary=1, seed=0),
        UbertModel.around(modern, Shape()),
    ):
        names = {parameter: name for name, parameter in model.named_parameters()}
        groups = adamw(model, recipe).param_groups
        rates = {names[p]: group["lr"] for group in groups for p in group["params"]}
        assert rates.keys() == set(names.values()) and model.encoder.config.num_hidden_layers == 2
        for name, rate in rates.items():
            number = re.search(r"layers?\.(\d)", name)
            above = 1 - int(number[1]) if number else 2 if "embeddings" in name else 0
            assert rate == (0.1 * 0.5**above if name.startswith("encoder.") else 0.3), name
        assert groups[0]["lr"] == 0.1  # what the log shows as the encoder's rate


def test_a_frozen_encoder_still_has_its_rate(world: World) -> None:
    model = UbertModel.new(str(world.encoder), Shape(), vocabulary=1, seed=0)
    model.encoder.requires_grad_(False)
    groups = adamw(model, make_recipe(world.encoder, learning_rate=0.1)).param_groups
    assert [len(group["params"]) for group in groups][:2] == [0, 0] and groups[0]["lr"] == 0.1


def test_only_matrices_decay(world: World) -> None:
    model = UbertModel.new(str(world.encoder), Shape(), vocabulary=1, seed=0)
    groups = adamw(model, make_recipe(world.encoder, weight_decay=0.3)).param_groups
    decays = [(p.dim() > 1, group["weight_decay"]) for group in groups for p in group["params"]]
    assert len(decays) == len(list(model.parameters())) and set(decays) == {(True, 0.3), (False, 0.0)}


def test_all_rates_are_the_same_share_of_their_peaks(world: World) -> None:
    model = UbertModel.new(str(world.encoder), Shape(), vocabulary=1, seed=0)
    optimizer = adamw(
        model, make_recipe(world.encoder, learning_rate=0.1, head_learning_rate=0.3, layer_decay=0.5)
    )
    peaks = [group["lr"] for group in optimizer.param_groups]
    for share in (0.5, 0.25, 1.0):
        assert set_rates(optimizer, share) == pytest.approx(0.1 * share)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([peak * share for peak in peaks])
