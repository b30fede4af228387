"""How time and memory of the stages before training grow with the number of records: ingest, duplicates, shard.

Each stage runs as a whole command in its own process, on all processors, with Ray's start. Memory is the sum of
the resident sets of the process and its children, so shared pages count more than once. Ingest reads JSON Lines
(`ingest_sources.py`); beyond a million rows it reads the same files under other names, from the page cache.
Duplicates reads the records of `duplicates.py`, and shard tokenises the corpus that ingest made of as many rows.
`mixture.py` measures the growth for mixtures. `--processes` repeats duplicates for each number of Ray's CPUs.
The head's memory is that of the command's own process.

    python benchmarks/slope.py [--ingest 1000000 ...] [--duplicates ...] [--shard ...] [--plot slope.svg] [--quick]
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duplicates as invented
import ingest_sources
import ray
from measure import ENCODER, Cost, measured, report
from mixture import plot

from pipelines.audit.duplicates import duplicates
from pipelines.ingest.ingest import ingest
from pipelines.mixtures.mix import mix
from pipelines.shards.shard import shard
from ubert.schema.specs.mixture import Mixture

SIZES = {
    "ingest": [1_000_000, 10_000_000, 100_000_000],
    "duplicates": [100_000, 1_000_000, 10_000_000],
    "shard": [10_000, 100_000, 1_000_000],
}
MIXTURE = {"name": "topic", "leaks": "allow", "duplicates": "keep", "sources": [{"corpus": "topic"}]}
WRITTEN = 1_000_000  # distinct rows; beyond these, files are repeated


def write_rows(folder: Path, rows: int) -> None:
    ingest_sources.write(folder, "topic", min(rows, WRITTEN))
    files = sorted((folder / "data" / "topic").iterdir())
    for copy in range(1, rows // WRITTEN):
        for file in files:
            (file.parent / f"{copy}-{file.name}").hardlink_to(file)


def ingest_rows(folder: Path) -> None:
    ingest(["topic"], specs=folder / "specs", data=folder / "data", root=folder / "store")


def run_ingest(folder: Path, rows: int) -> Cost:
    write_rows(folder, rows)
    return measured(ingest_rows, folder)[0]


def run_duplicates(folder: Path, records: int, processes: int | None = None) -> Cost:
    invented.make_store(folder / "store", records)
    return measured(find_duplicates, folder / "store", processes)[0]


def find_duplicates(root: Path, processes: int | None) -> None:
    if processes:
        ray.init(num_cpus=processes, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    duplicates(root=root)


def make_shards(folder: Path) -> None:
    shard("topic", encoder=ENCODER, max_tokens=256, root=folder / "store")


def run_shard(folder: Path, rows: int) -> Cost:
    write_rows(folder, rows)
    measured(ingest_rows, folder)
    mix(Mixture.model_validate(MIXTURE), root=folder / "store")
    return measured(make_shards, folder)[0]


STAGES: dict[str, Callable[[Path, int], Cost]] = {
    "ingest": run_ingest,
    "duplicates": run_duplicates,
    "shard": run_shard,
}


def show(case: str, ours: float, unit: str, n: int) -> None:
    report("slope", case, ours, None, unit, n, digits=1)


def shown(case: str, run: Callable[[Path, int], Cost], records: int) -> Cost:
    """Run a stage in a folder of its own, and print its cost."""
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
        cost = run(Path(folder), records)
    show(case, cost.seconds, "s", records)
    show(f"{case}, processors", cost.cpu_seconds, "s", records)
    show(f"{case}, memory", cost.peak, "MiB", records)
    show(f"{case}, memory of the head", cost.head, "MiB", records)
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for stage, sizes in SIZES.items():
        parser.add_argument(f"--{stage}", type=int, nargs="*", default=sizes, metavar="RECORDS")
    parser.add_argument("--processes", type=int, nargs="*", default=[], help="duplicates: numbers of CPUs")
    parser.add_argument("--plot", type=Path, help="a picture of the times, such as slope.svg")
    parser.add_argument("--quick", action="store_true", help="2,000 and 20,000 records: ends within a minute")
    arguments = parser.parse_args()
    times: dict[str, list[tuple[int, float]]] = {}
    for stage, run in STAGES.items():
        for records in [2_000, 20_000] if arguments.quick else getattr(arguments, stage):
            cost = shown(stage, run, records)
            times.setdefault(stage, []).append((records, cost.seconds))
            for processes in arguments.processes if stage == "duplicates" else ():
                shown(f"{stage}, {processes} processes", partial(run_duplicates, processes=processes), records)
    if arguments.plot:
        plot(times, arguments.plot)


if __name__ == "__main__":
    main()
