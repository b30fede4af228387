"""Detects labels in the names of files or folders of plain text: `reviews.pos`, or `pos/` beside `neg/`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pipelines.drafting.formats.files import Entry, encoding_of, split_of
from pipelines.drafting.formats.readings import File, Reading, readings
from pipelines.drafting.names import beginning
from pipelines.sources.globbing import glob
from ubert.schema.record import Split

Stated = tuple[Entry, str]  # the files of one label, and the label
MAX_LABELS = 150  # labels that folders may have
SOURCES, TARGETS = ("source", "src", "input"), ("target", "tgt", "output")  # names of parallel texts, not labels


def labels_of_files(folder: Path, listed: list[Entry]) -> tuple[Reading, list[Stated]] | None:
    """Return files of text lines whose label is in the file name, as in `reviews.pos` and `reviews.neg`."""
    paths = [path for entry in listed for path in entry.files]
    if not 2 <= len(paths) <= 20 or len({entry.split for entry in listed}) > 1 or len(listed) < len(paths):
        return None
    names = [PurePosixPath(path).name for path in paths]
    start, stop = (
        len(re.sub(r"[^\W_]+$", "", shared))  # cut at whole words
        for shared in (beginning(names), beginning(name[::-1] for name in names))
    )
    labels = [name[start : len(name) - stop].strip("._-") for name in names]
    if not all(any(map(str.isalpha, label)) for label in labels):
        labels = [PurePosixPath(name).stem for name in names]
    sides = all(label.lower() in SOURCES + TARGETS for label in labels) or _are_languages(paths)
    if sides or len({*labels}) < len(labels) or not _are_text(folder, paths):
        return None
    options = {"columns": ["text"], "rest": True}
    reading = Reading("table", options, 0.6, "lines of text; the names of files may be labels")
    return reading, list(zip(listed, labels, strict=True))


def _are_languages(paths: list[str]) -> bool:
    """Tell whether two files are translations: `train.en` and `train.de`."""
    files = [PurePosixPath(path) for path in paths]
    codes = [file.suffix for file in files if re.fullmatch(r"\.[a-z]{2}", file.suffix)]
    return len(files) == 2 == len({*codes}) and files[0].with_suffix("") == files[1].with_suffix("")


def labels_of_folders(folder: Path, listed: list[Entry]) -> tuple[Reading, list[Stated]] | None:
    """Return files of one text each whose label is the name of their folder, as in `train/pos/1.txt`."""
    groups: defaultdict[tuple[Split, str, str], list[str]] = defaultdict(list)
    for entry in listed:
        for path in entry.files:
            groups[entry.split, entry.why, PurePosixPath(path).parent.as_posix()].append(path)
    names = {PurePosixPath(parent).name for _, _, parent in groups}
    depths = {parent.count("/") for _, _, parent in groups if parent != "."}
    splits = {split for split, _, _ in groups}
    same = len(groups) > len(splits) and len(names) < len(groups) if len(splits) > 1 else len(names) == len(groups)
    if (
        not 2 <= len(names) <= MAX_LABELS
        or len(depths) != 1
        or not same
        or any(split_of(name)[1] for name in names)
    ):
        return None
    found = []
    for (split, why, parent), paths in groups.items():
        endings = {PurePosixPath(path).suffix for path in paths}
        pattern = f"{parent}/*{endings.pop() if len(endings) == 1 else ''}"
        if {*glob(folder, pattern)} != {*paths}:
            pattern = f"{parent}/*"
        if parent == "." or {*glob(folder, pattern)} != {*paths} or not _are_text(folder, paths[:1]):
            return None
        found.append((Entry(pattern, sorted(paths), split, why), PurePosixPath(parent).name))
    return Reading("text", {}, 0.7, "files of one text each; the names of folders may be labels"), found


def _are_text(folder: Path, paths: Iterable[str]) -> bool:
    found = [readings(File(folder, path, encoding_of(folder / path))) for path in paths]
    return all(all(one.format == "text" for one in some) for some in found)
