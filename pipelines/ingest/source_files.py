"""The source files that a spec names: where they are, and which share the work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest

from pipelines.mirror import Show, fill
from pipelines.sources import matches
from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.spec import DatasetSpec

GROUP_FILES, MOST_FILES = 4_096, 8_192  # of a group: on average, and at most


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
    """Whether there is a folder of raw files for `source_folder` to look in."""
    return any(place.is_dir() for place in (mirror / spec.folder, specs / "samples" / spec.folder))


def source_files(spec: DatasetSpec, folder: Path) -> list[list[str]]:
    """The paths of the files that each entry of the spec's `files` names.

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
    """Files of an entry that are looked at together. Where a group ends is drawn from the names of files: one that
    comes or goes leaves all groups but its own as they are."""
    group: list[str] = []
    for path in paths:
        group.append(path)
        if len(group) == MOST_FILES or drawn(path) * GROUP_FILES < 1:
            yield group
            group = []
    if group:
        yield group


def drawn(path: str) -> float:
    """A number in [0, 1) that depends on the name of a file alone."""
    return xxh3_64_intdigest(path.encode()) / (1 << 64)
