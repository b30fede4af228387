"""Read a user's texts lazily: a file of JSON lines, CSV or Parquet, or plain lines."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from ubert.inference.candidates import check_string, short
from ubert.schema.errors import UserError

ROWS = 512  # rows of Parquet that are read at a time
SEPARATORS = {".csv": ",", ".tsv": "\t"}
BYTE_ORDER_MARK = "\ufeff"
ANSWERS = "predictions"  # the field that is added to a row


class Input(NamedTuple):
    """A text, the second text if there is a pair, and all fields of its row, which go into the output.

    Attributes:
        where: the place of the row, for messages.
        categories: the row's own ones, once `pipelines.models.own_categories` has read them.
    """

    text: str
    pair: str | None
    row: Mapping[str, Any]
    where: str = ""
    categories: Sequence[str] | None = None


class Inputs(NamedTuple):
    """The texts of a file, to be read once. `done` returns how much of `size` has been read, in rows or bytes.
    Both are 0 for a pipe."""

    texts: Iterator[Input]
    size: int
    done: Callable[[], int]


def read_inputs(path: Path) -> Inputs:
    """Open a file of texts: CSV (.csv, .tsv) with a header, Parquet (.parquet), or JSON lines.

    Each row has a non-empty field `text`, and may have a string `pair`. Other fields are not checked.

    Raises:
        UserError: there is no such file, it can't be read, or (while the texts are read) a row is wrong.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return _parquet(path)
        binary = path.open("rb")  # the generator that reads it closes it
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give JSON lines, CSV or Parquet") from None
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); give JSON lines, CSV or Parquet") from None
    file = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="" if kind in SEPARATORS else None)
    rows = _csv_rows(path, file, SEPARATORS[kind]) if kind in SEPARATORS else _json_rows(path, file)
    size = path.stat().st_size
    seekable = binary.seekable()  # a pipe has no position
    return Inputs(_utf8(path, file, rows), size, lambda: binary.tell() if seekable and not binary.closed else size)


def plain_lines(lines: Iterable[str]) -> Iterator[Input]:
    """Yield a text for each line, as on the standard input. A byte-order mark is not part of the first line.

    Raises:
        UserError: a line is empty, or not UTF-8.
    """
    try:
        for number, line in enumerate(lines, 1):
            where = f"line {number} of the standard input"
            text = line.rstrip("\r\n").removeprefix(BYTE_ORDER_MARK if number == 1 else "")
            if not text.strip():
                raise UserError(f"{where} is empty; leave it out")
            check_string(where, text)  # without a UTF-8 locale, Python reads other bytes as half surrogate pairs
            yield Input(text, None, {"text": text}, where)
    except UnicodeDecodeError as error:
        raise UserError(f"the standard input: not UTF-8 ({error.reason}); convert it to UTF-8") from None


def to_input(where: str, row: object) -> Input:
    """Convert one row to an `Input`.

    Raises:
        UserError: `text` is missing or empty, `text` or `pair` is not a string, or the row has a field
            `predictions`.
    """
    if not isinstance(row, dict) or not isinstance(text := row.get("text"), str) or not text.strip():
        raise UserError(
            f'{where}: {short(str(row))}; expected {{"text": "..."}} or {{"text": "...", "pair": "..."}}, with a '
            "text that is not empty; other fields are kept"
        )
    if ANSWERS in row:
        raise UserError(f"{where}: has a field {ANSWERS!r} already; rename it")
    check_string(f"{where}: text", text)
    if (pair := row.get("pair")) is not None:
        check_string(f"{where}: pair", pair)
    return Input(text, pair, row, where)


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[Input]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not valid JSON: {error}; correct the line") from None
        yield to_input(f"{path}:{number}", row)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _csv_rows(path: Path, lines: Iterable[str], separator: str) -> Iterator[Input]:
    csv.field_size_limit(sys.maxsize)  # texts may be long
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        header = next(reader, [])
        if "text" not in header or len(set(header)) < len(header):
            raise UserError(
                f"{path}: its first line is {short(separator.join(header))}; expected the names of its columns, "
                'each once, with "text" among them'
            )
        for fields in filter(None, reader):  # skips blank lines
            where = f"{path}:{reader.line_num}"
            if len(fields) != len(header):
                raise UserError(f"{where}: {len(fields)} fields, expected {len(header)} as in the first line")
            yield to_input(where, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not valid CSV: {error}; correct the row") from None


def _parquet(path: Path) -> Inputs:
    file = pq.ParquetFile(path)
    read = 0
    name, times = max(Counter(file.schema_arrow.names).items(), key=itemgetter(1), default=("", 0))
    if times > 1:
        raise UserError(f"{path}: has {times} columns named {short(name)}; expected each name once")

    def texts() -> Iterator[Input]:
        nonlocal read
        try:
            for batch in file.iter_batches(batch_size=ROWS):
                for row in batch.to_pylist():
                    read += 1
                    yield to_input(f"{path}, row {read}", {name: _as_json(value) for name, value in row.items()})
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{path}: damaged ({str(error).splitlines()[0]}); write it again") from None
        except (ValueError, OverflowError) as error:  # such as a date after the year 9999
            where = f"{path}: a value after row {read}"
            raise UserError(f"{where} cannot be read ({error}); write its column as strings") from None

    return Inputs(texts(), file.metadata.num_rows, lambda: read)


def _as_json(value: Any) -> Any:
    """Convert a value of Arrow to JSON. Dates and decimals become strings, and non-finite numbers null."""
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _as_json(inner) for name, inner in value.items()}
        case list() | tuple():  # a map has tuples of a key and a value
            return [_as_json(inner) for inner in value]
        case bytes():
            return value.decode("utf-8", "replace")
    return str(value)


def _utf8(path: Path, file: TextIO, texts: Iterator[Input]) -> Iterator[Input]:
    try:
        with file:
            yield from texts
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}); convert it to UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give JSON lines, CSV or Parquet") from None
