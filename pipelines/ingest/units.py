"""What there is to ingest: a spec's source files, hashed, and cut or grouped into units of work.

A unit is named by what its output depends on: the bytes, where they lie, what the spec says about records, the
schema and the code that reads. Work under a known name is never done again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pipelines.ingest.change_detection import Listed, Looked, Packed, look, look_apart
from pipelines.ingest.collector import collector_paused
from pipelines.ingest.hashes import Advance, Hashes
from pipelines.ingest.source_files import grouped, source_files
from pipelines.progress import meter
from pipelines.sources import Slice, joined_hash
from pipelines.store.code_hash import code_hash
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.spec import DatasetSpec, Files

MANY = 4_096  # so many files of which none is known are looked at by tasks

Run = Callable[..., Iterator[tuple[int, Any]]]  # as `pipelines.tasks.completed`


@dataclass(slots=True, frozen=True)
class Unit:
    """What one task does: slices of one entry of a spec's `files`."""

    entry: Files
    packed: Packed

    @property
    def name(self) -> str:
        """By which it is found again once it is done."""
        return self.packed.name

    @property
    def slices(self) -> tuple[Slice, ...]:
        """What is to be read."""
        return msgspec.msgpack.decode(zlib.decompress(self.packed.slices), type=tuple[Slice, ...])

    @property
    def part(self) -> str:
        """Name of the file of its records: it is there when the unit is done."""
        return f"part-{self.name}.parquet"

    @property
    def reject_part(self) -> str:
        """Name of the file of its refused rows, if there are any."""
        return f"rejects-{self.name}.parquet"

    @property
    def mismatch_part(self) -> str:
        """Name of the file of its mentions that were not where their rows said, if there are any."""
        return f"mismatches-{self.name}.parquet"


@dataclass(slots=True, frozen=True)
class Group:
    """Source files of one entry of a spec's `files`, which no other group has, and the units that read them."""

    entry: Files
    listed: bytes
    units: tuple[Unit, ...]

    @property
    def files(self) -> Listed:
        """Its source files."""
        return msgspec.msgpack.decode(zlib.decompress(self.listed), type=Listed)


@dataclass(slots=True, frozen=True)
class Plan:
    """What there is to ingest of a corpus. `counted`: of kinds of category that the spec takes from the data, the
    labels and how often each occurs."""

    spec: DatasetSpec
    fingerprint: str
    groups: tuple[Group, ...]
    counted: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        """All units, in the order of the files."""
        return [unit for group in self.groups for unit in group.units]


@collector_paused()
def plan(spec: DatasetSpec, folder: Path, hashes: Hashes | None = None, run: Run | None = None) -> Plan:
    """Hash the source files of `spec` under `folder` and cut them into units; by the tasks of `run`, where they
    are many and none is known.

    Raises:
        UserError: a file is missing or cannot be read, is named twice in a split, or is not the one that the spec
            pins.
    """
    hashes = hashes or Hashes()
    code = code_hash(f"pipelines.sources.{spec.format}", "pipelines.mapping.mapper", "ubert.schema.arrow")
    paths = source_files(spec, folder)
    jobs = [(spec, folder, number, group, code) for number, of in enumerate(paths) for group in grouped(of)]
    count = sum(map(len, paths))
    with meter(f"hashing {spec.name}", count, "MB") as advance:
        if run is None or hashes.known or count < MANY:
            looked = [look(*job, hashes, advance) for job in jobs]
        else:
            looked = _looked_by_tasks(jobs, hashes, run, advance)
    hashes.keep()
    _check_pins(spec, folder, looked)
    groups = tuple(_group(spec.files[found.entry], found) for found in looked)
    upstream = spec.upstream.url if spec.upstream else None
    own_name = fingerprint(
        spec.name,
        spec.licence,
        spec.licence_class,
        upstream,
        [spec.folder, *spec.twins],
        [unit.name for group in groups for unit in group.units],
    )
    return Plan(spec, own_name, groups)


def _group(entry: Files, looked: Looked) -> Group:
    return Group(entry, looked.listed, tuple(Unit(entry, packed) for packed in looked.units))


def _looked_by_tasks(jobs: list[tuple[Any, ...]], hashes: Hashes, run: Run, advance: Advance) -> list[Looked]:
    found: dict[int, Looked] = {}
    order = sorted(range(len(jobs)), key=lambda number: -len(jobs[number][3]))  # workers end together
    for place, outcome in run(look_apart, [jobs[number] for number in order]):
        if isinstance(outcome, UserError):
            raise outcome
        looked, settled = msgspec.msgpack.decode(outcome, type=tuple[Looked, bytes])
        found[order[place]] = looked
        hashes.take(settled)
        advance(looked.files, looked.size / 1e6)
    return [found[number] for number in range(len(jobs))]


def _check_pins(spec: DatasetSpec, folder: Path, looked: Sequence[Looked]) -> None:
    for number, entry in enumerate(spec.files):
        if not entry.pins:
            continue
        found = [group.members for group in looked if group.entry == number]
        members = {path: sha for of_group in found for path, sha in of_group.items()}
        if (got := joined_hash(members)) not in entry.pins:
            raise UserError(
                f"{folder / entry.path}: not what the spec {spec.name} pins: expected blake3 "
                f"{' or '.join(entry.pins)}, got {got}; restore the file, or if the change is meant, put "
                f"`blake3: {got}` into the spec"
            )
