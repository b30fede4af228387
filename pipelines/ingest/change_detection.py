"""A group of source files of one entry of a spec, hashed, and cut or grouped into what one task reads."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from blake3 import blake3

from pipelines.ingest.collector import collector_paused
from pipelines.ingest.hashes import BLOCK, Advance, Hashes
from pipelines.ingest.source_files import GROUP_FILES, drawn
from pipelines.sources import Slice, check_inside, joined_hash, reader
from pipelines.specs import file_options
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.record import SCHEMA_VERSION
from ubert.schema.spec import DatasetSpec, Files

UNIT_BYTES = 8 << 20  # a larger file is cut; smaller ones share a unit of at most so many
SHARED_BYTES = 4 << 20  # what they come to on average

# What all records depend on; the rest of a spec describes the corpus and redoes no work.
_OF_RECORDS = {"name", "task", "language", "instruction", "format", "map", "categories"}


class Listed(NamedTuple):
    """Columns of source files: what is read together is one, named by its first file."""

    paths: list[str]
    sizes: list[int]
    shas: list[str]


class Packed(NamedTuple):
    """Slices that one task reads: maybe thousands, which stay bytes until they are read. `size`: bytes to read;
    `whole`: how many of the slices are whole files, `in_ranges`: the paths of which the others are ranges."""

    name: str
    size: int
    whole: int
    in_ranges: frozenset[str]
    slices: bytes


class Looked(NamedTuple):
    """What was found of a group: the place of its entry in the spec's `files`, how many files it has and of how
    many bytes, these files as bytes until they are asked for (`Listed`), the hashes of all that are read, by path,
    where the spec pins them, and what is to be done."""

    entry: int
    files: int
    size: int
    listed: bytes
    members: dict[str, str]
    units: list[Packed]


def look(
    spec: DatasetSpec,
    folder: Path,
    number: int,
    paths: list[str],
    code: str,
    hashes: Hashes,
    advance: Advance = lambda files, megabytes: None,
) -> Looked:
    """Hash a group of files of one entry and cut it into units."""
    entry, place = spec.files[number], str(folder)  # one string for all slices: files may be very many
    form, options = reader(spec.format), file_options(spec, entry)
    cut = form.split_at(options)
    listed, pinned = Listed([], [], []), dict[str, str]()
    slices: list[Slice] = []
    in_ranges: set[str] = set()
    for path in paths:
        try:
            beside = form.companions(folder, path, options)
            for name in (path, *beside):
                check_inside(place, name)
            own = hashes.of(place, path, None if beside else cut, UNIT_BYTES, advance)
            members = {path: own, **{name: hashes.of(place, name) for name in beside}}
        except UserError as error:
            if entry.pins:
                raise
            slices.append(_unreadable(place, path, entry, str(error)))
            listed.paths.append(path)
            listed.sizes.append(0)
            listed.shas.append("")
            continue
        size, sha = own.state[0], own.sha
        if beside or entry.pins:
            found = {name: member.sha for name, member in members.items()}
            size, sha = sum([member.state[0] for member in members.values()]), joined_hash(found)
            pinned.update(found if entry.pins else {})
        listed.paths.append(path)
        listed.sizes.append(size)
        listed.shas.append(sha)
        if own.ranges:
            in_ranges.add(path)
            for start, stop, line, of_range, too_long in own.ranges:
                slices.append(Slice(place, path, start, stop, line, entry.encoding, of_range, (), too_long))
        else:
            slices.append(Slice(place, path, 0, own.state[0], 1, entry.encoding, sha, tuple(beside)))
    units = [_packed(spec, entry, of_unit, in_ranges, code) for of_unit in _units(slices)]
    return Looked(number, len(paths), sum(listed.sizes), _compressed(listed), pinned, units)


def _unreadable(folder: str, path: str, entry: Files, problem: str) -> Slice:
    """What stands for a file that is one reject."""
    said = problem.removeprefix(f"{folder}/")  # the same wherever the mirror is
    return Slice(folder, path, 0, 0, 1, entry.encoding, blake3(said.encode()).hexdigest(), problem=said)


def _units(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Slices of a group that are read together; what is larger ends a unit the more often, as its name decides."""
    unit: list[Slice] = []
    size = 0
    for piece in slices:
        length = piece.stop - piece.start
        if unit and size + length > UNIT_BYTES:
            yield unit
            unit, size = [], 0
        unit.append(piece)
        size += length
        if length * GROUP_FILES > SHARED_BYTES and drawn(piece.path) * SHARED_BYTES < length:
            yield unit
            unit, size = [], 0
    if unit:
        yield unit


def _packed(spec: DatasetSpec, entry: Files, slices: list[Slice], in_ranges: set[str], code: str) -> Packed:
    where = [[piece.path, piece.line, piece.sha, piece.too_long, _header(piece)] for piece in slices]
    how = [entry.split, entry.encoding, spec.options | entry.options]
    name = fingerprint(where, how, spec.model_dump(mode="json", include=_OF_RECORDS), SCHEMA_VERSION, code)
    size = sum([piece.stop - piece.start for piece in slices])
    ranges = [piece.path for piece in slices if piece.path in in_ranges]
    return Packed(name, size, len(slices) - len(ranges), frozenset(ranges), _compressed(slices))


def _compressed(listed: object) -> bytes:
    """Files may be millions: this is all that a plan holds of each."""
    return zlib.compress(msgspec.msgpack.encode(listed), 1)


def _header(piece: Slice) -> str | None:
    """Hash of the first line of a file that is cut: it may be a header, which every range is read with."""
    if piece.start == 0:
        return None
    with piece.place.open("rb") as file:
        return blake3(file.readline(BLOCK)).hexdigest()


@collector_paused()
def look_apart(spec: DatasetSpec, folder: Path, number: int, paths: list[str], code: str) -> bytes:
    """What was found of a group, and what of it may be remembered; in bytes, which Ray hands on as they are."""
    hashes = Hashes()
    return msgspec.msgpack.encode((look(spec, folder, number, paths, code, hashes), hashes.told()))
