"""What a recipe learns, beside a plain head of the same encoder that is trained for as long, seed by seed.

Ours is the recipe as `ubert pretrain` runs it, with another seed each time; a finished run is only measured.
Theirs is `transformers` with a head for the one task (`learning_heads.py`), or, for mentions, `gliner` where it is
installed (`--gliner`, `learning_gliner.py`), on the same training split, for as many seconds as ours trained, and
measured by the same counts. Both have all processors of the process.

    python benchmarks/learning.py trec [--seeds 0 1 2] [--root store] [--gliner] [--quick]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import learning_heads

from pipelines.evaluate import evaluate, read_records
from pipelines.pretrain import pretrain
from pipelines.specs import recipe as load_recipe
from pipelines.store import Store
from ubert.evaluation import metric
from ubert.schema.recipe import Recipe
from ubert.schema.record import Record, Split
from ubert.training import log

MAIN = {
    "classification": "accuracy",
    "pair": "accuracy",
    "choice": "accuracy",
    "multilabel": "micro_f1",
    "regression": "pearson",
    "ner": "span_f1",
    "qa": "qa_f1",
    "relation": "relation_f1",
    "event": "trigger_f1",
}


def ours(recipe: Recipe, root: Path, specs: Path) -> tuple[Path, float]:
    """The last checkpoint, and for how many seconds it was trained."""
    checkpoint = pretrain(recipe, root=root, specs=specs)
    run = checkpoint.parent.parent
    return checkpoint, log.read(run)[0][-1].seconds


def records(root: Path, corpus: str, split: Split) -> list[Record]:
    """All records of a split."""
    directory, manifest = Store(root.absolute()).current("corpora", corpus)
    return list(read_records(directory, manifest, split, None))


def show(case: str, ours: float, theirs: float | None, metric: str, n: int) -> None:
    line = {
        "ours": round(ours, 4),
        "theirs": theirs and round(theirs, 4),
        "ratio": theirs and round(ours / theirs, 3),
    }
    print(json.dumps({"benchmark": "learning", "case": case, **line, "unit": metric, "n": n}), flush=True)


def compare(name: str, seed: int, root: Path, specs: Path, quick: bool, gliner: bool) -> None:
    asked = load_recipe(name, specs)
    recipe = asked.model_copy(update={"seed": seed, "name": f"{asked.name}-seed{seed}"})
    if quick:
        recipe = recipe.model_copy(update={"name": f"{recipe.name}-quick", "epochs": None, "steps": 20})
    checkpoint, seconds = ours(recipe, root, specs)
    for wanted in recipe.evaluate:
        found = evaluate(checkpoint, corpus=wanted.corpus, split=wanted.split, limit=wanted.limit, root=root)
        task, main = found["task"], MAIN[found["task"]]
        case = f"{name}, {wanted.corpus}/{wanted.split}, seed {seed}, {seconds:.0f} s"
        sides = {"head": learning_heads.train} if task in learning_heads.TASKS else {}
        if gliner and task == "ner":
            import learning_gliner

            sides["gliner"] = learning_gliner.train
        if not sides:
            show(f"{case}, alone", found["metrics"][main], None, main, found["records"])
        for side, train in sides.items():
            tested = records(root, wanted.corpus, wanted.split)
            predict = train(records(root, wanted.corpus, "train"), recipe.encoder, seconds, seed)
            measure = metric(task)
            counts = learning_heads.counted(tested, predict(tested), measure.count)
            show(f"{case}, {side}", found["metrics"][main], measure.summarise(counts)[main], main, len(tested))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=["trec"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--root", type=Path, default=Path("store"))
    parser.add_argument("--specs", type=Path, default=Path("corpus_specs"))
    parser.add_argument("--gliner", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one seed, 20 steps")
    arguments = parser.parse_args()
    for name in arguments.recipes:
        for seed in arguments.seeds[:1] if arguments.quick else arguments.seeds:
            compare(name, seed, arguments.root, arguments.specs, arguments.quick, arguments.gliner)


if __name__ == "__main__":
    main()
