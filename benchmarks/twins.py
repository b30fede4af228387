"""Compare one model of all corpora with models that learn one corpus each (its twins).

The twin of a corpus starts from MiniLM, as universal-small did, and reads as many records of that corpus as
universal-small drew from it: `--passes` times its draws in the mixture. It has the settings of `ubert probe`,
with the changes of `--set`: `from=universal-small` fine-tunes that model.
Both are measured on the first records, by sampling key, of a split that the mixture does not draw from. Corpora
without one are left out and named. A file keeps each result, so that the same command continues after a stop.
`--count` measures as many corpora, drawn by the hash of their names. Those with the fewest records come first.

    python benchmarks/twins.py [--passes 15] [--count 24] [--limit 100] [--set freeze_layers=3]
        [--root store] [--results twins.jsonl]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measure import ROOT, settings

import ubert
from pipelines.models.evaluate import measure, read_records
from pipelines.probe.cell import RATES, TOKENS
from pipelines.probe.probe import MINILM
from pipelines.probe.shots import NOT_PROBED
from pipelines.progress import progress
from pipelines.ray_tasks import completed
from pipelines.store.store import Store
from pipelines.training.short_run import ALONE, shards_of, train, use_threads_of_task
from ubert.evaluation import MAIN
from ubert.schema.errors import UserError
from ubert.schema.manifest import MixtureManifest
from ubert.schema.record import Split
from ubert.schema.specs.recipe import Recipe

MAX_RECORDS = 10_000  # records of a corpus, as in the mixture
SPLITS: tuple[Split, ...] = ("test", "validation", "train")


class Twin(NamedTuple):
    """A corpus, the split to learn and the number of records to read of it, and the split to measure."""

    corpus: str
    learned: Split
    reads: int
    measured: Split


def twins_of(mixture: MixtureManifest, passes: float, store: Store) -> tuple[list[Twin], list[str]]:
    """Return the corpora with a split that the mixture doesn't draw from, and the names of the others.

    If a corpus has several sources, the twin learns the one with the most draws.
    """
    sources = sorted(mixture.sources, key=lambda source: source.draws)
    drawn = {(source.corpus, source.split) for source in sources}
    twins, left_out = [], []
    for source in {source.corpus: source for source in sources}.values():
        manifest = store.current("corpora", source.corpus)[1]
        kept = {counts.split for counts in manifest.splits if counts.kept}
        unseen = [split for split in SPLITS if split in kept and (source.corpus, split) not in drawn]
        if unseen and manifest.task not in NOT_PROBED:
            twins.append(Twin(source.corpus, source.split, round(passes * source.draws), unseen[0]))
        else:
            left_out.append(source.corpus)
    return sorted(twins, key=lambda twin: hashlib.sha256(twin.corpus.encode()).digest()), sorted(left_out)


def compare(twin: Twin, changes: dict[str, Any], limit: int, root: Path) -> dict[str, Any]:
    """Train the twin, and measure it and universal-small."""
    use_threads_of_task()
    directory, manifest = Store(root).current("corpora", twin.corpus)
    records = list(read_records(directory, manifest, twin.learned, MAX_RECORDS))
    with tempfile.TemporaryDirectory() as folder:
        shards = shards_of(records, MINILM, Path(folder) / "shards")
        recipe = Recipe(
            name="twin",
            mixture="probe",
            encoder=MINILM,
            tokens_per_batch=TOKENS,
            packs_per_batch=1,
            epochs=twin.reads / len(records),
            **RATES,
            **ALONE,
            **changes,
        )
        trained = ubert.load(train(recipe, shards, Path(folder)))
    sides = {"one model": ubert.load("universal-small"), "twin": trained}
    done = {
        side: measure(predictor, corpus=twin.corpus, split=twin.measured, limit=limit, root=root)
        for side, predictor in sides.items()
    }
    metric = MAIN[manifest.task]
    values = {side: round(one["metrics"][metric], 4) for side, one in done.items()}
    return {**twin._asdict(), "records": done["twin"]["records"], "metric": metric, **values}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=float, default=15, help="passes of universal-small over its mixture")
    parser.add_argument("--count", type=int, default=24, help="corpora to measure")
    parser.add_argument("--limit", type=int, default=100, help="records to measure of each")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the twins' recipe")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--results", type=Path, default=Path("twins.jsonl"))
    given = parser.parse_args()
    root = given.root.absolute()
    store = Store(root)
    mixture = store.current("mixtures", "universal-small")[1]
    twins, left_out = twins_of(mixture, given.passes, store)
    print(f"{len(twins)} corpora have an unseen split; left out: {', '.join(left_out)}", flush=True)
    lines = given.results.read_text(encoding="utf-8").splitlines() if given.results.exists() else []
    changes = settings(given.set)
    asked = {"passes": given.passes, "changes": changes, "limit": given.limit}
    results = {line["corpus"]: line for line in map(json.loads, lines) if asked.items() <= line.items()}
    left = [twin for twin in twins[: given.count] if twin.corpus not in results]
    jobs = [(twin, changes, given.limit, root) for twin in sorted(left, key=lambda twin: twin.reads)]
    for _, outcome in progress(completed(compare, jobs), len(jobs), "twins"):
        if isinstance(outcome, UserError):
            raise outcome
        outcome |= asked
        results[outcome["corpus"]] = outcome
        with given.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
        print(json.dumps(outcome), flush=True)
    if results:
        means = [statistics.fmean(line[side] for line in results.values()) for side in ("one model", "twin")]
        print(f"mean of {len(results)}: one model {means[0]:.3f}, twins {means[1]:.3f}")


if __name__ == "__main__":
    main()
