"""Build the shards of a mixture: one Ray task for each part of a corpus, then one pass over the results.

The name of a shard is a fingerprint of its inputs: the part of the corpus (itself named by content), the
tokenizer, `max_tokens` and the code. If the store already has such a shard, it is linked. A mixture with one more
corpus thus tokenises only that corpus. Rows follow the order of the mixture's sources, parts and records, whatever
the order in which the workers finish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from pipelines.ray_tasks import completed
from pipelines.shards.files import Paraphrases, write
from pipelines.shards.rows import Rows
from pipelines.shards.unit import Unit, checksum, write_unit
from pipelines.store.code_hash import code_hash
from pipelines.store.storage import StorePath, arrow, explained, intact, parquet_file, persistent
from pipelines.store.store import Store, link, now
from ubert.encoder.ragged import Ids
from ubert.model.tokenizer import Tokenizer, load_tokenizer
from ubert.objectives import objective
from ubert.schema.arrow import batch_to_records
from ubert.schema.errors import UserError
from ubert.schema.manifest import (
    MANIFEST,
    CorpusManifest,
    MixtureManifest,
    ShardManifest,
    fingerprint,
    read_manifest,
    read_manifests,
)
from ubert.schema.record import SCHEMA_VERSION, Record
from ubert.training.logs.pace import TimeLeft

NO_PARAPHRASES: Paraphrases = MappingProxyType({})
CHUNK = 2_000  # records that are tokenised together
WHOLE = 0.25  # if a mixture draws at least this share of a part, the whole part is tokenised, for any mixture


class Part(NamedTuple):
    """One part of a corpus of the mixture, and the hash of the code that tokenises it."""

    corpus: str
    place: StorePath
    code: str


@dataclass(slots=True, frozen=True)
class Plan:
    """The parts of a mixture's corpora, and the directory of their shards."""

    mixture: MixtureManifest
    members: StorePath
    parts: tuple[Part, ...]
    tokenizer: Tokenizer
    max_tokens: int
    fingerprint: str
    directory: StorePath


class Work(NamedTuple):
    """The number of shards that were tokenised, and of those that existed already."""

    made: int
    reused: int


def shard(
    mixture: str,
    *,
    encoder: str,
    max_tokens: int,
    root: StorePath,
    paraphrases: Paraphrases = NO_PARAPHRASES,
    address: str | None = None,
    report: Callable[[Work], None] = lambda work: None,
) -> ShardManifest:
    """Bring the shards of a mixture up to date for an encoder's tokenizer.

    Args:
        mixture: a name; its current version is used.
        max_tokens: limit of one row's text and pair together.
        paraphrases: paraphrases of names and instructions, for recipes with varied prompts.
        report: called with the number of shards that were made and reused.

    Raises:
        UserError: mixture, corpus or encoder is missing, or the store can't be written.
    """
    store = Store(root.absolute())
    planned = plan(store, mixture, encoder, max_tokens, paraphrases)
    with store.working_on("shards", mixture):
        if (planned.directory / MANIFEST).exists():
            manifest = read_manifest(ShardManifest, planned.directory)
            report(Work(0, len(manifest.shards)))
            return store.again("shards", manifest)
        wanted = units(planned)
        left = missing(store, wanted)
        _run([(unit, encoder, max_tokens) for unit in left], address)
        manifest = _joined(planned, wanted, encoder, paraphrases)
        store.publish("shards", manifest)
        report(Work(len(left), len(wanted) - len(left)))
    return manifest


def shard_here(mixture: str, *, encoder: str, max_tokens: int, root: StorePath, into: Path) -> Path:
    """Build the shards of a mixture in this process, without Ray, and return their directory.

    Args:
        root: the store that has the corpora.
        into: the store that has the mixture and gets the shards.

    Raises:
        UserError: for the same reasons as `shard`.
    """
    store, target = Store(root.absolute()), Store(into)
    planned = plan(store, mixture, encoder, max_tokens, drawn=target)
    wanted = units(planned)
    for unit in missing(store, wanted):
        run_unit(unit, encoder, max_tokens)
    target.publish("shards", _joined(planned, wanted, encoder, NO_PARAPHRASES))
    return Path(str(planned.directory))


def _joined(planned: Plan, wanted: Sequence[Unit], encoder: str, paraphrases: Paraphrases) -> ShardManifest:
    """Write the mixture's files over finished units, and return the manifest."""
    return ShardManifest(
        name=planned.mixture.name,
        fingerprint=planned.fingerprint,
        created=now(),
        mixture=planned.mixture.name,
        mixture_fingerprint=planned.mixture.fingerprint,
        encoder=encoder,
        tokenizer=planned.tokenizer.hash,
        max_tokens=planned.max_tokens,
        phases=planned.mixture.phases,
        sources=[f"{source.corpus}/{source.split}" for source in planned.mixture.sources],
        **write(wanted, planned.tokenizer, planned.directory, paraphrases),
    )


def plan(
    store: Store,
    mixture: str,
    encoder: str,
    max_tokens: int,
    paraphrases: Paraphrases = NO_PARAPHRASES,
    *,
    drawn: Store | None = None,
) -> Plan:
    """Find the parts of the mixture's corpora, in the versions from which it was drawn, and name their shards.

    Args:
        store: has the corpora.
        drawn: has the mixture, and gets the shards; default: the same store.

    Raises:
        UserError: mixture, corpus or encoder is missing.
    """
    place, mixed = (drawn or store).current("mixtures", mixture)
    tokenizer = load_tokenizer(encoder)
    parts: list[Part] = []
    for corpus, version in mixed.versions.items():
        of_corpus = store.directory("corpora", corpus, version)
        manifest = read_manifest(CorpusManifest, of_corpus)
        objective(manifest.task)
        code = code_hash("pipelines.shards.rows", "ubert.schema.arrow", f"ubert.objectives.tasks.{manifest.task}")
        parts += [Part(corpus, of_corpus / part, code) for part in manifest.parts]
    codes = [code_hash("pipelines.shards.files"), *sorted({part.code for part in parts})]
    words = sorted((name, list(others)) for name, others in paraphrases.items())
    name = fingerprint(mixed.fingerprint, tokenizer.hash, max_tokens, SCHEMA_VERSION, codes, words)
    directory = (drawn or store).directory("shards", mixture, name)
    return Plan(mixed, place / "members.parquet", tuple(parts), tokenizer, max_tokens, name, directory)


def units(planned: Plan) -> list[Unit]:
    """Return a unit for each part that the mixture draws from, in order, with the copies of its records.

    Raises:
        UserError: the mixture has no member, or a member is in no part of its corpus.
    """
    made_of = planned.tokenizer.hash, planned.max_tokens, SCHEMA_VERSION
    found = []
    for corpus, of_corpus in groupby(planned.parts, lambda part: part.corpus):
        parts = list(of_corpus)
        for part, copies_RF in zip(parts, _copies(planned, parts), strict=True):
            drawn_R = copies_RF.any(axis=1)
            if drawn_R.any():
                whole = bool(drawn_R.mean() >= WHOLE)
                chosen = None if whole else np.flatnonzero(drawn_R).tolist()
                name = f"{corpus}-{fingerprint(part.place.name, chosen, part.code, *made_of)}"
                found.append(Unit(corpus, part.place, planned.directory, name, whole, copies_RF))
    if not found:
        raise UserError(
            f"mixture {planned.mixture.name} draws no record; raise its `size` or add sources, and draw it again"
        )
    return found


def run_unit(unit: Unit, encoder: str, max_tokens: int) -> int:
    """Tokenise one part and return the number of its records.

    Raises:
        UserError: the store can't be written.
    """
    rows = Rows(_tokenizer(encoder), max_tokens)
    write_unit(unit, rows, (rows.batch(records, places) for records, places in _records(unit)))
    return len(unit.copies_RF) if unit.whole else int(unit.drawn.sum())


def _copies(planned: Plan, parts: Sequence[Part]) -> list[Ids]:
    """Return for each part of one corpus the copies of its records in each phase."""
    corpus = parts[0].corpus

    def read() -> tuple[pa.Table, list[pa.ChunkedArray]]:
        path, filesystem = arrow(planned.members)
        columns, of_corpus = ["record_id", "phase", "copies"], ds.field("corpus") == corpus
        with intact(planned.members):
            members = pq.read_table(path, filesystem=filesystem, columns=columns, filters=of_corpus)
        return members, [parquet_file(part.place).read(["record_id"]).column(0) for part in parts]

    with explained(planned.members):
        members, ids = persistent(read)
    ends = np.cumsum([len(of_part) for of_part in ids])
    every = pa.chunked_array([chunk.cast(pa.large_string()) for of_part in ids for chunk in of_part.chunks])
    place = pc.index_in(members.column("record_id").cast(pa.large_string()), value_set=every)
    if place.null_count:
        raise UserError(
            f"mixture {planned.mixture.name} has {len(place)} records of {corpus}, but {place.null_count} of them "
            f"are not in the corpus; run `ubert mix {planned.mixture.name}` again"
        )
    copies_RF = np.zeros((int(ends[-1]), planned.mixture.phases), np.int32)
    copies_RF[place.to_numpy(), members.column("phase").to_numpy()] = members.column("copies").to_numpy()
    return np.split(copies_RF, ends[:-1])


def missing(store: Store, wanted: Sequence[Unit]) -> list[Unit]:
    """Link the units that other shards of the store have undamaged, and return the remaining ones. A unit is
    finished if all of its files exist.

    Raises:
        UserError: the store can't be written.
    """
    known: dict[str, list[tuple[StorePath, str]]] = {}
    for directory, manifest in read_manifests(store.root / "shards", ShardManifest, f"*/*/{MANIFEST}")[0]:
        for file in manifest.shards:
            known.setdefault(file.path, []).append((directory, file.blake3))
    there = {path.name for path in wanted[0].directory.glob("*")}
    left = []
    for unit in wanted:
        if there.issuperset(path.name for path in unit.files):
            continue
        for directory, expected in known.get(unit.shard.name, []):
            old = [directory / file.name for file in unit.files]
            if all(path.exists() for path in old) and checksum(old[-1]) == expected:
                for path, new in zip(old, unit.files, strict=True):
                    link(path, new)
                break
        else:
            left.append(unit)
    return left


def _run(jobs: list[tuple[Unit, str, int]], address: str | None) -> None:
    """Run units as Ray tasks with a progress bar. Raise the first `UserError` of a task."""
    columns = (TextColumn("shard"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    bar = Progress(*columns, TimeLeft(), console=Console(stderr=True), disable=not jobs)
    start, records = time.monotonic(), 0
    with bar:
        task = bar.add_task("shard", total=len(jobs), rate="")
        for _, outcome in completed(run_unit, jobs, address):
            if isinstance(outcome, UserError):
                raise outcome
            records += outcome
            bar.update(task, advance=1, rate=f"{records / (time.monotonic() - start):,.0f} records/s")


def _records(unit: Unit) -> Iterator[tuple[list[Record], list[int]]]:
    """Yield the records to tokenise, in the part's order, with their indices."""
    first = 0
    for batch in parquet_file(unit.part).iter_batches(CHUNK):
        wanted = unit.whole | unit.drawn[first : first + len(batch)]
        if wanted.any():
            records = batch_to_records(batch.filter(pa.array(wanted)))
            yield list(records), (first + np.flatnonzero(wanted)).tolist()
        first += len(batch)


@lru_cache(maxsize=1)
def _tokenizer(encoder: str) -> Tokenizer:
    """Load a tokenizer once for all units of a worker."""
    return load_tokenizer(encoder)
