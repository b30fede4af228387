"""The files of a draft: the folder of their dataset, the split of each file, and its encoding."""

from __future__ import annotations

import codecs
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pipelines.drafting.names import beginning
from pipelines.sources.globbing import glob
from ubert.schema.errors import UserError
from ubert.schema.record import SPLITS, Split

_SPLITS: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("dev", "devel", "development", "val", "valid", "validation", "trial", "eval"), "validation"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
# Files beside the data that contain no data.
_NO_DATA = re.compile(
    r"\..*|__.*|(state|dataset_info|dataset_dict)\.json"
    r"|.*\.(md|rst|bib|cff|pdf|py|sh|conf|cfg|ipynb|gitignore|png|jpg|html)",
    re.IGNORECASE,
)
# Texts that are about the data by their names. A draft lists them, because they may be data.
_ABOUT = re.compile(r"(readme|licen[cs]e|notice|copying|changelog|citation|note)\b([^.]*|.*\.txt)", re.IGNORECASE)
MANY = 4  # a glob replaces at least as many files of one kind in one folder
BLOCK = 1 << 20


class Entry(NamedTuple):
    """An entry of `files`: a path or glob, the files that it matches, and their split."""

    path: str
    files: list[str]
    split: Split
    why: str  # the word that the split was inferred from, or empty


class Gathered(NamedTuple):
    """The files of one dataset, relative to its folder, and those that seem to be about the data."""

    folder: Path
    paths: list[str]
    about: list[str]


def gather(given: Sequence[Path], data: Path | None) -> Gathered:
    """Find all files that are given by name or by a folder. The dataset's folder is the one below `data`,
    or otherwise the common parent.

    Raises:
        UserError: a file doesn't exist, or a folder contains no data.
    """
    found, about = set[Path](), set[Path]()
    for path in given:
        if not os.path.exists(path):  # noqa: PTH110  (a name that is too long is of no file, either)
            raise UserError(f"{path}: no such file or folder; name the files of one dataset")
        every = [Path(os.path.abspath(file)) for file in _below(path)]  # noqa: PTH100  (links stay as they are)
        inside = [file for file in every if not (path.is_dir() and _ABOUT.fullmatch(file.name))]
        if not inside:
            raise UserError(f"{path}: no files in this folder; name the files of one dataset")
        found.update(inside)
        about.update(every)
    folder = _folder(found, data)
    paths = sorted(file.relative_to(folder).as_posix() for file in found)
    return Gathered(folder, paths, sorted(os.path.relpath(file, folder) for file in about - found))


def _below(path: Path) -> list[Path]:
    """Return the files of a folder that may be data, or a file itself."""
    if not path.is_dir():
        return [path]
    found = []
    for directory, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(directory, name) for name in sorted(files) if not _NO_DATA.fullmatch(name)]
    return found


def _folder(files: set[Path], data: Path | None) -> Path:
    parent = Path(os.path.commonpath([file.parent for file in files]))
    mirror = data and Path(os.path.abspath(data))  # noqa: PTH100  (without `..`, as the files are)
    if mirror and parent != mirror and parent.is_relative_to(mirror):
        return mirror / parent.relative_to(mirror).parts[0]
    while _split_of(parent.name) and parent.parent != parent:  # the folder of a split is below the dataset's
        parent = parent.parent
    return parent


def entries(folder: Path, paths: Iterable[str]) -> list[Entry]:
    """Make entries of a spec. Many files of one kind in one folder become a glob, if it matches no other files."""
    alike: defaultdict[tuple[str, str, Split, str], list[str]] = defaultdict(list)
    listed = [*paths]
    for path in listed:
        at = PurePosixPath(path)
        split, why = split_of(path)
        if not why:  # drop the shared prefix of names: FLUTEfinaltrain, FLUTEfinalval
            names = [other.name for other in map(PurePosixPath, listed) if other.parent == at.parent]
            split, why = split_of(at.name.removeprefix(beginning(names)))
        alike[at.parent.as_posix(), at.suffix, split, why].append(path)
    found = []
    for (parent, suffix, split, why), files in alike.items():
        pattern = f"*{suffix}" if parent == "." else f"{parent}/*{suffix}"
        if len(files) >= MANY and set(glob(folder, pattern)) == set(files):
            found.append(Entry(pattern, sorted(files), split, why))
        else:
            found += [Entry(path, [path], split, why) for path in files]
    return sorted(found, key=lambda entry: (SPLITS.index(entry.split), entry.path))


def split_of(path: str) -> tuple[Split, str]:
    """Infer a file's split from words in its path: first in its name, then in its folders."""
    for part in reversed(PurePosixPath(path).parts):
        if told := _split_of(part):
            return told
    return "train", ""


def _split_of(name: str) -> tuple[Split, str] | None:
    words = re.findall(r"[A-Za-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))
    for word in words:
        if split := _SPLITS.get(word.lower()):
            return split, word
    for word in words:  # parts of a word: wnut17train, traindata
        for known in ("train", "valid", "test"):
            if word.lower().startswith(known) or (known == "train" and word.lower().endswith(known)):
                return _SPLITS[known], known
    return None


def encoding_of(path: Path) -> str:
    """Return the encoding of a text file: UTF-8 if all lines but a few are valid, otherwise the likeliest one.

    Raises:
        UserError: it is UTF-16 or little-endian UTF-32, whose line ends are not single bytes.
    """
    decode = codecs.getincrementaldecoder("utf-8")().decode
    with path.open("rb") as file:
        start = file.read(4)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UserError(f"{path}: the file is UTF-16; save it as UTF-8")
        file.seek(0)
        try:
            while block := file.read(BLOCK):
                decode(block)
        except UnicodeDecodeError:
            return "utf-8" if _is_mostly_utf8(block) else _other_encoding(block)
    return "utf-8"


def _is_mostly_utf8(block: bytes) -> bool:
    """Tell whether most lines that are not ASCII are UTF-8, so that the others are only damaged. Text in another
    encoding is hardly ever valid UTF-8."""
    lines = [line for line in block.split(b"\n") if not line.isascii()]
    return sum(map(_is_utf8, lines)) > len(lines) / 2


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _other_encoding(block: bytes) -> str:
    """Guess the encoding of a block that is not UTF-8."""
    high = sum(byte >= 0x80 for byte in block)
    if high > len(block) * 0.2:
        for name in ("shift_jis", "euc_kr", "gb18030", "big5", "cp1251"):
            try:
                block[: block.rfind(b"\n")].decode(name)
            except UnicodeDecodeError:
                continue
            return name
    try:
        block.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252" if any(0x80 <= byte < 0xA0 for byte in block) else "latin-1"
