"""The same conversions with Hugging Face `datasets`, as its users would write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ingest_standoff
import pyarrow as pa

from ubert.schema.record import RECORD_SCHEMA, content_hash, sampling_key

TASKS = {"topic": "classification", "names": "ner", "homes": "relation"}
INSTRUCTIONS = {"topic": "topic of the sentence", "names": "names", "homes": "who lives where"}
LABELS = ["place", "trade", "travel", "food", "sport", "weather"]


def _category(name: str, kind: str, head: str | None = None, tail: str | None = None) -> dict[str, Any]:
    return {"name": name, "kind": kind, "head": head, "tail": tail, "event": None}


TOPICS = [_category(name, "label") for name in ("a place", "trade", "a journey", "food", "sport", "weather")]
ENTITIES = [_category(name, "entity") for name in ("person", "place")]
HOMES = [*ENTITIES, _category("lives in", "relation", "person", "place")]


def convert_documents(folder: Path, name: str, cache: Path, processes: int) -> list[dict[str, Any]]:
    """Convert the standoff source `name` by a general loader and a `map`; return the first rows."""
    from datasets import Dataset

    workers = processes if processes > 1 else None
    found = Dataset.from_generator(
        ingest_standoff.documents,
        features=ingest_standoff.features(),
        gen_kwargs={"paths": _paths(folder, name)},
        cache_dir=str(cache),
        num_proc=workers,
    )
    made = found.map(
        _homes_document,
        with_indices=True,
        features=_features(),
        remove_columns=found.column_names,
        num_proc=workers,
    )
    return list(made.select(range(100)))


def _paths(folder: Path, name: str) -> list[Path]:
    suffix = {"topic": "*.jsonl", "names": "*.conll", "homes": "*/*.txt"}[name]
    return sorted((folder / "data" / name).glob(suffix))


def convert(folder: Path, name: str, cache: Path, processes: int, batched: bool = True) -> list[dict[str, Any]]:
    """Convert the source `name` into a cache; return its first rows.

    JSON Lines are read by `load_dataset("json")` and `map`, batched or row by row. CoNLL columns and standoff have
    no loader, so `Dataset.from_generator` makes records directly.
    """
    from datasets import Dataset, load_dataset

    paths = _paths(folder, name)
    workers = processes if processes > 1 else None
    if name != "topic":
        found = Dataset.from_generator(
            _names_rows if name == "names" else _homes_rows,
            features=_features(),
            gen_kwargs={"paths": paths},
            cache_dir=str(cache),
            num_proc=workers,
        )
        return list(found.select(range(100)))
    rows = load_dataset("json", data_files=[str(path) for path in paths], split="train", cache_dir=str(cache))
    made = rows.map(
        _topic_batch if batched else _topic_row,
        batched=batched,
        with_indices=True,
        features=_features(),
        remove_columns=rows.column_names,
        num_proc=workers,
    )
    return list(made.select(range(100)))


def _features() -> Any:
    """Translate our schema to theirs, except for keys above 2^63, which their writer can't store."""
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


def _record(name: str, number: int, text: str, categories: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    record_id = f"{name}/train/{number}"
    return {
        "record_id": record_id,
        "key": sampling_key(record_id) >> 1,
        "corpus": name,
        "split": "train",
        "language": "en",
        "task": TASKS[name],
        "instruction": INSTRUCTIONS[name],
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
        "characters": len(text),
        "content_hash": content_hash(text, None),
        "text_hash": None,
        **more,
    }


def _topic_batch(batch: dict[str, list[str]], numbers: list[int]) -> dict[str, list[Any]]:
    rows = [
        _record("topic", number, text, TOPICS, labels=[LABELS.index(label)])
        for number, text, label in zip(numbers, batch["text"], batch["label"], strict=True)
    ]
    return {key: [row[key] for row in rows] for key in rows[0]}


def _topic_row(row: dict[str, str], number: int) -> dict[str, Any]:
    return _record("topic", number, row["text"], TOPICS, labels=[LABELS.index(row["label"])])


def _span(start: int, end: int, category: int) -> dict[str, Any]:
    return {"start": start, "end": end, "category": category, "side": "text", "group": None}


def _names_rows(paths: list[Path]) -> Iterator[dict[str, Any]]:
    number = 0
    for path in paths:
        tokens: list[str] = []
        spans: list[dict[str, Any]] = []
        at = 0
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line == "\n":
                    yield _record("names", number, " ".join(tokens), ENTITIES, spans=spans)
                    tokens, spans, at, number = [], [], 0, number + 1
                    continue
                token, tag = line.rstrip("\n").split("\t")
                if tag.startswith("I-"):
                    spans[-1]["end"] = at + len(token)
                elif tag.startswith("B-"):
                    spans.append(_span(at, at + len(token), ("per", "loc").index(tag[2:])))
                tokens.append(token)
                at += len(token) + 1


def _homes_rows(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for number, path in enumerate(paths):
        text = path.read_text(encoding="utf-8")
        spans: list[dict[str, Any]] = []
        relations: list[dict[str, int]] = []
        place: dict[str, int] = {}
        for line in path.with_suffix(".ann").read_text(encoding="utf-8").splitlines():
            name, what, *_ = line.split("\t")
            if name.startswith("T"):
                label, start, end = what.split(" ")
                place[name] = len(spans)
                spans.append(_span(int(start), int(end), ("per", "loc").index(label)))
            else:
                _, head, tail = what.split(" ")
                ends = place[head.removeprefix("Arg1:")], place[tail.removeprefix("Arg2:")]
                relations.append({"head": ends[0], "tail": ends[1], "category": 2})
        yield _record("homes", number, text, HOMES, spans=spans, relations=relations)


def _homes_document(document: dict[str, Any], number: int) -> dict[str, Any]:
    spans = [
        _span(start, end, ("per", "loc").index(mention["type"]))
        for mention in document["mentions"]
        for start, end in mention["offsets"][:1]
    ]
    place = {mention["id"]: i for i, mention in enumerate(document["mentions"])}
    relations = [
        {"head": place[link["head"]["ref_id"]], "tail": place[link["tail"]["ref_id"]], "category": 2}
        for link in document["relations"]
    ]
    return _record("homes", number, document["text"], HOMES, spans=spans, relations=relations)
