"""Find the source files that a spec names, and group them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest

from pipelines.mirror import Show, fill, is_filled
from pipelines.sources import matches
from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.specs.dataset import DatasetSpec

GROUP_FILES, MOST_FILES = 4_096, 8_192  # average and largest number of files in a group


def source_folder(spec: DatasetSpec, mirror: Path, specs: Path, show: Show = lambda *_: None) -> Path:
    """Return the folder of a dataset's raw files: in the mirror, or else among the samples. If the spec has
    `fetch`, missing files are downloaded to the mirror.

    Raises:
        UserError: there is no such folder, or the files cannot be fetched.
    """
    own, sample = mirror / spec.folder, specs / "samples" / spec.folder
    if spec.fetch:
        fill(spec, own.absolute(), specs, show)
    for place in (own, sample):
        if place.is_dir():
            return place.absolute()
    absent = "" if mirror.is_dir() else f" ({mirror} does not exist)"
    upstream = f"; its files are at {spec.upstream.url}" if spec.upstream else ""
    raise UserError(
        f"{spec.name}: no folder {own}{absent}; name the folder that holds {spec.folder!r} with --data "
        f"(UBERT_DATA){upstream}"
    )


def has_sources(spec: DatasetSpec, mirror: Path, specs: Path) -> bool:
    """Return whether `source_folder` would find a folder without fetching. If the mirror's folder cannot be read,
    `source_folder` says why."""
    own, sample = mirror / spec.folder, specs / "samples" / spec.folder
    if not spec.fetch:
        return own.is_dir() or sample.is_dir()
    try:
        return own.is_dir() and is_filled(spec, own)
    except UserError:
        return True


def source_files(spec: DatasetSpec, folder: Path) -> list[list[str]]:
    """Return the paths that each entry of the spec's `files` matches.

    Raises:
        UserError: a file is missing, or is named twice in a split.
    """
    found = [matches(folder, entry.path) for entry in spec.files]
    named: defaultdict[Split, set[str]] = defaultdict(set)
    for entry, paths in zip(spec.files, found, strict=True):
        if twice := named[entry.split].intersection(paths):
            raise UserError(
                f"{spec.name}: files: {min(twice)} is named twice in split {entry.split}; name it once"
            )
        named[entry.split].update(paths)
    return found


def grouped(paths: Sequence[str]) -> Iterator[list[str]]:
    """Split the files of an entry into groups. A hash of each file's name decides whether a group ends there, so
    that an added or removed file changes only its own group."""
    group: list[str] = []
    for path in paths:
        group.append(path)
        if len(group) == MOST_FILES or drawn(path) * GROUP_FILES < 1:
            yield group
            group = []
    if group:
        yield group


def drawn(path: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the name of a file."""
    return xxh3_64_intdigest(path.encode()) / (1 << 64)
