"""Decode bytes to text and lines. Encodings, line ends and byte order marks are handled only here."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pipelines.mapping.refused import as_json
from pipelines.sources import Slice
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
LONGEST_RAW = 1 << 20  # limit of the text in the reject of an unreadable file


def lines(piece: Slice) -> Iterator[str | Reject]:
    """Yield the lines of a slice without LF or CRLF. A line that cannot be decoded is replaced by a reject."""
    start, line = piece.start, piece.line
    for block in piece.blocks():
        data = block.removeprefix(codecs.BOM_UTF8) if start == 0 else block
        try:
            found: Sequence[str | Reject] = data.decode(piece.encoding).replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError:
            found = _line_by_line(piece, data, start + len(block) - len(data), line)
        yield from found if found[-1] else found[:-1]  # no empty line after the last line end
        start, line = start + len(block), line + block.count(b"\n")


def text(piece: Slice) -> str:
    """Decode the whole text of a slice, with its line ends.

    Raises:
        UserError: a byte is not valid in the encoding; the message has its place in the file and its line.
    """
    whole = piece.read_bytes()
    data = whole.removeprefix(codecs.BOM_UTF8) if piece.start == 0 else whole
    try:
        return data.decode(piece.encoding)
    except UnicodeDecodeError as error:
        line = piece.line + data.count(b"\n", 0, error.start)
        byte = piece.start + len(whole) - len(data) + error.start
        raise UserError(f"{piece.place}: line {line}: {_explain(error, byte, piece.encoding)}") from None


def whole_text(piece: Slice) -> str | Reject:
    """Decode the whole text of a slice, or return a reject if it has another encoding."""
    try:
        return text(piece)
    except UserError as error:
        raw = piece.read_bytes()[:LONGEST_RAW].decode(piece.encoding, "backslashreplace")
        return Reject(piece.path, 1, "wrong encoding", str(error), raw)


def json_value(piece: Slice, strict: bool = True) -> Any | Reject:
    """Parse a JSON file, or return a reject if it has another encoding or is not JSON."""
    whole = whole_text(piece)
    if isinstance(whole, Reject):
        return whole
    try:
        return json.loads(whole, strict=strict, object_pairs_hook=json_object)
    except (ValueError, RecursionError) as error:
        return Reject(piece.path, 1, "not JSON", json_problem(error), whole[:LONGEST_RAW])


class Repeated(dict[str, Any]):
    """A JSON object with a repeated key. It has the last value of each key, and all of them in `pairs`."""

    made: ClassVar = False  # whether this process has read any; else rows need not be searched for them

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        Repeated.made = True

    def keys_twice(self) -> list[str]:
        """Return the keys that are repeated."""
        return [key for key, count in Counter(key for key, _ in self.pairs).items() if count > 1]


def all_as_json(value: Any) -> str:
    """Encode a value as JSON, with all values of repeated keys, which `dict` would not keep. Below a depth that is
    too large, only the last ones are kept."""
    try:
        if isinstance(value, dict):
            pairs = value.pairs if isinstance(value, Repeated) else value.items()
            return f"{{{', '.join([f'{as_json(key)}: {all_as_json(item)}' for key, item in pairs])}}}"
        return f"[{', '.join(map(all_as_json, value))}]" if isinstance(value, list) else as_json(value)
    except RecursionError:
        return as_json(value)


def repeated(row: Any) -> str | None:
    """Describe which keys of a row, or of an object within it, are repeated. Return None if there are none."""
    nodes = [row] if Repeated.made else []
    for node in nodes:
        if isinstance(node, Repeated):
            keys = ", ".join(map(repr, node.keys_twice()))
            return f"the row has {keys} more than once, and one value would be lost; rename the others"
        if isinstance(node, dict | list):
            below = node.values() if isinstance(node, dict) else node
            nodes += [value for value in below if isinstance(value, dict | list)]
    return None


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of keys and values, which keeps repeated keys."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeated(pairs)


def json_problem(error: ValueError | RecursionError) -> str:
    """Describe where and why text is not JSON, or that it is nested too deeply."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    return "the values are nested too deeply to be read" if isinstance(error, RecursionError) else str(error)


def _line_by_line(piece: Slice, data: bytes, start: int, first: int) -> list[str | Reject]:
    """Decode the lines of `data`, which begins at byte `start` and line `first` of the file."""
    found: list[str | Reject] = []
    last = first + data.count(b"\n")  # has no line end
    for number, line in enumerate(data.split(b"\n"), first):
        try:
            read = line.decode(piece.encoding)
            found.append(read if number == last else read.removesuffix("\r"))
        except UnicodeDecodeError as error:
            detail = _explain(error, start + error.start, piece.encoding)
            raw = line.decode(piece.encoding, "backslashreplace")
            found.append(Reject(piece.path, number, "wrong encoding", detail, raw))
        start += len(line) + 1
    return found


def _explain(error: UnicodeDecodeError, byte: int, encoding: str) -> str:
    value = error.object[error.start]
    if _SURROGATE.match(error.object, error.start) and encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        return (
            f"bytes {byte} to {byte + 2} ({error.object[error.start : error.start + 3].hex(' ')}) are half of a "
            "surrogate pair, which UTF-8 does not have (CESU-8 has); write the file again as UTF-8"
        )
    return f"byte {byte} (0x{value:02x}) is not {encoding}; name the file's encoding with `encoding:` in its spec"
