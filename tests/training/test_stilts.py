"""Runs that start from the weights of other runs (STILTs), in chains, and corpora that alternate."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from handmade import ner, question, sentiment
from pydantic import ValidationError
from safetensors.torch import load_file
from tiny_run import losses, make_encoder, make_recipe

from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.record import Record
from ubert.training import loop, run_directory
from ubert.training.checkpoints.checkpoint import read_state
from ubert.training.run_directory import finished

QUIET = loop.Worker(progress=False)
SPEX = {"objectives": {"spexbert": 1.0}}


def corpora() -> dict[str, list[Record]]:
    return {
        "reviews": [sentiment(i) for i in range(30)],
        "questions": [question(i) for i in range(12)],
        "opinions": [sentiment(i, 2, "opinions") for i in range(8)],
        "people": [ner(i) for i in range(12)],
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def encoder(root: Path) -> Path:
    return make_encoder(root / "encoder")


@pytest.fixture(scope="module")
def mixed(root: Path, encoder: Path) -> Callable[..., Path]:
    def shards(*names: str) -> Path:
        chosen = {name: corpora()[name] for name in names}
        return handmade.make_shards(root, chosen, encoder=str(encoder), max_tokens=32, name="-".join(names))

    return shards


@pytest.fixture(scope="module")
def train(root: Path, encoder: Path, mixed: Callable[..., Path]) -> Callable[..., Path]:
    def trained(name: str, *names: str, **changed: Any) -> Path:
        run = root / "runs" / name
        if not run.exists():
            recipe = make_recipe(encoder, **{"name": name, "steps": 4} | SPEX | changed)
            loop.train(recipe, shards=mixed(*names), run=run, worker=QUIET)
        return run

    return trained


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step-{step:06}/model.safetensors")


def test_a_chain_of_runs_hands_on_its_weights_and_nothing_else(train: Callable[..., Path]) -> None:
    """Encoder and head, to another mixture, other rates and another length; the optimizer is fresh, as are the
    steps, and each run knows the chain."""
    first = train("a", "reviews")
    second = train("b", "questions", **{"from": "a", "steps": 3, "learning_rate": 1e-4})
    third = train("c", "opinions", **{"from": "b/step-000003"})
    for run, (before, step) in ((second, (first, 4)), (third, (second, 3))):
        mine, theirs = weights(run, 0), weights(before, step)
        assert mine.keys() == theirs.keys() and "pointer.ends.weight" in mine
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
        assert not torch.equal(weights(run, 3)["pointer.ends.weight"], mine["pointer.ends.weight"])
        assert not load_file(run / "checkpoints/step-000000/optimizer.safetensors")
        assert {
            int(value)
            for name, value in load_file(run / "checkpoints/step-000003/optimizer.safetensors").items()
            if name.startswith("step/")
        } == {3}
    manifest = finished(third)
    assert manifest is not None
    assert [(one.run, one.step) for one in manifest.ancestry] == [("a", 4), ("b", 3)]
    for one, run in zip(manifest.ancestry, (first, second), strict=True):
        assert one.weights == read_state(run / f"checkpoints/step-{one.step:06}").files["model.safetensors"]
    alone = finished(first)
    assert alone is not None and alone.ancestry == []
    assert json.loads((third / "manifest.json").read_text())["ancestry"][0]["run"] == "a"
    assert "from: b/step-000003" in (third / "recipe.yaml").read_text()


def test_a_run_with_an_ancestor_resumes_as_if_it_was_not_stopped(
    root: Path, encoder: Path, train: Callable[..., Path], mixed: Callable[..., Path]
) -> None:
    train("a", "reviews")
    whole = train("whole", "questions", **{"from": "a"})
    again = root / "runs/again"
    shutil.copytree(whole, again)
    (again / "manifest.json").unlink()
    shutil.rmtree(again / "checkpoints/step-000004")
    recipe = make_recipe(encoder, **{"name": "whole", "steps": 4, "from": "a"} | SPEX)
    loop.train(recipe, shards=mixed("questions"), run=again, worker=QUIET)
    assert losses(again) == losses(whole)
    assert all(torch.equal(tensor, weights(whole, 4)[name]) for name, tensor in weights(again, 4).items())
    assert (
        read_state(again / "checkpoints/step-000004").ancestry
        == read_state(whole / "checkpoints/step-000000").ancestry
    )


def test_heads_that_both_have_are_handed_on_and_others_are_new(train: Callable[..., Path]) -> None:
    """A UBERT gives a SpEx-BERT its encoder, and the other way round."""
    table = train("table", "reviews", objectives={"structure": 1.0})
    pointer = train("pointer", "reviews", **{"from": "table"})
    back = train("back", "reviews", **{"from": "pointer", "objectives": {"structure": 1.0}})
    for run, before, mine, theirs in ((pointer, table, "pointer", "table"), (back, pointer, "table", "pointer")):
        now, then = weights(run, 0), weights(before, 4)
        assert {name.split(".")[0] for name in now} == {"encoder", mine}
        assert {name.split(".")[0] for name in then} == {"encoder", theirs}
        assert all(torch.equal(now[name], then[name]) for name in now if name.startswith("encoder."))


def test_wrong_ancestors_are_refused(
    root: Path, encoder: Path, train: Callable[..., Path], mixed: Callable[..., Path], tmp_path: Path
) -> None:
    train("a", "reviews")
    train("sized", "reviews", objectives={"structure": 1.0}, table_size=16)
    unfinished = root / "runs/unfinished"
    shutil.copytree(root / "runs/a", unfinished)
    (unfinished / "manifest.json").unlink()
    other = make_encoder(tmp_path / "other")
    tokenizer = load_tokenizer(str(encoder)).hash
    for wrong, said in (
        ({"from": "nobody"}, r"recipe late: from nobody: expected another run of .*; there are a, "),
        ({"from": "late"}, r"from late: expected another run"),
        ({"from": "unfinished"}, r"the run isn't finished; finish it with `ubert pretrain unfinished`, or name"),
        ({"from": "a/step-000009"}, r"step-000009: not a complete checkpoint .* give another"),
        (
            {"from": "a"},
            r"its encoder is .*/encoder .* this recipe's .*/other .*ancestor's",
        ),
    ):
        mine = other if "encoder" in said else encoder
        recipe = make_recipe(mine, **{"name": "late"} | SPEX | wrong)
        with pytest.raises(UserError, match=said):
            run_directory.check(root / "runs/late", recipe, "shards", tokenizer, resume=False)
    recipe = make_recipe(encoder, **{"name": "late", "from": "sized"})
    with pytest.raises(UserError, match="has a table of layout joint and size 16; expected joint and 8"):
        loop.train(recipe, shards=mixed("reviews"), run=root / "runs/late", worker=QUIET)


def test_what_any_run_of_a_chain_was_trained_on_is_not_evaluated(
    root: Path, encoder: Path, train: Callable[..., Path]
) -> None:
    train("a", "reviews")
    train("b", "questions", **{"from": "a", "steps": 3, "learning_rate": 1e-4})
    tokenizer = load_tokenizer(str(encoder)).hash
    for corpus, owner in (("reviews", "a"), ("questions", "b"), ("opinions", None)):
        evaluate = [{"corpus": "people", "split": "train"}, {"corpus": corpus, "split": "train"}]
        recipe = make_recipe(encoder, **{"name": "late", "from": "b", "evaluate": evaluate} | SPEX)
        if owner is None:
            assert run_directory.check(root / "runs/late", recipe, "shards", tokenizer, resume=False) is None
            continue
        with pytest.raises(UserError, match=f"from b: {owner} was trained on {corpus}/train, which the recipe"):
            run_directory.check(root / "runs/late", recipe, "shards", tokenizer, resume=False)


def test_what_an_ancestor_was_trained_on_is_not_evaluated_later_either(
    root: Path, train: Callable[..., Path], mixed: Callable[..., Path], encoder: Path
) -> None:
    """Neither if the run resumes with another `evaluate`, nor if another run continues it."""
    train("a", "reviews")
    train("child", "questions", **{"from": "a"})
    seen = {"evaluate": [{"corpus": "reviews", "split": "train"}]} | SPEX
    for name, start in (("other", {"continue_from": "child/step-000003"}), ("child", {"from": "a"})):
        recipe = make_recipe(encoder, **{"name": name, "steps": 5} | start | seen)
        again = partial(loop.train, shards=mixed("questions"), run=root / "runs" / name, resume=name == "child")
        with pytest.raises(UserError, match=r"child.*: a was trained on reviews/train, which the recipe"):
            again(recipe)
        assert again(recipe.model_copy(update={"seen": "allow"})).name == "step-000005"


def test_a_checkpoint_as_the_encoder_is_an_ancestor(
    root: Path, train: Callable[..., Path], mixed: Callable[..., Path]
) -> None:
    weights = train("a", "reviews") / "checkpoints/step-000004"
    evaluate = [{"corpus": "reviews", "split": "train"}]
    recipe = make_recipe(weights, **{"name": "upon", "steps": 1, "evaluate": evaluate} | SPEX)
    again = partial(loop.train, shards=mixed("questions"), run=root / "runs/upon", worker=QUIET)
    with pytest.raises(UserError, match=r"upon: encoder .*: a was trained on reviews/train, which the recipe"):
        again(recipe)
    done = again(recipe.model_copy(update={"seen": "allow"}))
    assert [(one.run, one.step) for one in read_state(done).ancestry] == [("a", 4)]
    assert run_directory.trained_on(done, ["reviews/train", "people/train"]) == ["reviews/train"]


def test_from_and_continue_from_are_two_things() -> None:
    """The first is weights alone, the second the whole state; the older word for it is read, too."""
    settings = make_recipe(Path("unused")).model_dump()
    with pytest.raises(ValidationError, match=r"expected one of `from` .* and `continue_from`"):
        make_recipe(Path("unused"), **{"from": "a", "continue_from": "a/step-000004"})
    del settings["continue_from"]
    older = type(make_recipe(Path("unused"))).model_validate(settings | {"start_from": "a/step-000004"})
    assert older.continue_from == "a/step-000004" and older.model_dump()["continue_from"] == "a/step-000004"


# ---- corpora that take turns


def loader(shards: Path, encoder: Path, **changed: Any) -> Loader:
    recipe = make_recipe(
        encoder, **{"batches": "cycle", "tokens_per_batch": 64, "packs_per_batch": 1} | SPEX | changed
    )
    tokenizer = load_tokenizer(str(encoder))
    return Loader(open_shards(shards), recipe, tokenizer.special, 64, phrases=tokenizer.for_pointing())


def test_corpora_alternate_batch_by_batch(encoder: Path, mixed: Callable[..., Path]) -> None:
    """SpEx-BERT, section 5; each in epochs of its own, which show every text once."""
    train = loader(mixed("reviews", "questions", "opinions"), encoder, epochs=2, steps=None)
    order = ["opinions", "questions", "reviews"]
    steps = [train.step(i) for i in range(train.total_steps)]
    assert [{id.split("/")[0] for id in step.records} for step in steps] == [
        {order[i % 3]} for i in range(len(steps))
    ]
    of_reviews = [step.rows for step in steps[2::3]]
    assert len(of_reviews) == 2 * train.steps_per_epoch // 3
    half = len(of_reviews) // 2
    for epoch in (of_reviews[:half], of_reviews[half:]):
        assert Counter(row for rows in epoch for row in rows) == Counter(range(*bounds(train, "reviews")))
    seen = Counter(row for step in steps[::3] for row in step.rows)
    assert min(seen.values()) > 2 and max(seen.values()) - min(seen.values()) <= 1
    shown = Counter[int]()
    for step in steps:
        assert {shown[row] for row in step.rows} == {step.epoch}
        shown.update(step.rows)


def bounds(train: Loader, corpus: str) -> tuple[int, int]:
    rows = [row for row in range(len(train.shards)) if train.shards.record_id(row).startswith(f"{corpus}/")]
    return rows[0], rows[-1] + 1


def test_phases_cycle_one_after_the_other(root: Path, encoder: Path) -> None:
    chosen = {name: corpora()[name] for name in ("reviews", "questions", "opinions")}
    copies = {one.record_id: (1, 0) if one.corpus == "reviews" else (1, 1) for of in chosen.values() for one in of}
    shards = handmade.make_shards(
        root,
        chosen,
        copies=copies,
        encoder=str(encoder),
        max_tokens=32,
        name="phases",  # type: ignore[arg-type]
    )
    train = loader(shards, encoder)
    of_epoch = [train.step(i).records[0].split("/")[0] for i in range(train.steps_per_epoch)]
    second = len(of_epoch) - of_epoch[::-1].index("reviews")
    assert set(of_epoch[second:]) == {"opinions", "questions"}
    assert all(set(pair) == {"opinions", "questions"} for pair in pairwise(of_epoch[second:]))


def test_the_loss_of_a_cycle_falls_for_each_corpus(root: Path, encoder: Path, mixed: Callable[..., Path]) -> None:
    shards = mixed("reviews", "opinions")
    changed = {
        "batches": "cycle",
        "steps": 60,
        "learning_rate": 3e-3,
        "checkpoint_every": 99,
        "tokens_per_batch": 512,
    }
    loop.train(make_recipe(encoder, **changed | SPEX), shards=shards, run=root / "runs/cycle", worker=QUIET)
    every = losses(root / "runs/cycle")
    for of_corpus in (every[::2], every[1::2]):
        assert sum(of_corpus[-3:]) < 0.8 * sum(of_corpus[:3])
