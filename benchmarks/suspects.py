"""How well `ubert suspects` finds planted errors, in the synthetic world with `--noise 0.05`, seed by seed.

Ours is the share of planted errors among the first 5 % of the training records, ranked by out-of-fold predictions
as in `ubert suspects`. Theirs ranks records by their mean loss in one run with `dynamics`, or at random, which
gives the share of errors in all records. Everything runs in this process, on one thread.

    python benchmarks/suspects.py [--seeds 0 1 2] [--corpora sample_reviews ...] [--records 1000] [--folds 5]
        [--steps N] [--start MODEL] [--encoder NAME] [--quick]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import report

from pipelines.mapping.mapper import mapper
from pipelines.samples.generate import generate
from pipelines.samples.noise import CHANGES, TRUTH
from pipelines.sources import RawRow, Slice, reader
from pipelines.specs import dataset_spec, file_options, specs_folder
from pipelines.store.warehouse import sql
from pipelines.suspects.evidence import ranked
from pipelines.suspects.fold import fold_of, prediction_rows, trained
from pipelines.suspects.start import DEFAULT, START, starting_from
from pipelines.suspects.suspects import contradicted
from pipelines.training.short_run import shards_of
from ubert.schema.record import Record, Split
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.step import Worker

NOISE = 0.05


def records_of(spec: DatasetSpec, data: Path, split: Split = "train") -> list[Record]:
    """Read the records of a split of a dataset, none of whose rows is rejected."""
    folder, found = data / spec.folder, []
    for files in (each for each in spec.files if each.split == split):
        to_record = mapper(spec, files.split)
        for path in sorted(folder.glob(files.path)):
            whole = Slice(str(folder), str(path.relative_to(folder)), 0, path.stat().st_size, 1, "utf-8", "")
            for row in reader(spec.format).read(whole, file_options(spec, files)):
                assert isinstance(row, RawRow)
                record = to_record(whole, row)
                assert isinstance(record, Record), record
                found.append(record)
    return found


def planted_in(records: Sequence[Record], dataset: Path) -> set[str]:
    """Return the ids of the records that `--noise` gave an error, by the dataset's file of the truth."""
    lines = (dataset / TRUTH).read_text(encoding="utf-8").splitlines()
    texts = {json.loads(line)["text"] for line in lines}
    return {record.record_id for record in records if record.text in texts}


def by_folds(records: Sequence[Record], recipe: Recipe, folds: int, folder: Path) -> dict[str, bool]:
    """Rank records as `ubert suspects` does; return their ids, worst first, with whether a mixture drops them."""
    rows: list[dict[str, Any]] = []
    for number in range(folds):
        asked = [record for record in records if fold_of(record, folds) == number]
        others = [record for record in records if fold_of(record, folds) != number]
        rows += prediction_rows(trained(recipe, others, folder / str(number)), asked)
    flagged: dict[str, bool] = {}
    for row in ranked(contradicted(records, rows), "folds").to_pylist():
        flagged[row["record_id"]] = row["flagged"] or flagged.get(row["record_id"], False)
    return flagged


def by_loss(records: list[Record], recipe: Recipe, folder: Path) -> list[str]:
    """Rank records by their mean loss in one run; return their ids, highest first."""
    shards = shards_of(records, recipe.encoder, folder / "shards", recipe.max_tokens)
    kept = recipe.model_copy(update={"dynamics": True})
    loop.train(kept, shards=shards, run=folder / "runs" / "one", worker=Worker(progress=False))
    rows = sql(folder, "SELECT record_id FROM cartography ORDER BY loss DESC, record_id")
    return rows["record_id"].to_pylist()  # type: ignore[no-any-return]


def compare(name: str, seed: int, records_each: int, recipe: Recipe, folds: int) -> None:
    """Print both precisions of one corpus and seed."""
    with TemporaryDirectory() as folder:
        world = Path(folder) / "world"
        generate(records_each, seed, world, noise=NOISE)
        records = records_of(dataset_spec(name, specs_folder(None)), world)
        planted = planted_in(records, world / name)
        first = round(NOISE * len(records))

        def precision(order: Iterable[str]) -> float:
            return len(planted.intersection(islice(order, first))) / first

        ours = precision(by_folds(records, recipe, folds, Path(folder) / "folds"))
        loss = precision(by_loss(records, recipe, Path(folder) / "one"))
    case = f"{name}, seed {seed}, {len(planted)} of {len(records)}, first {first}"
    for side, theirs in (("loss of one run", loss), ("random", len(planted) / len(records))):
        report(
            "suspects", f"{case}, {side}", round(ours, 3), round(max(theirs, 1e-3), 3), "precision", 1, more=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--corpora", nargs="+", default=sorted(CHANGES), choices=sorted(CHANGES))
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps of each run, instead of the recipe's epochs")
    parser.add_argument("--start", default=START, help="a model of the package")
    parser.add_argument("--encoder", help="start from this encoder instead")
    parser.add_argument("--quick", action="store_true", help="one corpus and seed, 2 folds of few steps")
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.corpora, given.records, given.folds, given.steps = [0], ["sample_reviews"], 100, 2, 4
    torch.set_num_threads(1)
    length = {"steps": given.steps, "epochs": None} if given.steps else {}
    start = DEFAULT.model_copy(update={"encoder": given.encoder}) if given.encoder else starting_from(given.start)
    recipe = Recipe(**start.model_dump() | length)
    for seed in given.seeds:
        for name in given.corpora:
            compare(name, seed, given.records, recipe, given.folds)


if __name__ == "__main__":
    main()
