"""A mixture to shards: one Ray task a part of a corpus, then one pass that numbers prompts and sizes the files.

The order of rows is that of the mixture's sources, their parts and the rows in them, whatever the workers do.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from blake3 import blake3
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import pipelines.rows
import pipelines.shard_files
import ubert.model.tokenizer
import ubert.objectives
import ubert.training.shards
from pipelines.place import Place, arrow, on_disk, parquet_file
from pipelines.rows import Rows
from pipelines.shard_files import ALIGNMENT, Unit, units_folder, write
from pipelines.store import Store, atomic, now
from pipelines.tasks import completed
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
)
from ubert.schema.record import SCHEMA_VERSION
from ubert.training.shards import SHARD_SCHEMA

CHUNK = 2_000  # records that are tokenised together


@dataclass(slots=True, frozen=True)
class Plan:
    """What is to be made of a mixture, and where."""

    mixture: MixtureManifest
    tokenizer: Tokenizer
    fingerprint: str
    directory: Path
    units: tuple[Unit, ...]


def shard(
    mixture: str, *, encoder: str, max_tokens: int, root: Place, address: str | None = None
) -> ShardManifest:
    """Bring the shards of a mixture up to date for an encoder's tokenizer.

    Args:
        mixture: a name; its current members are taken.
        max_tokens: of one row's text and pair together.

    Raises:
        UserError: mixture, corpus or encoder is missing, a task is not trainable, or the store can't be written.
    """
    planned = plan(Store(root.absolute()), mixture, encoder, max_tokens)
    store = Store(on_disk(root))
    with store.working_on("shards", mixture):
        if (planned.directory / MANIFEST).exists():
            return _renewed(store, read_manifest(ShardManifest, planned.directory))
        left = [unit for unit in planned.units if not unit.file("rows").exists()]
        _run([(unit, encoder, max_tokens) for unit in left], address)
        manifest = ShardManifest(
            name=mixture,
            fingerprint=planned.fingerprint,
            created=now(),
            mixture=mixture,
            mixture_fingerprint=planned.mixture.fingerprint,
            encoder=encoder,
            tokenizer=planned.tokenizer.hash,
            max_tokens=max_tokens,
            **write(planned.units, planned.tokenizer, planned.directory),
        )
        _check_complete(planned.mixture, manifest)
        store.publish("shards", manifest)
        shutil.rmtree(units_folder(planned.directory))
    return manifest


def plan(store: Store, mixture: str, encoder: str, max_tokens: int) -> Plan:
    """The parts of the mixture's corpora, as they were when it was drawn, and the name of their shards.

    Raises:
        UserError: mixture, corpus or encoder is missing, or a task is not trainable.
    """
    place, mixed = store.current("mixtures", mixture)
    tokenizer = load_tokenizer(encoder)
    name = fingerprint(mixed.fingerprint, tokenizer.hash, max_tokens, SCHEMA_VERSION, _code())
    directory = on_disk(store.root) / "shards" / mixture / name
    units = []
    for corpus, version in dict.fromkeys((source.corpus, source.corpus_fingerprint) for source in mixed.sources):
        of_corpus = store.directory("corpora", corpus, version)
        manifest = read_manifest(CorpusManifest, of_corpus)
        objective(manifest.task)
        units += [Unit(corpus, of_corpus / part, place / "members.parquet", directory) for part in manifest.parts]
    return Plan(mixed, tokenizer, name, directory, tuple(units))


def run_unit(unit: Unit, encoder: str, max_tokens: int) -> int:
    """Tokenise the members of one part; returns their number. The unit is done when its rows are there: they
    appear last and whole.

    Raises:
        UserError: the store can't be written.
    """
    rows = Rows(_tokenizer(encoder), max_tokens)
    batches = [rows.batch(list(batch_to_records(members)), copies) for members, copies in _members(unit)]
    alignment = rows.alignment(unit.corpus)
    with atomic(unit.file("prompts")) as path:
        _write_ipc(path, pa.Table.from_batches([rows.prompt_words()]))
    with atomic(unit.file("lost")) as path:
        _write_ipc(path, pa.Table.from_batches([rows.lost_spans()]))
    with atomic(unit.file("rows")) as path:
        table = pa.Table.from_batches(batches, SHARD_SCHEMA).unify_dictionaries()
        _write_ipc(path, table.replace_schema_metadata({ALIGNMENT: alignment.model_dump_json()}))
    return alignment.records


def _write_ipc(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def _run(jobs: list[tuple[Unit, str, int]], address: str | None) -> None:
    """Run units as Ray tasks under a progress bar. Raises the first `UserError` of one."""
    columns = (TextColumn("shard"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not jobs)
    start, records = time.monotonic(), 0
    with bar:
        task = bar.add_task("shard", total=len(jobs), rate="")
        for _, outcome in completed(run_unit, jobs, address):
            if isinstance(outcome, UserError):
                raise outcome
            records += outcome
            bar.update(task, advance=1, rate=f"{records / (time.monotonic() - start):,.0f} records/s")


def _renewed(store: Store, manifest: ShardManifest) -> ShardManifest:
    """Make finished shards the current ones of their name, should others have been made since."""
    if store.current("shards", manifest.name)[1].fingerprint == manifest.fingerprint:
        return manifest
    manifest = manifest.model_copy(update={"created": now()})
    store.publish("shards", manifest)
    return manifest


def _members(unit: Unit) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """The records of a part that the mixture has, in the part's order, with their copies."""
    path, filesystem = arrow(unit.members)
    of_corpus = ds.field("corpus") == unit.corpus
    members = pq.read_table(path, filesystem=filesystem, columns=["record_id", "copies"], filters=of_corpus)
    for batch in parquet_file(unit.part).iter_batches(CHUNK):
        place = pc.index_in(batch.column("record_id"), value_set=members.column("record_id"))
        found = pc.is_valid(place)
        if pc.any(found).as_py():
            copies = members.column("copies").take(place.filter(found))
            yield batch.filter(found), copies.to_pylist()


def _check_complete(mixed: MixtureManifest, manifest: ShardManifest) -> None:
    wanted, got = sum(source.records for source in mixed.sources), sum(a.records for a in manifest.alignment)
    if wanted != got:
        raise UserError(
            f"mixture {mixed.name} has {wanted} records, but its corpora hold {got} of them; "
            f"run `ubert mix {mixed.name}` again"
        )


@lru_cache(maxsize=1)
def _tokenizer(encoder: str) -> Tokenizer:
    """A worker loads it once for all its units."""
    return load_tokenizer(encoder)


def _code() -> str:
    """Hash of the code that decides what is in a shard."""
    modules = [pipelines.rows, pipelines.shard_files, ubert.model.tokenizer, ubert.training.shards]
    files = [Path(str(module.__file__)) for module in modules]
    files += sorted(Path(ubert.objectives.__path__[0]).glob("*.py"))
    return blake3(b"".join(file.read_bytes() for file in files)).hexdigest()
