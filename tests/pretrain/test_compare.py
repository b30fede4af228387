"""A run measured before and after its training, and the settings of short runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_run import World, make_recipe, make_world

from pipelines.models.evaluate import evaluate
from pipelines.training.compare import comparison_table
from pipelines.training.short_run import short
from ubert.inference.thresholds import FILE, Fitted, to_json
from ubert.schema.errors import UserError
from ubert.training import loop


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"))


def test_the_table_has_the_metrics_of_the_first_and_the_last_checkpoint(world: World) -> None:
    wanted = [{"corpus": "reviews", "split": "train"}, {"corpus": "people", "split": "train", "limit": 9}]
    recipe = make_recipe(world.encoder, evaluate=wanted, initial_bias=0.0, learning_rate=0.01, steps=20)
    run = world.run("tiny")
    with pytest.raises(UserError, match=r"the run is not finished; train it first with `ubert pretrain tiny`"):
        comparison_table(recipe, run, root=world.root)
    loop.train(recipe, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    rows = comparison_table(recipe, run, root=world.root).to_pylist()
    before, after = (
        [evaluate(run / f"checkpoints/step-0000{step}", **one, root=world.root) for one in wanted]  # type: ignore[arg-type]
        for step in ("00", "20")
    )
    assert rows == [
        {"corpus": first["corpus"], "split": "train", "records": first["records"], "metric": metric}
        | {"before": round(value, 4), "after": round(last["metrics"][metric], 4)}
        for first, last in zip(before, after, strict=True)
        for metric, value in first["metrics"].items()
    ]
    assert any(row["before"] != row["after"] for row in rows)
    fitted = Fitted(threshold=0.95, value=0.5, corpora=["people"], split="train", records=9)
    (run / "checkpoints" / "step-000020" / FILE).write_text(to_json({"ner": fitted}))
    again = {row["metric"]: row for row in comparison_table(recipe, run, root=world.root).to_pylist()}
    for side, step in (("before", "00"), ("after", "20")):
        one = evaluate(run / f"checkpoints/step-0000{step}", **wanted[1], threshold=0.95, root=world.root)  # type: ignore[arg-type]
        assert again["span_f1"][side] == round(one["metrics"]["span_f1"], 4)
    assert again["span_f1"]["before"] != before[1]["metrics"]["span_f1"], "the threshold changes what is found"
    kept = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    assert [(one["corpus"], one["records"]) for one in kept["before"]] == [("reviews", 20), ("people", 9)]


def test_a_short_run_leaves_nothing_but_its_last_checkpoint() -> None:
    measured = {"evaluate": [{"corpus": "a"}], "evaluate_every": 2, "keep_best": "a/test/f1"}
    given = make_recipe(Path("unused"), **measured, mlflow=True, dynamics=True, seed=3)
    made = short(given, steps=5, name="short")
    assert (made.evaluate, made.evaluate_every, made.keep_best) == ([], None, None)
    assert (made.mlflow, made.dynamics, made.name, made.steps, made.seed) == (False, False, "short", 5, 3)
    assert made.checkpoint_every > 10**6
    same = given.model_dump().keys() - {*measured, "mlflow", "dynamics", "checkpoint_every", "steps", "name"}
    assert made.model_dump(include=same) == given.model_dump(include=same)
