"""A small store with everything that `ubert browse` shows. Texts, categories and file names contain markup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from worlds import corpus, put_corpus

from pipelines.audit.evidence import CONTAMINATION, CONTRADICTIONS, DUPLICATES, LEAKS
from pipelines.mixtures.mix import mix
from pipelines.store.store import Store, atomic, now
from ubert.schema.manifest import AuditManifest
from ubert.schema.record import Argument, Category, Event, Record, Relation, Source, Span
from ubert.schema.specs.mixture import Mixture

SCRIPT = "<script>document.title = 'taken'</script>"
ATTACK = f"{SCRIPT}</div></mark></pre><img src=x onerror=\"document.title='taken'\"> & 'x' \"y\""
NEEDLE = "The University of Ostrava Press hired Ada Marlow in Łódź."
NGRAM = "one two three four five six seven eight nine ten eleven twelve thirteen"
SIZE = 250  # records of the corpus `numbers`


def record(number: int, text: str, **more: Any) -> Record:
    """Make a record of the corpus `wild`."""
    return Record(
        record_id=f"wild/train/<b>{number}",
        corpus="wild",
        language="en",
        instruction=ATTACK,
        text=text,
        **{
            "task": "event",
            "split": "train",
            "source": Source(f"<i>{SCRIPT}.txt", number, "00"),
            "categories": (
                Category("organisation", "entity"),
                Category("person", "entity"),
                Category(ATTACK, "entity"),
                Category("works for", "relation"),
                Category("hiring", "event"),
                Category("employee", "role"),
            ),
            **more,
        },
    )


WILD = [
    record(
        1,
        NEEDLE,
        spans=[Span(0, 31, 0), Span(4, 25, 0), Span(38, 48, 1), Span(32, 37, 4)],
        relations=[Relation(2, 0, 3)],
        events=[Event(4, 3, [Argument(5, span=2)])],
    ),
    record(2, ATTACK, spans=[Span(0, 8, 2)]),
    record(3, f"Before it. {NGRAM.title()} after it."),
    record(4, f"Quite another beginning: {NGRAM}, and another end.", split="test"),
    record(5, "A dog lay in the sun all day."),
    record(6, "A dog lay in the sun all night."),
]


def write_store(root: Path) -> None:
    """Write the store."""
    put_corpus(root, "wild", WILD, rejected=[("train", ATTACK)] * 60 + [("test", "a rare reason")])
    put_corpus(root, "numbers", corpus("numbers", SIZE))
    ids = {i: f"wild/train/<b>{i}" for i in range(1, 7)}
    near = [(ids[6], "wild", "train", ids[5], "wild", "train", "near", 0.8)]
    near.append((ids[6], "wild", "train", "gone/1", "gone", "test", "exact", 1.0))
    found = {"matches.parquet": table(DUPLICATES, near)}
    found |= {"leaks.parquet": table(LEAKS, []), "contradictions.parquet": table(CONTRADICTIONS, [])}
    write_audit(root, "duplicates", found)
    shared = [(ids[3], "wild", "train", ids[4], "wild", "test", 1, 0.5, 1, NGRAM)]
    write_audit(root, "contamination", {"matches.parquet": table(CONTAMINATION, shared)})
    sources = [{"corpus": "wild"}, {"corpus": "numbers", "weight": 2.0}]
    mix(Mixture.model_validate({"name": "both", "size": 100, "sources": sources}), root=root)
    write_run(root, "first", 1000)
    write_run(root, "second", 3)


def table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Make a table of rows."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def write_audit(root: Path, name: str, tables: Mapping[str, pa.Table]) -> None:
    """Publish an audit with these tables."""
    store = Store(root)
    manifest = AuditManifest(
        name=name, fingerprint="0" * 16, created=now(), corpora={}, parameters={"n": 13}, counts={}
    )
    for file, table in tables.items():
        with atomic(store.directory("audits", name, manifest.fingerprint) / file) as path:
            pq.write_table(table, path)
    store.publish("audits", manifest)


def write_run(root: Path, name: str, steps: int) -> None:
    """Write a recipe, and a log of `steps` steps in which one loss is not finite."""
    folder = root / "runs" / name
    (folder / "logs").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(f"name: {name}\nmixture: both\ndescription: {SCRIPT}\n")
    rows = [
        {
            "step": step,
            "steps": steps,
            "objective": "structure",
            "loss": 4.0 / step if step != 2 else float("nan"),
            "learning_rate": 1e-3,
            "gradient_norm": 1.0,
            "tokens": 100,
            "tokens_per_second": 10.0,
            "seconds": 10.0,
        }
        for step in range(1, steps + 1)
    ]
    rows[-1]["metrics"] = {"both/test/span_f1": 0.75}
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "logs/train.jsonl").write_text(f'{lines}{{"step": ')  # an incomplete line, as during a write
