"""Training dynamics: each text's loss in each pass, resumed or not, with one worker or two, and their views."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from dense_tables import dense_loss, make, pieces_strategy, random_batch
from handmade import make_shards, record, sentiment
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny_run import World, launch, losses, make_encoder, make_recipe, make_world
from waiting import HANGS

from pipelines.store.warehouse import sql
from ubert.schema import dynamics
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Loss, Recipe
from ubert.structure import cells
from ubert.training import loop
from ubert.training.dynamics import Labels, Tables, labels_of, remove_after

QUIET = loop.Worker(progress=False)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"), dropout=0.0)


@pytest.fixture(scope="module")
def recipe(world: World) -> Recipe:
    return make_recipe(world.encoder, name="kept", dynamics=True, epochs=2, steps=None, keep_checkpoints=9)


@pytest.fixture(scope="module")
def finished(world: World, recipe: Recipe) -> Path:
    loop.train(recipe, shards=world.shards, run=world.run("kept"), worker=QUIET)
    return world.run("kept")


def rows(run: Path) -> list[dict[str, Any]]:
    """What the parts of a run hold, whatever the parts are."""
    table = pa.concat_tables(pq.read_table(part) for part in (run / "dynamics").glob("*.parquet"))
    return table.sort_by([("step", "ascending"), ("row", "ascending")]).to_pylist()  # type: ignore[no-any-return]


def assert_same(run: Path, other: Path) -> None:
    mine, theirs = rows(run), rows(other)
    numbers = ("loss", "confidence", "margin")
    for name in mine[0].keys() - numbers:
        assert [row[name] for row in mine] == [row[name] for row in theirs]
    for name in numbers:
        column, wanted = ([np.nan if row[name] is None else row[name] for row in each] for each in (mine, theirs))
        np.testing.assert_allclose(column, wanted, rtol=1e-3, atol=1e-4)


@settings(max_examples=10)
@given(st.integers(0, 10**6), pieces_strategy, st.sampled_from(["bce", "zlpr"]))
def test_the_parts_of_a_loss_are_those_of_its_texts(seed: int, pieces: Any, kind: Loss) -> None:
    batch = random_batch(seed, pieces)
    head, hidden = make(seed, batch, True, torch.float64)
    total, part_T = cells.losses(head(hidden, batch), batch, kind=kind)
    torch.testing.assert_close(part_T.sum(), total.detach())
    torch.testing.assert_close(total, dense_loss(head, hidden, batch, "sum", kind))
    of_piece = torch.zeros(len(batch.ids_BL), dtype=part_T.dtype).index_add(0, batch.piece_T, part_T)
    for piece in range(len(batch.ids_BL)):
        alone = torch.zeros_like(part_T)
        alone[batch.piece_T == piece] = 1
        weighed = cells.weights
        try:
            cells.weights = lambda *_, alone=alone: alone  # type: ignore[assignment]
            expected = cells.loss(head(hidden, batch), batch, kind=kind)[0]
        finally:
            cells.weights = weighed
        torch.testing.assert_close(of_piece[piece], expected.detach(), rtol=1e-6, atol=1e-6)


def test_every_text_of_every_step_is_kept_and_their_losses_are_the_steps(finished: Path) -> None:
    kept = rows(finished)
    counts = np.bincount([row["step"] for row in kept])[1:]
    sums = np.bincount([row["step"] for row in kept], [row["loss"] for row in kept])[1:]
    np.testing.assert_allclose(sums / counts, losses(finished), rtol=1e-5)
    for epoch in (0, 1):
        assert sorted(row["record_id"] for row in kept if row["epoch"] == epoch) == sorted(
            {row["record_id"] for row in kept}
        )
    assert {row["confidence"] is None for row in kept if row["record_id"].startswith("people")} == {True}
    labelled = [row for row in kept if row["record_id"].startswith("reviews")]
    assert all(0 < row["confidence"] < 1 for row in labelled)
    gold = {record.record_id: record.labels[0] for record in (sentiment(i) for i in range(20))}
    assert all((row["predicted"] == gold[row["record_id"]]) == (row["margin"] > 0) for row in labelled)


def test_resumed_equals_uninterrupted(world: World, recipe: Recipe, finished: Path) -> None:
    """As a process has left it that died after a later part than its last checkpoint."""
    run = world.run("resumed")
    shutil.copytree(finished, run)
    (run / "manifest.json").unlink()
    for lost in sorted((run / "checkpoints").glob("step-*"))[2:]:
        shutil.rmtree(lost)
    stale = max((run / "dynamics").glob("*.parquet"))
    shutil.copy(stale, stale.with_name("00000005-1.parquet"))  # of a second worker, which it has no more
    loop.train(recipe, shards=world.shards, run=run, worker=QUIET)
    assert_same(run, finished)


def test_only_parts_that_begin_after_the_checkpoint_are_repeated(tmp_path: Path) -> None:
    parts = [tmp_path / "dynamics" / f"{first:08}-0.parquet" for first in (1, 5, 6)]
    parts[0].parent.mkdir()
    for part in parts:
        part.touch()
    remove_after(tmp_path, 5)
    assert [part.exists() for part in parts] == [True, True, False]


def test_parts_begin_after_each_checkpoint(finished: Path) -> None:
    steps = len(losses(finished))
    assert sorted(part.name for part in (finished / "dynamics").iterdir()) == [
        f"{first:08}-0.parquet" for first in range(1, steps + 1, 3)
    ]


def test_a_part_is_written_earlier_if_its_tables_are_many(
    world: World, recipe: Recipe, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ubert.training.dynamics.TABLES", 1)
    loop.train(recipe, shards=world.shards, run=tmp_path / "run", worker=QUIET)
    steps = range(1, len(losses(finished)) + 1)
    assert sorted(dynamics.first_step(part.name) for part in (tmp_path / "run/dynamics").iterdir()) == [*steps]
    assert_same(tmp_path / "run", finished)


def test_dynamics_that_cannot_be_written_keep_their_checkpoint_from_being_there(
    world: World, recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/dynamics").write_text("a file where the folder would be", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"dynamics/00000001-0\.parquet: cannot be written .* free some disk space"
    ):
        loop.train(recipe, shards=world.shards, run=tmp_path / "run", worker=QUIET)
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-000000"]


@pytest.mark.slow
def test_two_workers_keep_what_one_keeps(world: World, recipe: Recipe, finished: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    process = launch(world, recipe, *launcher, name="two")
    assert process.communicate(timeout=HANGS)[1] is not None and process.returncode == 0
    assert {part.stem.partition("-")[2] for part in (world.run("two") / "dynamics").glob("*")} == {"0", "1"}
    assert_same(world.run("two"), finished)


def test_without_the_word_nothing_is_kept_and_training_is_the_same(
    world: World, recipe: Recipe, finished: Path, tmp_path: Path
) -> None:
    plain = recipe.model_copy(update={"dynamics": False})
    loop.train(plain, shards=world.shards, run=tmp_path / "plain", worker=QUIET)
    assert losses(tmp_path / "plain") == losses(finished)
    assert not (tmp_path / "plain" / "dynamics").exists()


def test_views_join_the_rows_of_a_record_and_average_its_passes(world: World, finished: Path) -> None:
    passes = sql(world.root, "SELECT * FROM dynamics WHERE run = 'kept' ORDER BY record_id, epoch").to_pylist()
    assert len(passes) == 2 * 60 and {"loss", "confidence", "correct", "step"} <= passes[0].keys()
    [found] = sql(
        world.root, "SELECT * FROM cartography WHERE run = 'kept' AND record_id = 'reviews/train/3'"
    ).to_pylist()
    own = [one for one in passes if one["record_id"] == "reviews/train/3"]
    assert found["confidence"] == pytest.approx(np.mean([one["confidence"] for one in own]))
    assert found["variability"] == pytest.approx(np.std([one["confidence"] for one in own]))
    assert found["correctness"] == np.mean([one["correct"] for one in own]) and found["passes"] == 2


def test_confidence_of_several_labels_is_that_of_each_decision(tmp_path: Path) -> None:
    """A new model tells each of three categories that none holds, with a probability of 98 %."""
    encoder = make_encoder(tmp_path / "encoder", dropout=0.0)
    names = ["good", "person", "place"]
    tags = [record("tags", i, "multilabel", f"Film number {i} was good", names, labels=[0]) for i in range(12)]
    corpora = {"reviews": [sentiment(i) for i in range(12)], "tags": tags}
    shards = make_shards(tmp_path, corpora, encoder=str(encoder), max_tokens=32, name="tiny")
    slow = {"learning_rate": 1e-9, "head_learning_rate": 1e-9, "epochs": 1, "steps": None}
    recipe = make_recipe(encoder, dynamics=True, **slow)
    loop.train(recipe, shards=shards, run=tmp_path / "run", worker=QUIET)
    found = {row["record_id"]: row["confidence"] for row in rows(tmp_path / "run")}
    assert len(found) == 24
    tagged = [confidence for name, confidence in found.items() if name.startswith("tags")]
    assert tagged == pytest.approx([(2 * 0.982 + 0.018) / 3] * 12, abs=0.1)
    assert sum(found.values()) - sum(tagged) == pytest.approx(12 / 3, abs=1)  # each opinion is that of four texts


def test_copies_are_passes_and_windows_are_one(tmp_path: Path) -> None:
    (tmp_path / "runs/long/dynamics").mkdir(parents=True)
    columns = {
        "record_id": ["a"] * 4,
        "row": [0, 1, 0, 1],  # two windows, shown twice
        "epoch": [0] * 4,
        "step": [1, 2, 3, 4],
        "loss": [1.0, 2.0, 4.0, 8.0],
        "confidence": [None] * 4,
        "margin": [None] * 4,
        "predicted": [None] * 4,
    }
    pq.write_table(pa.table(columns).cast(dynamics.SCHEMA), tmp_path / "runs/long/dynamics/00000001-0.parquet")
    found = sql(tmp_path, "SELECT step, loss, correct FROM dynamics ORDER BY step").to_pylist()
    assert found == [{"step": 2, "loss": 3.0, "correct": None}, {"step": 4, "loss": 12.0, "correct": None}]


def test_labels_by_hand() -> None:
    tables = Tables(
        text_T=np.array([0, 0, 0, 1, 1]),
        category_T=np.array([0, 1, 2, 0, 1]),
        label_T=np.ones(5, np.bool_),
        gold_T=np.array([False, True, False, True, False]),
        loss_T=np.zeros(5),
        score_T=np.array([0.0, 2.0, 1.0, 3.0, 1.0]),
    )
    found = labels_of(tables, np.array([False, True]))
    odds = np.exp([0.0, 2.0, 1.0])
    sure = 1 / (1 + np.exp([-3.0, 1.0]))  # that the first holds, and that the second doesn't
    expected = Labels(np.array([odds[1] / odds.sum(), sure.mean()]), np.array([1.0, -1.0]), np.array([1, 0]))
    for column, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(column, wanted)


def test_of_equal_scores_the_first_is_predicted_and_one_sided_labels_have_no_margin() -> None:
    """Three texts: two categories with the best score; none that is right; none that is wrong."""
    tables = Tables(
        text_T=np.array([0, 0, 0, 1, 1, 2]),
        category_T=np.array([4, 7, 2, 0, 1, 3]),
        label_T=np.ones(6, np.bool_),
        gold_T=np.array([True, False, False, False, False, True]),
        loss_T=np.zeros(6),
        score_T=np.array([0.5, 2.0, 2.0, -1.0, -3.0, 1.0]),
    )
    found = labels_of(tables, np.zeros(3, np.bool_))
    assert found.predicted.tolist() == [7, 0, 3]
    assert found.margin.tolist() == [-1.5, -np.inf, np.inf]
    several = labels_of(tables, np.ones(3, np.bool_))
    assert several.margin.tolist() == [-2.0, 1.0, 1.0]


def test_dynamics_without_structure_tables_are_refused() -> None:
    with pytest.raises(ValidationError, match="add structure to `objectives`"):
        Recipe(name="a", mixture="a", steps=1, dynamics=True, objectives={"spanbert": 1.0})
