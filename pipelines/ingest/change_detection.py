"""Hash a group of source files of one spec entry, and cut or combine them into units of work."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from blake3 import blake3

from pipelines.ingest.hashes import BLOCK, Advance, Hashes
from pipelines.ingest.source_files import GROUP_FILES, drawn
from pipelines.sources import Slice, check_inside, joined_hash, reader
from pipelines.specs import file_options
from ubert.schema.errors import UserError
from ubert.schema.garbage_collection import collector_paused
from ubert.schema.manifest import fingerprint
from ubert.schema.record import SCHEMA_VERSION
from ubert.schema.specs.dataset import DatasetSpec, Files

UNIT_BYTES = 8 << 20  # a larger file is cut into ranges; smaller files share a unit of at most this size
SHARED_BYTES = 4 << 20  # average size of such a shared unit

# The fields of a spec on which all records depend. A change of another field doesn't repeat the mapping.
_OF_RECORDS = {"name", "task", "language", "instruction", "format", "map", "categories"}


class Listed(NamedTuple):
    """Columns of source files. Files that are read together (companions) count as one, named by the first."""

    paths: list[str]
    sizes: list[int]
    shas: list[str]


class Packed(NamedTuple):
    """The slices of one unit, serialised, because there may be thousands.

    `size` is the number of bytes to read, and `whole` the number of slices that are whole files. `in_ranges` has
    the paths of files of which other slices are ranges.
    """

    name: str
    size: int
    whole: int
    in_ranges: frozenset[str]
    slices: bytes


class HashedGroup(NamedTuple):
    """The result of hashing a group of files.

    `entry` is the index in the spec's `files`, `files` the number of files, and `size` their bytes. `listed` is a
    serialised `Listed`. `members` has the hashes of all files by path, if the spec pins them.
    """

    entry: int
    files: int
    size: int
    listed: bytes
    members: dict[str, str]
    units: list[Packed]


def hash_group(
    spec: DatasetSpec,
    folder: Path,
    number: int,
    paths: list[str],
    code: str,
    hashes: Hashes,
    advance: Advance = lambda files, megabytes: None,
) -> HashedGroup:
    """Hash a group of files of one entry and cut it into units."""
    entry, place = spec.files[number], str(folder)  # all slices share one string, as there may be very many
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
    return HashedGroup(number, len(paths), sum(listed.sizes), _compressed(listed), pinned, units)


def _unreadable(folder: str, path: str, entry: Files, problem: str) -> Slice:
    """Return a slice for a file that can't be read. It becomes one reject."""
    detail = problem.removeprefix(f"{folder}/")  # independent of the location of the mirror
    return Slice(folder, path, 0, 0, 1, entry.encoding, blake3(detail.encode()).hexdigest(), problem=detail)


def _units(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Split the slices of a group into units. Besides the size limit, a hash of a file's name may end a unit; the
    larger the file, the more likely."""
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
    # as text, because the order of categories and replacements counts, which `fingerprint` sorts
    of_records = spec.model_dump_json(include=_OF_RECORDS)
    name = fingerprint(where, how, of_records, SCHEMA_VERSION, code)
    size = sum([piece.stop - piece.start for piece in slices])
    ranges = [piece.path for piece in slices if piece.path in in_ranges]
    return Packed(name, size, len(slices) - len(ranges), frozenset(ranges), _compressed(slices))


def _compressed(listed: object) -> bytes:
    """Serialise and compress, because a plan may hold millions of files in memory."""
    return zlib.compress(msgspec.msgpack.encode(listed), 1)


def _header(piece: Slice) -> str | None:
    """Return the hash of the first line of a file that is cut, or None for the first range. The line may be a
    header, with which every range is read."""
    if piece.start == 0:
        return None
    with piece.place.open("rb") as file:
        return blake3(file.readline(BLOCK)).hexdigest()


@collector_paused()
def hash_group_task(spec: DatasetSpec, folder: Path, number: int, paths: list[str], code: str) -> bytes:
    """Run `hash_group` as a Ray task. Its result and the new hashes are bytes, which Ray passes on unchanged."""
    hashes = Hashes()
    return msgspec.msgpack.encode((hash_group(spec, folder, number, paths, code, hashes), hashes.drain()))
