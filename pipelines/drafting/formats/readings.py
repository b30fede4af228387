"""Detects the format of a file: possible formats, each with options and reasons, likeliest first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import ValidationError

from pipelines.drafting import sample
from pipelines.drafting.formats.columns import conll
from pipelines.drafting.formats.routes import are_columns, are_texts_by_label, is_open, routes
from pipelines.drafting.formats.tables import tables
from pipelines.sources import RawRow, reader
from ubert.schema.errors import UserError
from ubert.schema.record import Split

LOOK = 256 << 10  # characters to detect line-based formats from
_PACKED = {  # by the first bytes of a file
    b"PK\x03\x04": "zip",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
    b"%PDF": "PDF",
    b"\xd0\xcf\x11\xe0": "Office",
}
FITS = 0.9  # share of the first rows that a format must read; the others may be damaged


class Reading(NamedTuple):
    """A format with its options. A `score` of 1 means that no other format has these signs."""

    format: str
    options: dict[str, Any]
    score: float
    why: str
    parts: dict[Split, dict[str, Any]] = {}  # noqa: RUF012  options of splits that are in one file


class File(NamedTuple):
    """A file to detect the format of."""

    folder: Path
    path: str
    encoding: str
    beside: frozenset[str] = frozenset()  # suffixes of annotation files among the given files

    @property
    def place(self) -> Path:
        return self.folder / self.path

    def rows(self, reading: Reading, most: int = sample.ROWS) -> list[Any]:
        """Read the first rows and rejects with a format; return none if it can't read the file."""
        try:
            options = reader(reading.format).Options.model_validate(reading.options)
            return list(sample.rows(reading.format, options, self.folder, self.path, self.encoding, most))
        except (UserError, ValidationError, OSError):
            return []

    def fits(self, reading: Reading) -> bool:
        """Tell whether a format reads nearly all of the first rows."""
        found = self.rows(reading, 200)
        kept = sum(isinstance(row, RawRow) for row in found)
        return kept > 0 and kept >= FITS * len(found)


def readings(file: File) -> list[Reading]:
    """Return the possible readings of a file, likeliest first. Each text format has been tested with its reader.

    Raises:
        UserError: the file is empty.
    """
    if not file.place.stat().st_size:
        raise UserError(f"{file.place}: the file is empty; leave it out")
    found = [*_binary(file)]
    if not found and not packed(file.place):
        text = sample.head(file.place, file.encoding, LOOK)
        for sniffers in (_MARKED, _LINES):  # a file that fits a marked format is not tested as a table
            found = [one for sniff in sniffers for one in sniff(file, text) if file.fits(one)]
            if found:
                break
    return sorted(found, key=lambda one: -one.score)


def _binary(file: File) -> Iterator[Reading]:
    with file.place.open("rb") as opened:
        start = opened.read(8)
    suffix = PurePosixPath(file.path).suffix
    if start[:4] == b"PAR1":
        yield from _columnar(file, "parquet", "the file begins with PAR1")
    elif start[:6] == b"ARROW1" or (start[:4] == b"\xff\xff\xff\xff" and suffix == ".arrow"):
        yield from _columnar(file, "arrow", "the file begins like an Arrow file")


def packed(path: Path) -> str | None:
    """Tell how to get data from an archive, or from an Office or PDF document; None if the file is neither."""
    with path.open("rb") as opened:
        start = opened.read(8)
    kind = next((kind for sign, kind in _PACKED.items() if start.startswith(sign)), None)
    if kind == "zip" and path.suffix in (".xlsx", ".xlsm", ".ods"):
        return "a workbook; save each sheet as CSV in UTF-8, and draft from that"
    if kind in ("PDF", "Office") or (kind == "zip" and path.suffix in (".docx", ".odt", ".pptx")):
        return f"a document of {path.suffix or kind}; save its text or tables as files of text"
    return f"packed with {kind}; unpack it, and draft from the files in it" if kind else None


def _columnar(file: File, form: str, why: str) -> Iterator[Reading]:
    named = Reading(form, {"class_names": True}, 1.0, f"{why}; its features name the classes of numbers")
    yield named if file.rows(named, 1) else Reading(form, {}, 1.0, why)


def _standoff(file: File, text: str) -> Iterator[Reading]:
    """Detect brat: annotation files with the same name as the text."""
    stem = file.place.with_suffix("")
    for endings in ([".ann"], [".a1", ".a2"], [".a1"]):
        named = not file.beside or file.beside >= {*endings}
        if file.place.suffix in (".txt", "") and named and all(stem.with_suffix(e).exists() for e in endings):
            options = {} if endings == [".ann"] else {"annotations": endings}
            yield Reading("brat", options, 1.0, f"{' and '.join(endings)} files have the names of the texts")
            return


def _json(file: File, text: str) -> Iterator[Reading]:
    lines = [line for line in text.split("\n") if line.strip()]
    first = lines[:50]
    objects = sum(map(_is_object, first))
    if objects and objects >= FITS * len(first) and (len(lines) > 1 or _one_line_row(text)):
        some = f"{objects} of the first {len(first)} lines are JSON objects"
        yield Reading("jsonl", {}, 1.0, "each line is a JSON object" if objects == len(first) else some)
        return
    if text.lstrip()[:1] not in ("{", "["):
        return
    for options in ({}, {"control_characters": True}):
        whole = Reading("json", {"rows": ["."], "item": "item", **options}, 1.0, "")
        [row, *_] = file.rows(whole, 1) or [None]
        if isinstance(row, RawRow):
            content = row.content["item"] if list(row.content) == ["item"] else row.content
            yield from _in_json(content, options)
            return
    for options in ({}, {"control_characters": True}):
        if file.fits(stream := Reading("json_stream", options, 0.9, "the file is a sequence of JSON values")):
            yield stream
            return


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _one_line_row(line: str) -> bool:
    """Tell whether the only line of a file is a row, not an object with a list of rows, or with rows by key."""
    content = json.loads(line)
    several = is_open(content) or are_columns(content) or are_texts_by_label(content) or _has_rows(content)
    return not (_is_squad(content) or several)


def _has_rows(content: dict[str, Any]) -> bool:
    """Tell whether an object, or one within it, has a list that may have the rows."""
    return any(
        _has_rows(item)
        if isinstance(item, dict)
        else isinstance(item, list) and len(item) > 1 and isinstance(item[0], dict | list)
        for item in content.values()
    )


def _is_squad(content: Any) -> bool:
    match content:
        case {"data": [{"paragraphs": [{"qas": _, "context": str()}, *_]}, *_]}:
            return True
    return False


def _in_json(content: Any, options: dict[str, Any]) -> Iterator[Reading]:
    if _is_squad(content):
        yield Reading("squad", options, 1.0, "'data', 'paragraphs' and 'qas' are nested as in SQuAD files")
    for route in routes(content):
        yield Reading("json", {**route.options, **options}, route.score, route.why, route.parts)


def _xml(file: File, text: str) -> Iterator[Reading]:
    if not re.match(r"\s*<(\?xml|!DOCTYPE|!--|[A-Za-z])", text):
        return
    if "<clue>" in text and "<term " in text:
        yield Reading("genia_xml", {}, 1.0, "terms and the clues of events are marked as in GENIA's XML")
    [row, *_] = file.rows(Reading("xml", {"rows": ["."], "item": "item"}, 1.0, ""), 1) or [None]
    if isinstance(row, RawRow):
        for route in routes(row.content):
            yield Reading("xml", route.options, 0.95 * route.score, f"the file is XML; {route.why}")


def _own_signs(file: File, text: str) -> Iterator[Reading]:
    """Detect formats by a characteristic line."""
    if "#begin document" in text[:10_000]:
        yield Reading("conll2012", {}, 1.0, "documents are between '#begin document' and '#end document'")
    if re.search(r"####\s*\[\(\[", text):
        yield Reading("aste", {}, 1.0, "'####' separates a sentence and its triplets")
    if re.search(r'^\d+\t".*<e1>.*</e1>.*"', text, re.MULTILINE):
        yield Reading("marked_relations", {}, 1.0, "'<e1>' and '<e2>' mark two mentions of each sentence")
    if re.search(r"^\d+,\d+ \S+(\|\d+,\d+ \S+)*$", text, re.MULTILINE):
        yield Reading("pipe_spans", {}, 0.95, "the lines after each sentence have its spans, such as '0,2 PER'")


def _columns(file: File, text: str) -> Iterator[Reading]:
    yield from (Reading("conll", *one) for one in conll(text))


def _tables(file: File, text: str) -> Iterator[Reading]:
    yield from (Reading("table", *one) for one in tables(sample.ends(file.place, file.encoding, 8 * LOOK)))


def _blocks(file: File, text: str) -> Iterator[Reading]:
    """Detect blocks: paragraphs with the same number of lines."""
    blocks = [block.split("\n") for block in re.split(r"\n\s*\n", text.strip("\r\n").replace("\r\n", "\n"))][:-1]
    width = len(blocks[0]) if blocks else 0
    if len(blocks) < 5 or not 2 <= width <= 12 or any(len(block) != width for block in blocks):
        return
    lines = list(zip(*blocks, strict=True))
    starts = [_mark(values) for values in lines]
    columns = [  # lines with a mark, such as "A. ", are named after it
        mark.strip("(.): ").lower() if mark else f"line{number}" for number, mark in enumerate(starts, 1)
    ]
    if len(set(columns)) < width:
        columns = [f"line{number}" for number in range(1, width + 1)]
    marks = {column: mark for column, mark in zip(columns, starts, strict=True) if mark}
    options = {"columns": columns, **({"marks": marks} if marks else {})}
    yield Reading("blocks", options, 0.85, f"blank lines separate blocks of {width} lines each")


def _mark(values: tuple[str, ...]) -> str | None:
    found = re.match(r"\(?[A-Za-z0-9]{1,2}[.):]\s?", values[0])
    marked = found and sum(value.startswith(found[0]) for value in values)
    return found[0] if found and marked and marked >= 0.95 * len(values) else None


def _plain(file: File, text: str) -> Iterator[Reading]:
    lines = text.split("\n")
    blank = sum(not line.strip() for line in lines)
    if blank * 8 > len(lines):
        yield Reading("text", {"record": "paragraph", "unwrap": True}, 0.25, "blank lines separate paragraphs")
    yield Reading("text", {"record": "line"}, 0.2, "no format was recognised; each line is a record")
    yield Reading("text", {}, 0.15, "no format was recognised; each file is a record")


Sniffers = list[Callable[[File, str], Iterator[Reading]]]
_MARKED: Sniffers = [_standoff, _json, _xml, _own_signs]
_LINES: Sniffers = [_columns, _tables, _blocks, _plain]
