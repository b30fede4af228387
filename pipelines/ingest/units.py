"""Plan an ingest: hash a spec's source files, and cut or combine them into units of work.

The name of a unit is a fingerprint of everything its output depends on: the bytes and paths of its files, the
spec's fields about records, the schema version and the code. A unit whose output exists is never run again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pipelines.ingest.change_detection import HashedGroup, Listed, Packed, hash_group, hash_group_task
from pipelines.ingest.hashes import Advance, Hashes
from pipelines.ingest.source_files import grouped, source_files
from pipelines.progress import meter
from pipelines.sources import Slice, joined_hash, module_name
from pipelines.store.code_hash import code_hash
from ubert.schema.errors import UserError
from ubert.schema.garbage_collection import collector_paused
from ubert.schema.manifest import fingerprint
from ubert.schema.specs.dataset import DatasetSpec, Files

MANY = 4_096  # from this number of unknown files on, Ray tasks hash them

Run = Callable[..., Iterator[tuple[int, Any]]]  # like `pipelines.ray_tasks.completed`


@dataclass(slots=True, frozen=True)
class Unit:
    """The work of one task: slices of one entry of a spec's `files`."""

    entry: Files
    packed: Packed

    @property
    def name(self) -> str:
        """Return the fingerprint by which the output is found again."""
        return self.packed.name

    @property
    def slices(self) -> tuple[Slice, ...]:
        return msgspec.msgpack.decode(zlib.decompress(self.packed.slices), type=tuple[Slice, ...])

    @property
    def part(self) -> str:
        """Return the name of the file of records. If it exists, the unit is done."""
        return f"part-{self.name}.parquet"

    @property
    def reject_part(self) -> str:
        return f"rejects-{self.name}.parquet"

    @property
    def mismatch_part(self) -> str:
        """Return the name of the file of mentions whose words were not at their offsets, if there are any."""
        return f"mismatches-{self.name}.parquet"


@dataclass(slots=True, frozen=True)
class Group:
    """Source files of one entry of a spec's `files`, each in only one group, and the units that read them."""

    entry: Files
    listed: bytes
    units: tuple[Unit, ...]

    @property
    def files(self) -> Listed:
        return msgspec.msgpack.decode(zlib.decompress(self.listed), type=Listed)


@dataclass(slots=True, frozen=True)
class Plan:
    """The groups and units of a corpus. `counted` has the count of each label, for the kinds of category that the
    spec takes from the data."""

    spec: DatasetSpec
    fingerprint: str
    groups: tuple[Group, ...]
    counted: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        return [unit for group in self.groups for unit in group.units]


@collector_paused()
def plan(spec: DatasetSpec, folder: Path, hashes: Hashes | None = None, run: Run | None = None) -> Plan:
    """Hash the source files of `spec` under `folder` and cut them into units. If no file is known and there are
    many, `run` hashes them in tasks.

    Raises:
        UserError: a file is missing or cannot be read, is named twice in a split, or hasn't the hash that the spec
            pins.
    """
    hashes = hashes or Hashes()
    code = code_hash(module_name(spec.format), "pipelines.mapping.mapper", "ubert.schema.arrow")
    paths = source_files(spec, folder)
    jobs = [(spec, folder, number, group, code) for number, of in enumerate(paths) for group in grouped(of)]
    count = sum(map(len, paths))
    with meter(f"hashing {spec.name}", count, "MB") as advance:
        if run is None or hashes.known or count < MANY:
            hashed = [hash_group(*job, hashes, advance) for job in jobs]
        else:
            hashed = _hash_by_tasks(jobs, hashes, run, advance)
    hashes.keep()
    _check_pins(spec, folder, hashed)
    groups = tuple(_group(spec.files[found.entry], found) for found in hashed)
    upstream = spec.upstream.url if spec.upstream else None
    unlabelled = [number for number, entry in enumerate(spec.files) if not entry.labelled]
    own_name = fingerprint(
        spec.name,
        spec.licence,
        spec.licence_class,
        upstream,
        [spec.folder, *spec.twins],
        [unit.name for group in groups for unit in group.units],
        # only if there is one, so that other corpora keep their fingerprints
        *([unlabelled] if unlabelled else []),
    )
    return Plan(spec, own_name, groups)


def _group(entry: Files, hashed: HashedGroup) -> Group:
    return Group(entry, hashed.listed, tuple(Unit(entry, packed) for packed in hashed.units))


def _hash_by_tasks(jobs: list[tuple[Any, ...]], hashes: Hashes, run: Run, advance: Advance) -> list[HashedGroup]:
    found: dict[int, HashedGroup] = {}
    order = sorted(range(len(jobs)), key=lambda number: -len(jobs[number][3]))  # large first, to balance workers
    for place, outcome in run(hash_group_task, [jobs[number] for number in order]):
        if isinstance(outcome, UserError):
            raise outcome
        hashed, settled = msgspec.msgpack.decode(outcome, type=tuple[HashedGroup, bytes])
        found[order[place]] = hashed
        hashes.take(settled)
        advance(hashed.files, hashed.size / 1e6)
    return [found[number] for number in range(len(jobs))]


def _check_pins(spec: DatasetSpec, folder: Path, hashed: Sequence[HashedGroup]) -> None:
    for number, entry in enumerate(spec.files):
        if not entry.pins:
            continue
        found = [group.members for group in hashed if group.entry == number]
        members = {path: sha for of_group in found for path, sha in of_group.items()}
        if (got := joined_hash(members)) not in entry.pins:
            raise UserError(
                f"{folder / entry.path}: not what the spec {spec.name} pins: expected blake3 "
                f"{' or '.join(entry.pins)}, got {got}; restore the file, or if the change is intended, put "
                f"`blake3: {got}` into the spec"
            )
