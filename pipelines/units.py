"""What there is to ingest: a spec's source files, hashed, and cut or grouped into units of work.

A unit is named by what its output depends on: the bytes, where they lie, what the spec says about records, the
schema and the code that reads. Work under a known name is never done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from pipelines.code_hash import code_hash
from pipelines.collector import collector_paused
from pipelines.hashes import BLOCK, Hashes, range_hash
from pipelines.mirror import Show, fill
from pipelines.source_files import UNIT_BYTES, LocalFile, Run, source_files
from pipelines.sources import Slice, joined_hash
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.record import SCHEMA_VERSION
from ubert.schema.spec import DatasetSpec, Files

UNIT_FILES = 2_048  # that share a unit, at most, and of `UNIT_BYTES` together
SHARED_BYTES, SHARED_FILES = 4 << 20, 1_024  # what files that share a unit come to on average, whichever is less

# What all records depend on; the rest of a spec describes the corpus and redoes no work.
_OF_RECORDS = {"name", "task", "language", "instruction", "format", "map", "categories"}


@dataclass(slots=True, frozen=True)
class Unit:
    """Slices of one entry of a spec's `files` that one task reads: maybe thousands, which are pickled as bytes."""

    name: str
    entry: Files
    slices: tuple[Slice, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self.name, self.entry, msgspec.msgpack.encode(self.slices))

    @property
    def part(self) -> str:
        """Name of the file of its records: it is there when the unit is done."""
        return f"part-{self.name}.parquet"

    @property
    def reject_part(self) -> str:
        """Name of the file of its refused rows."""
        return f"rejects-{self.name}.parquet"

    @property
    def mismatch_part(self) -> str:
        """Name of the file of its mentions that were not where their rows said."""
        return f"mismatches-{self.name}.parquet"

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum([piece.stop - piece.start for piece in self.slices])


def _unpacked(name: str, entry: Files, slices: bytes) -> Unit:
    return Unit(name, entry, msgspec.msgpack.decode(slices, type=tuple[Slice, ...]))


@dataclass(slots=True, frozen=True)
class Plan:
    """All units of a corpus, and its source files."""

    spec: DatasetSpec
    fingerprint: str
    files: tuple[LocalFile, ...]
    units: tuple[Unit, ...]


def source_folder(spec: DatasetSpec, mirror: Path, specs: Path, show: Show = lambda *_: None) -> Path:
    """Where a dataset's raw files are: in the mirror, to which they are fetched if the spec says from where, else
    among the samples.

    Raises:
        UserError: in neither, or they cannot be fetched.
    """
    own, sample = mirror / spec.folder, specs / "samples" / spec.folder
    if spec.fetch:
        fill(spec, own.absolute(), specs, show)
    for place in (own, sample):
        if place.is_dir():
            return place.absolute()
    upstream = f"get it from {spec.upstream.url}" if spec.upstream else "its spec names no upstream"
    raise UserError(
        f"{spec.name}: no source files: looked in {own} and {sample}; {upstream}, put it into a "
        f"folder {spec.folder!r} and name the folder above it with --data (UBERT_DATA)"
    )


def at_hand(spec: DatasetSpec, mirror: Path, specs: Path) -> bool:
    """Whether `source_folder` has somewhere to look: a folder of raw files, or a place to fetch them from."""
    return bool(spec.fetch) or any(
        place.is_dir() for place in (mirror / spec.folder, specs / "samples" / spec.folder)
    )


@collector_paused()
def plan(spec: DatasetSpec, folder: Path, hashes: Hashes | None = None, run: Run | None = None) -> Plan:
    """Hash the source files of `spec` under `folder`, where they are many by tasks of `run`, and cut them into
    units.

    Raises:
        UserError: a file is missing, is named twice in a split, or is not the one that the spec pins.
    """
    sources = source_files(spec, folder, hashes or Hashes(), run)
    code = code_hash(f"pipelines.sources.{spec.format}", "pipelines.mapping.mapper", "ubert.schema.arrow")
    place = str(folder)  # once: files may be very many
    units: list[Unit] = []
    for number, of_entry in groupby(sources, lambda source: source.entry):
        entry, found = spec.files[number], list(of_entry)
        _check_pin(spec, entry, folder, found)
        slices = [piece for source in found for piece in _slices(place, entry, source)]
        units += [Unit(_name(spec, entry, group, code), entry, tuple(group)) for group in _groups(slices)]
    upstream = spec.upstream.url if spec.upstream else None
    own_name = fingerprint(spec.name, spec.licence, spec.licence_class, upstream, [unit.name for unit in units])
    return Plan(spec, own_name, tuple(sources), tuple(units))


def check_unchanged(piece: Slice) -> None:
    """Hold the bytes of a slice against those that were planned.

    Raises:
        UserError: they differ, or cannot be read.
    """

    found = dict(piece.hashes)
    try:
        for path in (piece.path, *piece.beside):
            if path not in found:
                range_ = piece if path == piece.path else piece.whole(path)
                found[path] = range_hash(f"{piece.folder}/{path}", range_.start, range_.stop)
    except OSError as error:
        problem = f"{error.strerror or error} while it was being ingested"
        raise UserError(f"{piece.place}: {problem}; run again") from None
    piece.hashes.clear()  # there may be very many slices
    if joined_hash(found) != piece.sha:
        raise UserError(f"{piece.place}: changed while it was being ingested; run again")


def _slices(folder: str, entry: Files, source: LocalFile) -> Iterator[Slice]:
    """The ranges of a file that is cut, or the whole of it."""
    path, encoding = source.members[0], entry.encoding
    if not source.cut:
        yield Slice(folder, path, 0, source.states[0][0], 1, encoding, source.sha, source.members[1:])
    for piece in source.ranges:
        yield Slice(
            folder, path, piece.start, piece.stop, piece.line, encoding, piece.sha, too_long=piece.too_long
        )


def _name(spec: DatasetSpec, entry: Files, slices: list[Slice], code: str) -> str:
    where = [[piece.path, piece.line, piece.sha, piece.too_long, _header(piece)] for piece in slices]
    how = [entry.split, entry.encoding, spec.options | entry.options]
    return fingerprint(where, how, spec.model_dump(mode="json", include=_OF_RECORDS), SCHEMA_VERSION, code)


def _header(piece: Slice) -> str | None:
    """Hash of the first line of a file that is cut: it may be a header, which every range is read with."""
    if piece.start == 0:
        return None
    with piece.place.open("rb") as file:
        return blake3(file.readline(BLOCK)).hexdigest()


def _groups(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Slices that are read together. Where a group ends is drawn from the names of files: one that comes or goes
    leaves all groups but its own as they are."""
    group: list[Slice] = []
    size = 0
    for piece in slices:
        length = piece.stop - piece.start
        if group and (size + length > UNIT_BYTES or len(group) == UNIT_FILES):
            yield group
            group, size = [], 0
        group.append(piece)
        size += length
        drawn = int.from_bytes(blake3(piece.path.encode()).digest(8), "big") / (1 << 64)
        if drawn < max(length / SHARED_BYTES, 1 / SHARED_FILES):
            yield group
            group, size = [], 0
    if group:
        yield group


def _check_pin(spec: DatasetSpec, entry: Files, folder: Path, sources: list[LocalFile]) -> None:
    if entry.blake3 is None:
        return
    got = joined_hash({path: sha for s in sources for path, sha in zip(s.members, s.hashes, strict=True)})
    if entry.blake3 != got:
        raise UserError(
            f"{folder / entry.path}: not what the spec {spec.name} pins: expected blake3 {entry.blake3}, "
            f"got {got}; restore the file, or if the change is meant, put `blake3: {got}` into the spec"
        )
