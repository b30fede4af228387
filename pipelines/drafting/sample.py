"""Bounded samples of source files of any size, read by the formats' own readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.ingest.source_files import source_files
from pipelines.mapping.conditions import row_filter
from pipelines.sources import END, RawRow, Slice, reader
from pipelines.specs import file_options
from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.specs.dataset import DatasetSpec, Files
from ubert.schema.yaml_file import Strict

MAX_BYTES = 4 << 20  # maximum bytes of a sample, if the file can be cut
WHOLE = 64 << 20  # maximum size of a file that must be read whole
ROWS = 400  # maximum rows to draft from
ALL = 200_000  # maximum rows to count labels in
_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]')


def head(path: Path, encoding: str, most: int = MAX_BYTES) -> str:
    """Return the beginning of a file, cut after a whole line unless it is one line."""
    with path.open("rb") as file:
        data = file.read(most)
        if len(data) == most and b"\n" in data:
            data = data[: data.rfind(b"\n") + 1]
    return data.decode(encoding, "replace").removeprefix("\ufeff")


def ends(path: Path, encoding: str, most: int) -> str:
    """Return the beginning of a file, and lines from its end, which may differ in form."""
    start, size = head(path, encoding, most), path.stat().st_size
    if size <= most:
        return start
    with path.open("rb") as file:
        file.seek(max(most, size - most // 4))
        rest = file.read(most)
    return start + rest[rest.find(b"\n") + 1 :].decode(encoding, "replace")


def rows(
    spec_format: str, options: Strict, folder: Path, path: str, encoding: str, most: int | None
) -> Iterator[RawRow | Reject]:
    """Read the first rows of a file with a format. With `most` None, read the whole file."""
    with TemporaryDirectory(prefix="ubert-draft-") as scratch:
        piece = _piece(spec_format, options, folder, path, encoding, Path(scratch), most is not None)
        yield from islice(reader(spec_format).read(piece, options), most)


def spec_rows(spec: DatasetSpec, folder: Path, most: int | None) -> Iterator[tuple[Files, str, RawRow | Reject]]:
    """Yield the first rows of each file of a spec, with their entry and path, but without the rows that the spec
    leaves out.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    wanted = row_filter(spec.map)
    for entry, paths in zip(spec.files, source_files(spec, folder), strict=True):
        for path in paths:
            for row in rows(spec.format, file_options(spec, entry), folder, path, entry.encoding, most):
                if isinstance(row, Reject) or wanted(row):
                    yield entry, path, row


def _piece(
    form: str, options: Strict, folder: Path, path: str, encoding: str, scratch: Path, bounded: bool
) -> Slice:
    whole = Slice(str(folder), path, 0, END, 1, encoding, "0" * 64)
    if not bounded or form in ("parquet", "arrow") or whole.place.stat().st_size <= MAX_BYTES:
        return whole
    if reader(form).split_at(options) is not None:
        return Slice(str(folder), path, 0, _cut(whole.place), 1, encoding, "0" * 64)
    if form in ("json", "json_stream", "squad"):
        _link(scratch, folder, [path, *reader(form).companions(folder, path, options)])
        (scratch / path).unlink()
        (scratch / path).write_text(closed_json(folder / path, encoding), encoding=encoding)
        return Slice(str(scratch), path, 0, END, 1, encoding, "0" * 64)
    # jsonl is read in blocks, up to the last row needed
    if form != "jsonl" and whole.place.stat().st_size > WHOLE:
        raise UserError(
            f"{whole.place}: format {form} is read whole, expected at most {WHOLE >> 20} MiB; give a smaller file"
        )
    return whole


def _link(scratch: Path, folder: Path, paths: list[str]) -> None:
    for path in paths:
        (scratch / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch / path).symlink_to(folder / path)


def _cut(path: Path) -> int:
    """Return the offset after the last line end in the sample."""
    with path.open("rb") as file:
        return file.read(MAX_BYTES).rfind(b"\n") + 1 or MAX_BYTES


@cache
def closed_json(path: Path, encoding: str) -> str:
    """Return the beginning of a JSON file, cut after an item of its outermost long list, and closed. A
    sequence of JSON values is cut after a value."""
    with path.open("rb") as file:
        text = file.read(MAX_BYTES).decode(encoding, "ignore").removeprefix("\ufeff")
    open_: list[str] = []
    commas: dict[int, tuple[int, int, str]] = {}  # by depth: count, last position and closing brackets
    ended = 0
    for match in _JSON.finditer(text):
        sign = match[0]
        if sign in "[{":
            open_.append("]" if sign == "[" else "}")
        elif sign in "]}" and open_:
            open_.pop()
            ended = ended if open_ else match.end()
        elif sign == "," and open_:
            count = commas.get(len(open_), (0, 0, ""))[0]
            commas[len(open_)] = (count + 1, match.start(), "".join(reversed(open_)))
    if ended and ended > len(text) // 2:
        return text[:ended]
    for most in (9, 0):
        for _, (count, at, closing) in sorted(commas.items()):
            if count > most:
                return text[:at] + closing
    raise UserError(f"{path}: its first value is longer than {MAX_BYTES >> 20} MiB; write its rows as JSON Lines")
