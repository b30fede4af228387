"""Raw files to typed columns: `pipelines.ingest.ingest` against Hugging Face `datasets`, on synthetic sources.

Theirs is in `ingest_theirs.py`, as its users would write it. JSON Lines go through `load_dataset("json")` and
`map`, batched or row by row. CoNLL columns and standoff go through `Dataset.from_generator` directly to records,
with the same features as our schema and the same keys and hashes. Standoff also goes through a general loader and
a `map` of its documents, as in public collections (`ingest_standoff.py`). Ours also checks every record, counts
every file, compresses, and flushes to the disk; theirs writes its Arrow cache. A document of the standoff source
has five sentences, and there are a tenth as many documents as rows of the other sources.

The cases with one process run all units one after another, without Ray. The cases with Ray run the whole job, from
plan to manifest, on a Ray that is already up, just as theirs is already imported. A cold command is a case of its
own. All settings of both sides are interleaved, after one uncounted run. `rows/s` is by the clock. `processor` is
the processor time of all processes of a side, which is steadier on a busy machine. The speed-up by a second
process is shown beside that of a Python loop that shares nothing, which is the most that the machine allows.
Memory is the peak growth of all processes of a side, without mapped files.

    python benchmarks/ingest.py [--quick] [--rows N] [--repeats N] [--sources homes]
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import ingest_sources
import ingest_theirs
import psutil
import pyarrow.parquet as pq

from pipelines.ingest.hashes import Hashes
from pipelines.ingest.ingest import ingest
from pipelines.ingest.publish import publish
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.specs import dataset_spec
from pipelines.store.storage import on_disk
from pipelines.store.store import Store
from ubert.schema.garbage_collection import collector_paused

KINDS = {"topic": "JSON Lines", "names": "CoNLL", "homes": "brat"}
UNITS = {"topic": "rows/s", "names": "rows/s", "homes": "documents/s"}

Rows = list[dict[str, Any]]


@collector_paused()  # like the command
def ours_direct(folder: Path, name: str, out: Path) -> Rows:
    """Run the whole job in this process, unit by unit, without Ray; return its first rows."""
    spec, store = dataset_spec(name, folder / "specs"), Store(out)
    planned = plan(spec, folder / "data" / name, Hashes(store.sources(name)))
    made = on_disk(store.directory("corpora", name, planned.fingerprint))
    for unit in planned.units:
        run_unit(unit, spec, made)
    publish(store, planned, strict=False)
    return _first(made / planned.units[0].part)


def ours_on_ray(folder: Path, name: str, out: Path) -> Rows:
    """Run the whole job: plan, Ray tasks, checks, manifest; return its first rows."""
    [manifest] = ingest([name], specs=folder / "specs", data=folder / "data", root=out)
    return _first(out / "corpora" / name / manifest.fingerprint / manifest.parts[0])


def _first(part: Path) -> Rows:
    rows: Rows = next(pq.ParquetFile(part).iter_batches(100)).to_pylist()
    return rows


def measured(work: Callable[[Path], Rows]) -> tuple[float, float, Rows]:
    """Run `work` in a fresh folder; return wall-clock seconds, processor seconds, and its rows."""
    with tempfile.TemporaryDirectory() as out:
        start, before = time.perf_counter(), _processor()
        rows = work(Path(out))
        return time.perf_counter() - start, _processor() - before, rows


def _processor() -> float:
    """Return the processor seconds of this process and its children."""
    return sum(sum(process.cpu_times()[:4]) for process in _tree(psutil.Process()))


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    for process in (root, *root.children(recursive=True)):
        try:
            process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        yield process


def growth(process: ProcessPoolExecutor, work: Callable[[Path], Rows]) -> float:
    """Return the peak growth in MiB of the anonymous memory of a process and its children during `work`."""
    root = psutil.Process(process.submit(os.getpid).result())
    before = peak = _anonymous(root)
    future = process.submit(measured, work)
    while not future.done():
        peak = max(peak, _anonymous(root))
        time.sleep(0.01)
    future.result()
    return (peak - before) / 1024


def _anonymous(root: psutil.Process) -> int:
    total = 0
    for process in (root, *root.children(recursive=True)):
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return total


def same(a: Rows, b: Rows) -> None:
    """Assert that both sides made the same records, except for ids, keys and sources, which differ."""
    ours_alone = {"record_id", "key", "source"}
    for one, other in zip(a, b, strict=True):
        for key in one.keys() - ours_alone:
            assert one[key] == other[key], (key, one[key], other[key])


def show(case: str, ours: float, other: float, unit: str, n: int, higher_is_better: bool) -> None:
    ratio = ours / other if higher_is_better else other / ours
    numbers = {"ours": round(ours, 2), "theirs": round(other, 2), "ratio": round(ratio, 2)}
    print(json.dumps({"benchmark": "ingest", "case": case, **numbers, "unit": unit, "n": n}), flush=True)


def quiet() -> None:
    """Set up a worker process for `datasets`."""
    import datasets

    datasets.disable_progress_bars()


# Each side and setting has its own process, so that nothing carries over.
fresh = partial(ProcessPoolExecutor, 1, mp_context=multiprocessing.get_context("spawn"), initializer=quiet)


def start_ray(processors: int) -> None:
    """Set up a worker process with its own Ray."""
    import ray

    silent: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    ray.init("local", num_cpus=processors, include_dashboard=False, **silent)


def loop(_: Path) -> Rows:
    """Compute for about a second, sharing nothing with another process."""
    row: dict[str, Any] = {"text": " ".join(ingest_sources.WORDS), "spans": [[at, at + 3] for at in range(10)]}
    for _again in range(100_000):
        row = json.loads(json.dumps(row))
    return [row]


def speed(folder: Path, sizes: dict[str, int], repeats: int) -> None:
    """Measure rows per second of each source on one process and on two, and the speed-up."""
    with ExitStack() as stack:
        direct, other, another = (stack.enter_context(fresh()) for _ in range(3))
        one, two = (
            stack.enter_context(fresh(initializer=start_ray, initargs=(processors,))) for processors in (1, 2)
        )
        for name, size in sizes.items():
            convert = partial(ingest_theirs.convert, folder, name)
            on_ray = partial(ours_on_ray, folder, name)
            settings = {
                "one process": (direct, partial(ours_direct, folder, name), partial(convert, processes=1)),
                "Ray, 1 CPU": (one, on_ray, partial(convert, processes=1)),
                "Ray, 2 CPUs": (two, on_ray, partial(convert, processes=2)),
            }
            runs: dict[str, list[tuple[float, float, float, float]]] = {setting: [] for setting in settings}
            loops: list[float] = []
            for _ in range(1 + repeats):
                for setting, (process, our_work, their_work) in settings.items():
                    ours = process.submit(measured, our_work).result()
                    theirs = other.submit(measured, their_work).result()
                    same(ours[2], theirs[2])
                    runs[setting].append((*ours[:2], *theirs[:2]))
                alone = other.submit(measured, loop).result()[0]
                both = [process.submit(measured, loop) for process in (other, another)]
                loops.append(2 * alone / max(process.result()[0] for process in both))
            found = {
                setting: compared(f"{KINDS[name]}, {setting}", UNITS[name], size, of[1:])
                for setting, of in runs.items()
            }
            brought, to_theirs = (
                second / first for first, second in zip(found["Ray, 1 CPU"], found["Ray, 2 CPUs"], strict=True)
            )
            case = f"{KINDS[name]}, two processes to one"
            show(case, brought, to_theirs, "times", size, True)
            show(f"{case}, against a loop", brought, statistics.median(loops[1:]), "times", size, True)


def compared(
    case: str, unit: str, size: int, runs: list[tuple[float, float, float, float]]
) -> tuple[float, float]:
    """Print medians of runs and return the rows per second of both sides.

    Args:
        runs: wall-clock and processor seconds of ours, then of theirs.
    """
    clock, processor, their_clock, their_processor = map(statistics.median, zip(*runs, strict=True))
    show(case, size / clock, size / their_clock, unit, size, higher_is_better=True)
    spent = processor / size * 1e6, their_processor / size * 1e6
    show(f"{case}, processor", *spent, f"us/{unit[:-3]}", size, higher_is_better=False)
    return size / clock, size / their_clock


def otherwise(folder: Path, name: str, case: str, size: int, repeats: int, work: Callable[..., Rows]) -> None:
    """Compare with an alternative of theirs that makes the same records."""
    runs = []
    with fresh() as other:
        for _ in range(1 + repeats):
            ours = measured(partial(ours_direct, folder, name))
            theirs = other.submit(measured, partial(work, folder, name, processes=1)).result()
            same(ours[2], theirs[2])
            runs.append((*ours[:2], *theirs[:2]))
    compared(f"{KINDS[name]}, one process, {case}", UNITS[name], size, runs[1:])


def cold(folder: Path, size: int) -> None:
    """Compare whole commands in new processes, with imports and our start of Ray."""
    places = ["--data", str(folder / "data"), "--root", str(folder / "cold")]
    code = "import sys; from pipelines.cli import main; sys.exit(main())"
    ours = [sys.executable, "-c", code, "ingest", "topic", "--specs", str(folder / "specs"), *places]
    convert = f"import pathlib as p, ingest_theirs as t; t.convert(p.Path({str(folder)!r}), 'topic', "
    theirs = [sys.executable, "-c", f"{convert}p.Path({str(folder / 'cache')!r}), {os.cpu_count()})"]
    spent = []
    for command in (ours, theirs):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parent, env=_paths())
        spent.append(time.perf_counter() - start)
    for made in ("cold", "cache"):
        shutil.rmtree(folder / made)
    show("JSON Lines, cold command, all CPUs", spent[0], spent[1], "s", size, higher_is_better=False)


def _paths() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def memory(sizes: list[int], name: str) -> None:
    """Compare the peak memory of one process for each size of the source."""
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="ubert-") as place:
            ingest_sources.write(Path(place), name, size)
            grown = []
            for work in (ours_direct, partial(ingest_theirs.convert, processes=1)):
                with fresh() as process:
                    grown.append(growth(process, partial(work, Path(place), name)))
            show(f"{KINDS[name]}, peak memory", grown[0], grown[1], "MiB", size, higher_is_better=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=int, nargs="*", default=[100_000, 1_000_000, 5_000_000], metavar="ROWS")
    parser.add_argument("--sources", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--quick", action="store_true", help="8,000 rows, once: ends within a minute")
    given = parser.parse_args()
    rows, repeats, sizes = (8_000, 1, [8_000]) if given.quick else (given.rows, given.repeats, given.memory)
    with tempfile.TemporaryDirectory(prefix="ubert-") as place:
        folder = Path(place)
        os.environ |= {"HF_HOME": place, "HF_DATASETS_OFFLINE": "1"}
        counts = {name: rows // 10 if name == "homes" else rows for name in given.sources}
        for name, size in counts.items():
            ingest_sources.write(folder, name, size)
        speed(folder, counts, repeats)
        if "topic" in counts:
            single = partial(ingest_theirs.convert, batched=False)
            otherwise(folder, "topic", "their map of single rows", rows, repeats, single)
            cold(folder, rows)
            memory(sizes, "topic")
        if "names" in counts:
            memory(sizes, "names")
        if "homes" in counts:
            loader = ingest_theirs.convert_documents
            otherwise(folder, "homes", "their loader and map", counts["homes"], repeats, loader)
            memory([size // 10 for size in sizes], "homes")


if __name__ == "__main__":
    main()
