"""The quality of a recipe against a plain head on the same encoder, trained for the same time, seed by seed.

Ours is the recipe in the loop of `ubert pretrain`, once per seed; a finished run is only evaluated. Theirs is
`transformers` with a head for the one task (`learning_heads.py`, `learning_answers.py`). For mentions it may also
be `gliner`, if installed (`learning_gliner.py`). It trains on the same split for as many seconds as ours, and is
evaluated with the same metrics. For relations theirs learns only the mentions, for events only the triggers.
Times are processor seconds on one thread, on which a busy machine has little effect. With `--seconds` a short
trial determines the steps of ours, and overrides its recipe, so that settings can be compared at equal time.

    python benchmarks/learning.py trec [--seeds 0 1 2] [--against head gliner]
        [--set layout=stacked] [--seconds 300] [--root store] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import learning_answers
import learning_heads
import torch
from learning_mentions import Train, in_parts, mentions
from measure import ROOT, report, settings

from pipelines.mixtures.mix import mix
from pipelines.models.evaluate import evaluate, read_records
from pipelines.shards.shard import shard
from pipelines.specs import mixture
from pipelines.specs import recipe as load_recipe
from pipelines.store.store import Store
from ubert.evaluation import MAIN, metric
from ubert.schema.record import Record, Split
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.step import Worker


def sharded(recipe: Recipe, root: Path, specs: Path) -> Path:
    """Draw a recipe's mixture and make its shards."""
    mix(mixture(recipe.mixture, specs), root=root, encoder=recipe.encoder)
    shards = shard(recipe.mixture, encoder=recipe.encoder, max_tokens=recipe.max_tokens, root=root)
    return root / "shards" / shards.name / shards.fingerprint


def ours(recipe: Recipe, shards: Path, run: Path) -> tuple[Path, float]:
    """Train; return the last checkpoint and the processor seconds of training."""
    took = run / "processor_seconds.json"
    if run.exists() and not took.exists():
        sys.exit(f"{run}: it was interrupted, so that its processor time is unknown; remove it, and start again")
    began = time.process_time()
    checkpoint = loop.train(recipe, shards=shards, run=run, worker=Worker(progress=False))
    if not took.exists():
        took.write_text(json.dumps(time.process_time() - began), encoding="utf-8")
    return checkpoint, json.loads(took.read_text(encoding="utf-8"))


def steps_in(seconds: float, recipe: Recipe, shards: Path) -> int:
    """Estimate how many steps fit into `seconds`, by the marginal time of a step in two short runs."""
    few, more = 10, 40
    took = []
    for steps in (few, more):
        with tempfile.TemporaryDirectory() as run:
            short = Recipe(**recipe.model_dump() | {"steps": steps, "epochs": None})
            took.append(ours(short, shards, Path(run) / short.name)[1])
    return max(few, round(few + (seconds - took[0]) * (more - few) / (took[1] - took[0])))


def records(root: Path, corpus: str, split: Split, limit: int | None = None) -> list[Record]:
    """Read the records of a split: all, or the first ones by sampling key."""
    directory, manifest = Store(root.absolute()).current("corpora", corpus)
    return list(read_records(directory, manifest, split, limit))


def show(case: str, ours: float, theirs: float | None, metric: str, n: int) -> None:
    report("learning", case, ours, theirs, metric, n, more=True, digits=4)


def theirs(task: str, against: list[str]) -> dict[str, Train]:
    """Return the training functions to compare with for a task."""
    if task == "qa":
        return {"head": learning_answers.train} if "head" in against else {}
    sides: dict[str, Train] = {}
    if "head" in against and task in learning_heads.TASKS:
        sides["head"] = in_parts(learning_heads.train) if task == "ner" else learning_heads.train
    if "gliner" in against and task == "ner":
        import learning_gliner

        sides["gliner"] = in_parts(learning_gliner.train)
    return sides


def compare(name: str, changed: dict[str, Any], root: Path, specs: Path, against: list[str]) -> None:
    seed = changed["seed"]
    own_name = "-".join([name, *(f"{key}-{value}" for key, value in changed.items())]).lower().replace("/", "-")
    recipe = Recipe(**load_recipe(name, specs).model_dump() | changed | {"name": own_name})
    checkpoint, seconds = ours(recipe, sharded(recipe, root, specs), root / "runs" / recipe.name)
    for wanted in recipe.evaluate:
        found = evaluate(checkpoint, **wanted.model_dump(), root=root)
        task, main = found["task"], MAIN[found["task"]]
        settings = "".join(f", {key} {value}" for key, value in changed.items())
        case = f"{name}, {wanted.corpus}/{wanted.split}{settings}, {seconds:.0f} s"
        tested = records(root, wanted.corpus, wanted.split, wanted.limit)
        held_out = {record.record_id for record in tested}  # they may come from the training split
        trained = [each for each in records(root, wanted.corpus, "train") if each.record_id not in held_out]
        if task in ("relation", "event"):
            show(f"{case}, alone", found["metrics"][main], None, main, found["records"])
            trained, tested = list(map(mentions, trained)), list(map(mentions, tested))
            main, task = ("span_f1" if task == "relation" else "trigger_f1"), "ner"
        sides = theirs(task, against)
        if not sides:
            show(f"{case}, alone", found["metrics"][main], None, main, found["records"])
        for side, train in sides.items():
            measure = metric(task)
            predict = train(trained, recipe.encoder, seconds, seed)
            reached = learning_heads.summarised(tested, predict(tested), measure)[MAIN[task]]
            show(f"{case}, {side}", found["metrics"][main], reached, main, len(tested))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=["trec"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--specs", type=Path, default=Path("corpus_specs"))
    parser.add_argument("--against", nargs="*", default=["head"], choices=["head", "gliner"])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument("--seconds", type=float, help="training time of ours, instead of epochs")
    parser.add_argument("--quick", action="store_true", help="one seed, 20 steps")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    changed = settings(arguments.set)
    if arguments.quick:
        changed |= {"steps": 20, "epochs": None}
    for name in arguments.recipes:
        for seed in arguments.seeds[:1] if arguments.quick else arguments.seeds:
            settings = changed | {"seed": seed}
            if arguments.seconds:
                trial = Recipe(**load_recipe(name, arguments.specs).model_dump() | settings)
                steps = steps_in(arguments.seconds, trial, sharded(trial, arguments.root, arguments.specs))
                settings |= {"steps": steps, "epochs": None}
            compare(name, settings, arguments.root, arguments.specs, arguments.against)


if __name__ == "__main__":
    main()
