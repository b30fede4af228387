"""Matches files with a format: groups them into entries of a spec's `files`, with options for each entry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pipelines.drafting import sample
from pipelines.drafting.formats.files import Entry, Gathered, encoding_of, entries, split_of
from pipelines.drafting.formats.named import SOURCES, Stated, labels_of_files, labels_of_folders
from pipelines.drafting.formats.readings import File, Reading, readings
from pipelines.sources import RawRow, reader
from ubert.schema.errors import UserError
from ubert.schema.record import SPLITS, Reject, Split

BINARY = (".parquet", ".arrow")
TRIED = 3  # files of each entry whose encoding is checked


@dataclass
class Arranged:
    """A reading, with the files that it fits.

    Attributes:
        files: entries of the spec's `files`.
        paths: the paths that each entry names.
        whys: what the split of each entry was inferred from.
        left_out: files that the reading does not fit, with the reason.
    """

    folder: Path
    reading: Reading
    files: list[dict[str, Any]] = field(default_factory=list)
    paths: list[list[str]] = field(default_factory=list)
    whys: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def rows(self, place: int, path: str, most: int | None) -> Iterator[RawRow | Reject]:
        """Read the rows of a file. If it can't be read, add it to `left_out`."""
        entry = self.files[place]
        given = {**self.reading.options, **entry.get("options", {})}
        options = reader(self.reading.format).Options.model_validate(given)
        try:
            yield from sample.rows(
                self.reading.format, options, self.folder, path, entry.get("encoding", "utf-8"), most
            )
        except (UserError, OSError) as error:
            self.left_out[path] = str(error)

    def is_small(self, path: str) -> bool:
        """Tell whether a sample contains the whole file."""
        return (self.folder / path).stat().st_size <= sample.MAX_BYTES

    def add(self, entry: Entry, encoding: str, options: dict[str, Any], split: Split | None = None) -> None:
        stated = {"split": split or entry.split, "path": entry.path}
        if encoding != "utf-8":
            stated["encoding"] = encoding
        own = {key: item for key, item in options.items() if self.reading.options.get(key) != item}
        self.files.append({**stated, **({"options": own} if own else {})})
        self.paths.append(entry.files)
        self.whys.append("the file has a list for it" if split else entry.why)


def arranged(gathered: Gathered) -> list[Arranged]:
    """Return the possible ways to read the files, likeliest first.

    Raises:
        UserError: a file is empty, or in an encoding that no reader supports.
    """
    beside = {PurePosixPath(path).suffix for path in gathered.paths if _is_beside(gathered.folder, path)}
    paths = [path for path in gathered.paths if PurePosixPath(path).suffix not in beside]
    found = [*_parallel(gathered.folder, paths)]
    listed = entries(gathered.folder, paths)
    encodings = {path: _encoding(gathered.folder / path) for entry in listed for path in entry.files[:TRIED]}
    main = max(listed, key=lambda entry: (gathered.folder / entry.files[0]).stat().st_size)
    first = main.files[0]
    for labels_in in (labels_of_files, labels_of_folders):
        if labelled := labels_in(gathered.folder, listed):
            found.append(_stated(gathered.folder, *labelled, encodings))
    for reading in readings(File(gathered.folder, first, encodings[first], frozenset(beside))):
        one = Arranged(gathered.folder, _without_parts(reading))
        for entry in listed:
            _fit(one, entry, encodings)
        if one.files:
            found.append(one)
    return sorted(found, key=lambda one: -one.reading.score * (0.5 + 0.5 * sum(map(len, one.paths)) / len(paths)))


def _stated(folder: Path, reading: Reading, stated: list[Stated], encodings: dict[str, str]) -> Arranged:
    one = Arranged(folder, reading)
    for entry, label in stated:
        for path in entry.files[:TRIED]:
            encodings.setdefault(path, _encoding(folder / path))
        encoding = next((encodings[path] for path in entry.files[:TRIED] if encodings[path] != "utf-8"), "utf-8")
        one.add(entry, encoding, {**reading.options, "constants": {"label": label}})
    return one


def _without_parts(reading: Reading) -> Reading:
    """Remove from a reading the options that its entries state themselves, such as `rows`."""
    own = {key for options in reading.parts.values() for key in options}
    return reading._replace(options={key: item for key, item in reading.options.items() if key not in own})


def _is_beside(folder: Path, path: str) -> bool:
    """Tell whether a file has the annotations of a text file of the same name."""
    at = folder / path
    return at.suffix in (".ann", ".a1", ".a2") and at.with_suffix(".txt").exists()


def _encoding(path: Path) -> str:
    return "utf-8" if path.suffix in BINARY else encoding_of(path)


def _fit(one: Arranged, entry: Entry, encodings: dict[str, str]) -> None:
    """Add an entry to a reading, if needed with options of its own, or record why it is left out."""
    file = File(one.folder, entry.files[0], encodings[entry.files[0]])
    if one.reading.parts:
        for split, options in one.reading.parts.items():
            one.add(entry, file.encoding, {**one.reading.options, **options}, split)
        return
    if file.place.stat().st_size and file.fits(one.reading):
        one.add(entry, file.encoding, one.reading.options)
        return
    try:
        own = [reading for reading in readings(file) if reading.format == one.reading.format]
    except UserError as error:
        one.left_out[entry.path] = str(error)
        return
    if own:
        one.add(entry, file.encoding, own[0].options)
    else:
        one.left_out[entry.path] = f"{one.reading.format} does not read it"


def _parallel(folder: Path, paths: list[str]) -> Iterator[Arranged]:
    """Find parallel files: files of one folder and split with the same number of lines."""
    groups: defaultdict[tuple[str, Split], list[str]] = defaultdict(list)
    for path in paths:
        groups[PurePosixPath(path).parent.as_posix(), split_of(path)[0]].append(path)
    if any(len(group) < 2 or len(group) > 6 for group in groups.values()):
        return
    one = Arranged(folder, Reading("parallel", {}, 0.97, "the files have the same number of lines"))
    for group in sorted(groups.values(), key=lambda group: SPLITS.index(split_of(group[0])[0])):
        texts = {path: _lines(folder / path) for path in group}
        counts = {len(found) for found in texts.values()}
        if len(counts) != 1 or counts == {0} or any(line[:1] in "{[<" for t in texts.values() for line in t[:1]):
            return
        main = max(texts, key=lambda path: (_is_source(path), _letters(texts[path]), path))
        names = {path: _column(path, texts[path], texts[main]) for path in group}
        beside = {names[path]: PurePosixPath(path).name for path in group if path != main}
        if len(beside) != len(group) - 1:
            return
        options: dict[str, Any] = {"beside": beside}
        if any("tag" in name for name in beside):
            options["column"] = "tokens"
        if not one.reading.options:
            one.reading = one.reading._replace(options=options)
        split, why = split_of(main)
        one.add(Entry(main, [main], split, why), _encoding(folder / main), options)
    if len({str(file.get("options")) for file in one.files}) > 1:  # each file names its own columns
        for file in one.files:
            file["options"] = {"beside": file.get("options", one.reading.options)["beside"]}
        shared = {key: item for key, item in one.reading.options.items() if key != "beside"}
        one.reading = one.reading._replace(options=shared)
    yield one


def _lines(path: Path) -> list[str]:
    return sample.head(path, "utf-8").split("\n")[:-1] if path.suffix not in BINARY else []


def _is_source(path: str) -> bool:
    return not {*re.findall(r"[a-z]+", PurePosixPath(path).name.lower())}.isdisjoint(SOURCES)


def _letters(lines: list[str]) -> int:
    return sum(len(line) for line in lines) if not _are_tags(lines) else 0


def _are_tags(lines: list[str]) -> bool:
    words = [word for line in lines[:200] for word in line.split()]
    return sum(bool(re.fullmatch(r"O|[BIES]-\S+", word)) for word in words) > 0.9 * len(words)


def _column(path: str, lines: list[str], main: list[str]) -> str:
    """Return the name of a parallel file's column: tags, a label, or a name from the file name."""
    if _are_tags(lines):
        return "tags"
    name = PurePosixPath(path).name.lower()
    ignored = ("txt", "tsv", split_of(name)[1].lower())
    words: list[str] = [word for word in re.findall(r"[a-z]+", name) if word not in ignored]
    if named := [word for word in words if word.startswith(("label", "intent", "class", "target"))]:
        return named[0].rstrip("s")
    return "label" if len(set(lines)) < len(lines) / 3 else "_".join(words) or "other"
