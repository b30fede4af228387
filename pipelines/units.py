"""What there is to ingest: a spec's source files, hashed, and cut or grouped into units of work.

A unit is named by what its output depends on: the bytes, where they lie, what the spec says about records, the
schema and the code that reads. Work under a known name is never done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from pipelines.code_hash import code_hash
from pipelines.mirror import Show, fill
from pipelines.sources import Cut, Slice, content_hash, file_hash, joined_hash, matches, reader
from pipelines.specs import file_options
from ubert.schema.errors import UserError
from ubert.schema.manifest import SourceFile, fingerprint
from ubert.schema.record import SCHEMA_VERSION, Split
from ubert.schema.spec import DatasetSpec, Files

UNIT_BYTES = 16 << 20  # a larger file is cut; smaller ones share a unit up to this size ...
UNIT_FILES = 2_048  # ... and number

# What all records depend on; the rest of a spec describes the corpus and redoes no work.
_OF_RECORDS = {"name", "task", "language", "instruction", "format", "map", "categories"}


@dataclass(slots=True, frozen=True)
class Unit:
    """Slices of one entry of a spec's `files` that one task reads."""

    name: str
    entry: Files
    slices: tuple[Slice, ...]

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
        return sum(piece.stop - piece.start for piece in self.slices)


@dataclass(slots=True, frozen=True)
class Plan:
    """All units of a corpus. `files` are its source files, with no records counted yet."""

    spec: DatasetSpec
    fingerprint: str
    files: tuple[SourceFile, ...]
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


def plan(spec: DatasetSpec, folder: Path) -> Plan:
    """Hash the source files of `spec` under `folder` and cut them into units.

    Raises:
        UserError: a file is missing, is named twice in a split, or is not the one that the spec pins.
    """
    files: dict[tuple[Split, str], SourceFile] = {}
    units: list[Unit] = []
    code = code_hash(f"pipelines.sources.{spec.format}", "pipelines.mapping", "ubert.schema.arrow")
    for entry in spec.files:
        hashes: dict[str, str] = {}
        slices: list[Slice] = []
        options = file_options(spec, entry)
        for path in matches(folder, entry.path):
            if (entry.split, path) in files:
                raise UserError(f"{spec.name}: files: {path} is named twice in split {entry.split}; name it once")
            companions = reader(spec.format).companions(folder / path, options)
            members = [path, *(companion.relative_to(folder).as_posix() for companion in companions)]
            pieces, own = _pieces(reader(spec.format).split_at(options), entry.encoding, folder, members)
            files[entry.split, path] = SourceFile(
                path=path,
                split=entry.split,
                blake3=joined_hash(own),
                bytes=sum(_size(folder / member) for member in members),
                records=0,
                kept=0,
                rejected=0,
            )
            slices += pieces
            hashes |= own
        _check_pin(spec, entry, folder, joined_hash(hashes))
        units += [Unit(_name(spec, entry, group, code), entry, tuple(group)) for group in _groups(slices)]
    upstream = spec.upstream.url if spec.upstream else None
    own_name = fingerprint(spec.name, spec.licence, spec.licence_class, upstream, [unit.name for unit in units])
    return Plan(spec, own_name, tuple(files.values()), tuple(units))


def check_unchanged(piece: Slice) -> None:
    """Hold the bytes of a slice against those that were planned.

    Raises:
        UserError: they differ, or cannot be read.
    """
    if piece.start == 0 and piece.stop == _size(piece.folder / piece.path):
        sha = content_hash(piece.folder, [piece.path, *piece.beside])
    else:
        own = blake3()
        for block in piece.blocks():
            own.update(block)
        sha = own.hexdigest()
    if sha != piece.sha:
        raise UserError(f"{piece.folder / piece.path}: changed while it was being ingested; run again")


def _pieces(cut: Cut, encoding: str, folder: Path, members: list[str]) -> tuple[list[Slice], dict[str, str]]:
    """The slices of a file and its companions, and the hash of each file that they are read from."""
    path, *beside = members
    one_byte_line_feed = "\n".encode(encoding) == b"\n"
    if cut is None or len(members) > 1 or _size(folder / path) <= UNIT_BYTES or not one_byte_line_feed:
        hashes = {member: file_hash(folder / member) for member in members}
        size, sha = _size(folder / path), joined_hash(hashes)
        return [Slice(folder, path, 0, size, 1, encoding, sha, tuple(beside))], hashes
    whole, slices, start, line = blake3(max_threads=blake3.AUTO), [], 0, 1
    for data in _ranges(folder / path, cut):
        whole.update(data)
        sha = blake3(data, max_threads=blake3.AUTO).hexdigest()
        slices.append(Slice(folder, path, start, start + len(data), line, encoding, sha))
        start, line = start + len(data), line + data.count(b"\n")
    return slices, {path: whole.hexdigest()}


def _ranges(path: Path, cut: Cut) -> Iterator[bytes]:
    """The bytes of a file in ranges of `UNIT_BYTES` and what it takes to end with a whole line or a blank one."""
    with path.open("rb") as file:
        while data := file.read(UNIT_BYTES):
            rest = [file.readline()]
            if cut == "blank line":
                for line in file:
                    rest.append(line)
                    if not line.strip():
                        break
            yield data + b"".join(rest)


def _name(spec: DatasetSpec, entry: Files, slices: list[Slice], code: str) -> str:
    where = [[piece.path, piece.line, piece.sha, _header(piece)] for piece in slices]
    how = [entry.split, entry.encoding, spec.options | entry.options]
    return fingerprint(where, how, spec.model_dump(mode="json", include=_OF_RECORDS), SCHEMA_VERSION, code)


def _header(piece: Slice) -> str | None:
    """Hash of the first line of a file that is cut: it may be a header, which every range is read with."""
    if piece.start == 0:
        return None
    with (piece.folder / piece.path).open("rb") as file:
        return blake3(file.readline()).hexdigest()


def _groups(slices: list[Slice]) -> Iterator[list[Slice]]:
    group: list[Slice] = []
    size = 0
    for piece in slices:
        length = piece.stop - piece.start
        if group and (size + length > UNIT_BYTES or len(group) == UNIT_FILES):
            yield group
            group, size = [], 0
        group.append(piece)
        size += length
    if group:
        yield group


def _check_pin(spec: DatasetSpec, entry: Files, folder: Path, got: str) -> None:
    if entry.blake3 not in (None, got):
        raise UserError(
            f"{folder / entry.path}: not what the spec {spec.name} pins: expected blake3 {entry.blake3}, "
            f"got {got}; restore the file, or if the change is meant, put `blake3: {got}` into the spec"
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; the spec names it as a source file") from None
