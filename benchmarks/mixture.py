"""Drawing a mixture from a generated index of many corpora, against `datasets.interleave_datasets`.

The index has records of 200 corpora whose sizes follow Zipf's law, with all columns of a corpus but empty texts.
One record in a hundred repeats the content of another. One in a thousand belongs to a test split, and as many
training records repeat the content of these. The mixture draws half as many times as there are records, with
temperature 2.

Theirs is what a user of `datasets` would write: `interleave_datasets` with the same probabilities over the same
files, memory-mapped in an earlier run, which writes the drawn ids to a file. It draws with replacement, drops
nothing, and its result depends on `numpy`'s generator. Ours is therefore measured without the guard against leaks
and duplicates (`draw`) and with it (`guarded`). Each side runs in its own process.

    python benchmarks/mixture.py [--quick] [--records 100000000] [--theirs] [--plot docs/mixture.svg]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3
from made_corpus import publish
from measure import measured, report

from pipelines.mixtures.mix import mix
from pipelines.store.storage import on_disk
from pipelines.store.store import Store
from ubert.schema.manifest import fingerprint
from ubert.schema.record import RECORD_SCHEMA, Split
from ubert.schema.specs.mixture import Mixture

CORPORA = 200
ROWS = 500_000  # rows per file
REPEATED = 100  # one record in 100 repeats another's content
TESTED = 1000  # one record in 1000 belongs to a test split


def sizes(records: int) -> list[int]:
    """Return the sizes of the corpora by Zipf's law, largest first."""
    weights = 1 / np.arange(10, CORPORA + 10)
    found = np.maximum(20, records * weights / weights.sum()).astype(np.int64)
    found[0] += max(0, records - found.sum())
    return [int(size) for size in found]


def make_store(root: Path, records: int) -> None:
    """Write all corpora, deterministically for a number of records."""
    draw = np.random.Generator(np.random.Philox(records))
    first = 0
    for i, size in enumerate(sizes(records)):
        name = f"corpus{i:03}"
        store, mark = Store(root), fingerprint(name, records)
        directory = on_disk(store.directory("corpora", name, mark))
        directory.mkdir(parents=True)
        parts: list[str] = []
        for start in range(0, size, ROWS):
            parts.append(f"part-{len(parts)}.parquet")
            numbers = np.arange(start, min(start + ROWS, size))
            pq.write_table(rows(name, numbers, first + numbers, draw), directory / parts[-1], compression="zstd")
        tests = size // TESTED
        first += size
        splits: dict[Split, int] = {"train": size - tests, "test": tests} if tests else {"train": size}
        publish(store, name, mark, "classification", splits, parts)


def rows(name: str, numbers: np.ndarray, contents: np.ndarray, draw: np.random.Generator) -> pa.Table:
    """Make records of a corpus.

    Args:
        numbers: number of each record.
        contents: number of each record's content; equal contents have equal hashes.
    """
    count = len(numbers)
    repeats = draw.random(count) < 1 / REPEATED
    contents = np.where(repeats, draw.integers(0, contents[-1] + 1, count), contents).astype(np.uint64)
    hashes = np.empty((count, 2), np.uint64)
    for column, factor in enumerate((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)):
        hashes[:, column] = (contents + np.uint64(column + 1)) * np.uint64(factor)
    split = np.where(numbers % TESTED == TESTED - 1, 1, 0).astype(np.int32)
    known = {
        "record_id": pc.binary_join_element_wise(f"{name}/train/", pa.array(numbers).cast(pa.string()), ""),
        "key": pa.array(draw.integers(0, 1 << 64, count, np.uint64, endpoint=False)),
        "split": pa.DictionaryArray.from_arrays(split, ["train", "test"]),
        "content_hash": pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(hashes)]),
        "characters": pa.array(np.full(count, 300, np.int32)),
    }
    fixed = {"corpus": name, "language": "en", "task": "classification", "instruction": "parity", "text": ""}
    columns = []
    for field in RECORD_SCHEMA:
        if field.name in known:
            columns.append(known[field.name])
        elif field.name in fixed:
            words = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [fixed[field.name]])
            columns.append(words.cast(field.type))
        elif pa.types.is_list(field.type):
            offsets = pa.array(np.zeros(count + 1, np.int32))
            columns.append(pa.ListArray.from_arrays(offsets, pa.array([], field.type.value_type)))
        elif field.name == "source":
            parts = [pa.array(["made"] * count), pa.array(numbers), pa.array(["00"] * count)]
            parts = [part.cast(kind.type) for part, kind in zip(parts, field.type, strict=True)]
            columns.append(pa.StructArray.from_arrays(parts, fields=list(field.type)))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)


def mixture(records: int, guarded: bool) -> Mixture:
    sources = [{"corpus": f"corpus{i:03}", "max_copies": 100} for i in range(CORPORA)]
    words = {} if guarded else {"leaks": "allow", "duplicates": "keep"}
    policy = {"policy": "temperature", "size": records // 2}
    return Mixture.model_validate({"name": "m", "sources": sources, **policy, **words})


def ours(root: Path, records: int, guarded: bool, processors: int) -> str:
    """Draw the mixture; return a hash of its members."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:processors]))
    manifest = mix(mixture(records, guarded), root=root)
    members = Store(root).directory("mixtures", "m", manifest.fingerprint) / "members.parquet"
    digest = blake3()
    for batch in pq.ParquetFile(members).iter_batches(columns=["copies", "key"]):
        for column in batch.columns:
            digest.update(column.to_numpy().tobytes())
    return digest.hexdigest()


def theirs(root: Path, records: int) -> int:
    """Draw with the same probabilities and write the ids; return their number."""
    import datasets

    datasets.disable_progress_bars()
    files = [
        sorted(str(path) for path in (root / "corpora" / f"corpus{i:03}").glob("*/*.parquet"))
        for i in range(CORPORA)
    ]
    columns = ["record_id", "corpus"]
    sources = [datasets.load_dataset("parquet", data_files=of, split="train", columns=columns) for of in files]
    weights = np.sqrt([len(source) for source in sources])
    drawn = datasets.interleave_datasets(
        sources, probabilities=list(weights / weights.sum()), seed=0, stopping_strategy="first_exhausted"
    )
    drawn.to_parquet(str(root / "theirs.parquet"))
    return len(drawn)


def show(case: str, ours: float, theirs: float | None, unit: str, n: int) -> None:
    report("mixture", case, ours, theirs, unit, n, digits=3)


def plot(times: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Plot seconds over records for each case on logarithmic axes, with the slope of the last segment."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for case, points in times.items():
        records, took = np.array(points).T
        slope = np.log(took[-1] / took[-2]) / np.log(records[-1] / records[-2])
        axes.loglog(records, took, marker="o", label=f"{case} (slope {slope:.2f})")
    axes.set(xlabel="records", ylabel="seconds")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--theirs", type=int, default=1_000_000, help="most records for theirs, which is slow")
    parser.add_argument("--plot", type=Path, help="a picture of the times, such as times.svg")
    parser.add_argument("--quick", action="store_true", help="200,000 records: ends within a minute")
    arguments = parser.parse_args()
    times: dict[str, list[tuple[int, float]]] = {}
    for records in [200_000] if arguments.quick else arguments.records:
        with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
            os.environ |= {"HF_HOME": folder, "HF_DATASETS_OFFLINE": "1"}
            compare(Path(folder) / "store", records, records <= arguments.theirs, times)
    if arguments.plot:
        plot(times, arguments.plot)


def compare(root: Path, records: int, with_theirs: bool, times: dict[str, list[tuple[int, float]]]) -> None:
    make_store(root, records)
    other = None
    if with_theirs:
        theirs(root, records)  # reads the files into its cache
        other, drawn = measured(theirs, root, records)
        show("draws", records // 2, drawn, "draws", records)
    for case, guarded in (("draw", False), ("guarded", True)):
        members = set()
        for processors in (2, 1):
            cost, digest = measured(ours, root, records, guarded, processors)
            members.add(digest)
            shutil.rmtree(root / "mixtures")
            beside = other if processors == 2 else None
            of_case = f"{case}, {processors} processor{'s' * (processors > 1)}"
            times.setdefault(of_case, []).append((records, cost.seconds))
            show(f"{of_case}: time", cost.seconds, beside and beside.seconds, "s", records)
            show(f"{of_case}: peak memory", cost.peak, beside and beside.peak, "MiB", records)
        assert len(members) == 1, "one or two processors draw different members"


if __name__ == "__main__":
    main()
