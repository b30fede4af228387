"""Compare a model trained on all records with one trained on those that `suspects: drop` keeps.

Both runs have the same steps and start from universal-small. In the invented world, a third run lacks exactly the
planted errors, which shows the most that cleaning can gain. `--noise` is the share of the training records with an
error. From a real corpus, the first records by sampling key are used. Test records are never changed.

    python benchmarks/cleaned.py [--corpora sample_reviews wnut17 ...] [--noise 0.05 0.2] [--seeds 0 1 2]
        [--records 1000] [--folds 3] [--data ../shared/data] [--quick]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from learning_heads import summarised
from measure import report
from suspects import by_folds, planted_in, records_of

import ubert
from pipelines.samples.generate import generate
from pipelines.samples.noise import CHANGES
from pipelines.specs import dataset_spec, specs_folder
from pipelines.suspects.start import START, starting_from
from pipelines.training.short_run import shards_of, train
from ubert.evaluation import MAIN, metric
from ubert.schema.record import Record, Split, sampling_key
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.recipe import Recipe

MEASURED = 500  # test records


def sample(spec: DatasetSpec, data: Path, split: Split, most: int) -> list[Record]:
    return sorted(records_of(spec, data, split), key=lambda record: sampling_key(record.record_id))[:most]


def score(recipe: Recipe, records: list[Record], asked: Sequence[Record], folder: Path) -> tuple[float, int]:
    """Train on records, and return the main metric of those that are asked, and the number of steps."""
    shards = shards_of(records, recipe.encoder, folder / "shards", recipe.max_tokens)
    trained = train(recipe, shards, folder)
    task, predictions = asked[0].task, ubert.load(trained).predict_records(asked)
    return summarised(asked, predictions, metric(task))[MAIN[task]], int(trained.name.removeprefix("step-"))


def compare(name: str, seed: int, given: argparse.Namespace, noise: float) -> None:
    """Print the metric with all records, without the suspects, and without the planted errors."""
    recipe = Recipe(**starting_from(START).model_dump() | {"seed": seed, **given.length})
    with TemporaryDirectory() as scratch:
        folder, spec = Path(scratch), dataset_spec(name, specs_folder(None))
        data = folder / "world" if name in CHANGES else given.data
        if name in CHANGES:
            generate(given.records, seed, data, noise=noise)
        records, asked = sample(spec, data, "train", given.records), sample(spec, data, "test", MEASURED)
        whole, steps = score(recipe, records, asked, folder / "all")
        same = Recipe(**recipe.model_dump() | {"epochs": None, "steps": steps})
        flagged = {key for key, drop in by_folds(records, recipe, given.folds, folder / "folds").items() if drop}
        removed = {"suspects": flagged}
        if name in CHANGES:
            removed["planted errors"] = planted_in(records, data / name)
        for case, out in removed.items():
            kept = [record for record in records if record.record_id not in out]
            ours, _ = score(same, kept, asked, folder / case)
            label = f"{name}, noise {noise:g}, seed {seed}, without {len(records) - len(kept)} {case}"
            report("cleaned", label, round(ours, 3), round(whole, 3), MAIN[asked[0].task], 1, more=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("UBERT_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="the mirror")
    parser.add_argument("--corpora", nargs="+", default=["sample_reviews", "sample_entities"])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.05, 0.2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one corpus and seed, 2 folds of few steps")
    given = parser.parse_args()
    given.length = {}
    if given.quick:
        given.corpora, given.noise, given.seeds = ["sample_reviews"], [0.2], [0]
        given.records, given.folds = 100, 2
        given.length = {"epochs": None, "steps": 4}
    torch.set_num_threads(1)
    for name in given.corpora:
        for noise in given.noise if name in CHANGES else [0.0]:
            for seed in given.seeds:
                compare(name, seed, given, noise)


if __name__ == "__main__":
    main()
