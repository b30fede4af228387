"""What there is to ingest: a spec's source files, hashed, and cut or grouped into units of work.

A unit is named by what its output depends on: the bytes, where they lie, what the spec says about records, the
schema and the code that reads. Work under a known name is never done again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from blake3 import blake3

from pipelines.sources import Cut, Reader, Slice, content_hash, file_hash, joined_hash, matches, reader
from ubert.schema.errors import UserError
from ubert.schema.manifest import SourceFile, fingerprint
from ubert.schema.record import SCHEMA_VERSION, SPLITS, Split
from ubert.schema.spec import DatasetSpec, Files

LARGE = 64 << 20  # bytes: a larger file is cut
GROUP_BYTES = 16 << 20  # small files share a unit up to this size ...
GROUP_FILES = 512  # ... and number

# What a unit's records depend on; the rest of a spec describes the corpus and redoes no work.
_OF_RECORDS = {"name", "task", "language", "instruction", "format", "options", "map", "categories"}
_CODE = ("pipelines.mapping", "ubert.schema.arrow")


@dataclass(slots=True, frozen=True)
class Unit:
    """Slices of one split that one task reads."""

    name: str
    split: Split
    slices: tuple[Slice, ...]

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


def source_folder(spec: DatasetSpec, data: Path | None, specs: Path) -> Path:
    """Where a dataset's raw files are: in the mirror `data`, else among the samples.

    Raises:
        UserError: in neither.
    """
    places = [*([data / spec.folder] if data else []), specs / "samples" / spec.folder]
    for place in places:
        if place.is_dir():
            return place.absolute()
    upstream = f"get it from {spec.upstream.url}" if spec.upstream else "its spec names no upstream"
    raise UserError(
        f"{spec.name}: no source files: looked in {' and '.join(map(str, places))}; {upstream}, put it into a "
        f"folder {spec.folder!r} and name the folder above it with --data (UBERT_DATA)"
    )


def plan(spec: DatasetSpec, folder: Path) -> Plan:
    """Hash the source files of `spec` under `folder` and cut them into units.

    Raises:
        UserError: a file is missing, is named twice, or is not the one that the spec pins.
    """
    form = reader(spec.format)
    options = form.Options.model_validate(spec.options)
    files: dict[str, SourceFile] = {}
    slices: dict[Split, list[Slice]] = {split: [] for split in SPLITS}
    for entry in spec.files:
        hashes: dict[str, str] = {}
        for path in matches(folder, entry.path):
            if path in files:
                raise UserError(f"{spec.name}: files: {path} is named twice; name each source file once")
            members = [path, *(_below(folder, other) for other in form.companions(folder / path, options))]
            cut = _where_to_cut(form, options, entry, folder, members)
            pieces, own = _pieces(folder, members, entry.encoding, cut)
            slices[entry.split] += pieces
            size = sum(_size(folder / member) for member in members)
            files[path] = SourceFile(
                path=path, split=entry.split, blake3=joined_hash(own), bytes=size, records=0, kept=0, rejected=0
            )
            hashes |= own
        _check_pin(spec, entry, folder, joined_hash(hashes))
    units = tuple(_units(spec, slices))
    head = [spec.name, spec.licence, spec.upstream and spec.upstream.url]
    return Plan(spec, fingerprint(head, [unit.name for unit in units]), tuple(files.values()), units)


def check_unchanged(piece: Slice, companions: list[Path]) -> None:
    """Hold the bytes of a slice against those that were planned.

    Raises:
        UserError: they differ, or cannot be read.
    """
    whole = piece.start == 0 and piece.stop == _size(piece.folder / piece.path)
    if whole:
        sha = content_hash(piece.folder, [piece.path, *(_below(piece.folder, path) for path in companions)])
    else:
        sha = blake3(piece.read_bytes()).hexdigest()
    if sha != piece.sha:
        raise UserError(f"{piece.folder / piece.path}: changed while it was being ingested; run again")


def _where_to_cut(form: Reader, options: Any, entry: Files, folder: Path, members: list[str]) -> Cut:
    """A file is cut only where it stands alone and a line feed is one byte that is nothing else."""
    alone = len(members) == 1 and _size(folder / members[0]) > LARGE
    return form.split_at(options) if alone and "\n".encode(entry.encoding) == b"\n" else None


def _pieces(folder: Path, members: list[str], encoding: str, cut: Cut) -> tuple[list[Slice], dict[str, str]]:
    """The slices of a file, and the hash of each file that they are read from."""
    path = members[0]
    if cut is None:
        hashes = {member: file_hash(folder / member) for member in members}
        return [Slice(folder, path, 0, _size(folder / path), 1, encoding, joined_hash(hashes))], hashes
    whole, slices, start, line = blake3(max_threads=blake3.AUTO), [], 0, 1
    for data in _ranges(folder / path, cut):
        whole.update(data)
        sha = blake3(data, max_threads=blake3.AUTO).hexdigest()
        slices.append(Slice(folder, path, start, start + len(data), line, encoding, sha))
        start, line = start + len(data), line + data.count(b"\n")
    return slices, {path: whole.hexdigest()}


def _ranges(path: Path, cut: Cut) -> Iterator[bytes]:
    """The bytes of a file in ranges of `LARGE` and what it takes to end with a whole line or a blank one."""
    with path.open("rb") as file:
        while data := file.read(LARGE):
            rest = [file.readline()]
            if cut == "blank line":
                for line in file:
                    rest.append(line)
                    if not line.strip():
                        break
            yield data + b"".join(rest)


def _units(spec: DatasetSpec, slices: dict[Split, list[Slice]]) -> Iterator[Unit]:
    content = spec.model_dump(mode="json", include=_OF_RECORDS)
    code = _code(spec.format)
    for split in SPLITS:
        for group in _groups(slices[split]):
            where = [[piece.path, piece.line, piece.sha, piece.encoding] for piece in group]
            yield Unit(fingerprint(where, split, content, SCHEMA_VERSION, code), split, tuple(group))


def _groups(slices: list[Slice]) -> Iterator[list[Slice]]:
    group: list[Slice] = []
    size = 0
    for piece in slices:
        length = piece.stop - piece.start
        if group and (size + length > GROUP_BYTES or len(group) == GROUP_FILES):
            yield group
            group, size = [], 0
        group.append(piece)
        size += length
    if group:
        yield group


def _code(form: str) -> dict[str, str]:
    """Hashes of the modules between a file's bytes and its records: the format's reader and what it imports."""
    hashes: dict[str, str] = {}
    waiting = [f"pipelines.sources.{form}", *_CODE]
    while waiting:
        name = waiting.pop()
        path = _module_path(name)
        if path and name not in hashes:
            hashes[name] = file_hash(path)
            waiting += _imports(path)
    return hashes


def _module_path(name: str) -> Path | None:
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # a name within a module
        return None
    return Path(found.origin) if found and found.origin else None


def _imports(path: Path) -> Iterator[str]:
    """Names of our own modules that a module may import; some name a function or class instead."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] in ("pipelines", "ubert")
        ):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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


def _below(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()
