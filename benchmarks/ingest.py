"""Raw files to typed columns: `pipelines.ingest` against Hugging Face `datasets`.

Theirs does the same conversion as its users would write it: `load_dataset("json")` and a batched `map` for JSON
Lines, `Dataset.from_generator` for CoNLL columns (there is no loader for them), with the same features as our
schema, the same keys and hashes, on as many processes. Ours also checks every record, counts every file,
compresses, and waits for the disk; theirs writes its Arrow cache. Both run once before they are measured, so that
Ray is up and what is imported is imported.

    python benchmarks/ingest.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.ingest import ingest
from pipelines.run_unit import run_unit
from pipelines.specs import dataset_spec
from pipelines.store import Store
from pipelines.units import plan
from ubert.schema.record import RECORD_SCHEMA, content_hash, sampling_key

FILES = 4
KINDS = {"topic": "JSON Lines, classification", "names": "CoNLL, ner"}
WORDS = ["the", "a", "red", "old", "small", "stone", "bridge", "city", "river", "bank", "of", "in", "was", "built"]
NAMES = ["Anna", "Berg", "Carl", "Dorn", "Emil", "Falk", "Greta", "Holm", "Ida", "Jansen", "Karl", "Lind"]
LABELS = ["place", "trade", "travel", "food", "sport", "weather"]
TOPIC = """
name: topic
description: Invented sentences and their topic.
task: classification
language: en
licence: CC0-1.0
instruction: topic of the sentence
format: jsonl
files: [{split: train, path: "*.jsonl"}]
map: {text: text, label: label}
categories:
  label: {place: a place, trade: trade, travel: a journey, food: food, sport: sport, weather: weather}
"""
NER = """
name: names
description: Invented sentences and the names in them.
task: ner
language: en
licence: CC0-1.0
instruction: names
format: conll
options: {columns: [token, tag]}
files: [{split: train, path: "*.conll"}]
map: {tokens: token, tags: tag}
categories: {entity: {per: person, loc: place}}
"""


def make_world(folder: Path, rows: int) -> None:
    """Both sources and their specs; the same rows for the same number."""
    draw = random.Random(rows)
    specs = folder / "specs" / "datasets"
    specs.mkdir(parents=True)
    for name, spec in (("topic", TOPIC), ("names", NER)):
        (specs / f"{name}.yaml").write_text(spec)
        (folder / "data" / name).mkdir(parents=True)
    for number in range(FILES):
        size = rows // FILES
        topics = ({"text": " ".join(draw.choices(WORDS, k=20)), "label": draw.choice(LABELS)} for _ in range(size))
        path = folder / "data" / "topic" / f"{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in topics))
        sentences = ("".join(f"{token}\t{tag}\n" for token, tag in sentence(draw)) + "\n" for _ in range(size))
        (folder / "data" / "names" / f"{number}.conll").write_text("".join(sentences))


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    tokens = []
    for _ in range(draw.randint(8, 16)):
        if draw.random() < 0.15:
            label, length = draw.choice(["per", "loc"]), draw.randint(1, 2)
            tokens += [(draw.choice(NAMES), f"{'I' if i else 'B'}-{label}") for i in range(length)]
        else:
            tokens.append((draw.choice(WORDS), "O"))
    return tokens


def ours_direct(folder: Path, name: str, out: Path) -> Path:
    """All units one after another in this process, without Ray."""
    spec = dataset_spec(name, folder / "specs")
    planned = plan(spec, folder / "data" / name)
    for unit in planned.units:
        run_unit(unit, spec, out)
    return out / planned.units[0].part


def ours_on_ray(folder: Path, name: str, out: Path) -> Path:
    """The whole job: plan, Ray tasks, checks, manifest."""
    ingest([name], specs=folder / "specs", data=folder / "data", root=out)
    directory, manifest = Store(out).current("corpora", name)
    return directory / manifest.parts[0]


def features() -> Any:
    """Our schema as theirs, but for keys above 2^63, which their writer cannot hold."""
    from datasets import Features

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return kind.value_type
        if pa.types.is_uint64(kind):
            return pa.int64()
        return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind

    return Features.from_arrow_schema(
        pa.schema([pa.field(field.name, plain(field.type)) for field in RECORD_SCHEMA])
    )


def record(name: str, number: int, text: str, categories: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    record_id = f"{name}/train/{number}"
    return {
        "record_id": record_id,
        "key": sampling_key(record_id) >> 1,
        "corpus": name,
        "split": "train",
        "language": "en",
        "task": "classification" if name == "topic" else "ner",
        "instruction": "topic of the sentence" if name == "topic" else "names",
        "text": text,
        "pair": None,
        "categories": categories,
        "labels": [],
        "value": None,
        "target": None,
        "spans": [],
        "relations": [],
        "events": [],
        "source": {"path": name, "line": number, "sha": ""},
        "content_hash": content_hash(text, None),
        **more,
    }


def category(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "head": None, "tail": None, "event": None}


TOPICS = [category(name, "label") for name in ("a place", "trade", "a journey", "food", "sport", "weather")]
ENTITIES = [category(name, "entity") for name in ("person", "place")]


def topic_batch(batch: dict[str, list[str]], numbers: list[int]) -> dict[str, list[Any]]:
    rows = [
        record("topic", number, text, TOPICS, labels=[LABELS.index(label)])
        for number, text, label in zip(numbers, batch["text"], batch["label"], strict=True)
    ]
    return {key: [row[key] for row in rows] for key in rows[0]}


def names_rows(paths: list[Path]) -> Iterator[dict[str, Any]]:
    number = 0
    for path in paths:
        tokens: list[str] = []
        spans: list[dict[str, Any]] = []
        at = 0
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line == "\n":
                    yield record("names", number, " ".join(tokens), ENTITIES, spans=spans)
                    tokens, spans, at, number = [], [], 0, number + 1
                    continue
                token, tag = line.rstrip("\n").split("\t")
                if tag.startswith("I-"):
                    spans[-1]["end"] = at + len(token)
                elif tag.startswith("B-"):
                    label = ("per", "loc").index(tag[2:])
                    spans.append(
                        {"start": at, "end": at + len(token), "category": label, "side": "text", "group": None}
                    )
                tokens.append(token)
                at += len(token) + 1


def theirs(folder: Path, name: str, out: Path, processes: int) -> list[dict[str, Any]]:
    """Their conversion, into a cache of its own; the first rows of it."""
    from datasets import Dataset, load_dataset

    paths = sorted((folder / "data" / name).iterdir())
    workers = processes if processes > 1 else None
    cache = str(out)
    if name == "names":
        found = Dataset.from_generator(
            names_rows, features=features(), gen_kwargs={"paths": paths}, cache_dir=cache, num_proc=workers
        )
        return list(found.select(range(100)))
    rows = load_dataset("json", data_files=[str(path) for path in paths], split="train", cache_dir=cache)
    made = rows.map(
        topic_batch,
        batched=True,
        with_indices=True,
        features=features(),
        remove_columns=rows.column_names,
        num_proc=workers,
    )
    return list(made.select(range(100)))


def seconds(work: Callable[[Path], Any]) -> tuple[float, Any]:
    """How long `work` takes in a fresh folder, and the first rows that it made."""
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        made = work(Path(out))
        spent = time.perf_counter() - start
        return spent, pq.read_table(made).slice(0, 100).to_pylist() if isinstance(made, Path) else made


def growth(work: Callable[[Path], Any]) -> float:
    """MiB by which this process grows at most while it does `work`."""

    def status(key: str) -> float:
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key)]
        return int(line.split()[1]) / 1024

    before = status("VmRSS")
    seconds(work)
    return status("VmHWM") - before


def same(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    """Both made the same records; their places in the sources are ours alone."""
    ours_alone = {"record_id", "key", "source"}
    for one, other in zip(a, b, strict=True):
        for key in one.keys() - ours_alone:
            assert one[key] == other[key], (key, one[key], other[key])


def show(case: str, ours: float, other: float, unit: str, n: int, higher_is_better: bool) -> None:
    ratio = ours / other if higher_is_better else other / ours
    numbers = {"ours": round(ours, 1), "theirs": round(other, 1), "ratio": round(ratio, 2)}
    print(json.dumps({"benchmark": "ingest", "case": case, **numbers, "unit": unit, "n": n}), flush=True)


def quiet() -> None:
    """Set up a process of theirs."""
    import datasets

    datasets.disable_progress_bars()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="8,000 rows: ends within a minute")
    arguments = parser.parse_args()
    rows = (8_000 if arguments.quick else arguments.rows) // FILES * FILES
    import ray

    # Processes of their own for theirs and for what is measured in memory: no Ray in them, nothing left over.
    fresh = partial(ProcessPoolExecutor, 1, mp_context=multiprocessing.get_context("spawn"), initializer=quiet)
    with tempfile.TemporaryDirectory(prefix="ubert-") as place, fresh() as other:
        folder = Path(place)
        os.environ |= {"HF_HOME": place, "HF_DATASETS_OFFLINE": "1"}
        make_world(folder, rows)
        for processes, label, ours in (
            (1, "one process", ours_direct),
            (1, "Ray, 1 CPU", ours_on_ray),
            (2, "Ray, 2 CPUs", ours_on_ray),
        ):
            if ours is ours_on_ray:
                ray.init(num_cpus=processes, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
            for name in ("topic", "names"):
                our_work = partial(ours, folder, name)
                their_work = partial(theirs, folder, name, processes=processes)
                pairs = []
                for _ in range(1 + arguments.repeats):
                    our_seconds, our_rows = seconds(our_work)
                    their_seconds, their_rows = other.submit(seconds, their_work).result()
                    same(our_rows, their_rows)
                    pairs.append((our_seconds, their_seconds))
                medians = [rows / statistics.median(side) for side in zip(*pairs[1:], strict=True)]
                show(f"{KINDS[name]}, {label}", *medians, "rows/s", rows, higher_is_better=True)
            if ours is ours_on_ray:
                ray.shutdown()
        for name in ("topic", "names"):
            works = partial(ours_direct, folder, name), partial(theirs, folder, name, processes=1)
            grown = []
            for work in works:
                with fresh() as process:
                    grown.append(process.submit(growth, work).result())
            show(f"{KINDS[name]}, peak memory", *grown, "MiB", rows, higher_is_better=False)


if __name__ == "__main__":
    main()
