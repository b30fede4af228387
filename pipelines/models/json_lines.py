"""Write rows as JSON lines, also to a file whose writing can be interrupted and resumed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pipelines.report.render import json_line
from ubert.schema.checks import is_utf8
from ubert.schema.errors import UserError

Row = Mapping[str, Any]
Write = Callable[[Iterable[Row]], None]
SUFFIXES = (".jsonl", ".ndjson", ".json")


def utf8_line(row: Row) -> str:
    """Format a row as one line of JSON. Only lone surrogates are escaped."""
    line = json_line(row)
    return (line if is_utf8(line) else json.dumps(json.loads(line))) + "\n"


@contextmanager
def resumable(path: Path, inputs: Mapping[str, Any], *, every: int) -> Iterator[tuple[int, Write]]:
    """Open a file of JSON lines that gets its name when all lines are written.

    Until then the lines are in `path` + ".part", beside a file that records `inputs`. If they exist, writing
    resumes after the last complete chunk.

    Args:
        inputs: everything that the lines depend on.
        every: rows of a chunk. An incomplete chunk at the end of the part is cut off.

    Yields:
        The number of existing lines, and a function that writes more.

    Raises:
        UserError: the file exists or can't be written, or its part has other `inputs` or is being written.
    """
    part, note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: expected a name that ends in {SUFFIXES[0]}, because predictions are JSON lines")
    if path.exists():
        raise UserError(f"{path} exists already; delete it, or name another file")
    try:
        file = part.open("a+b")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}; choose another file") from None
    with file:
        with _naming(path, part):
            _lock(file, part)
            _check_note(note, part, json.dumps(inputs, sort_keys=True))
            lines = _cut(file, every)

        def write(rows: Iterable[Row]) -> None:
            text = "".join(map(utf8_line, rows))
            with _naming(path, part):
                file.write(text.encode())
                file.flush()

        yield lines, write  # an OSError of the caller is its own: it may be about the input, or Ray
        with _naming(path, part):
            os.fsync(file.fileno())
            part.rename(path)
            note.unlink()


@contextmanager
def _naming(path: Path, part: Path) -> Iterator[None]:
    """Raise UserError, with the file's name, where the system can't write it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: cannot be written: {reason}; finished lines are kept in {part.name}") from None


def _lock(file: IO[bytes], part: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{part} is being written by another command; wait for it, or name another file") from None


def _check_note(note: Path, part: Path, inputs: str) -> None:
    """Write `inputs`, or compare it with what an earlier run wrote."""
    if part.stat().st_size and note.exists():
        there, wanted = json.loads(note.read_text(encoding="utf-8")), json.loads(inputs)
        different = [name for name in {**there, **wanted} if there.get(name) != wanted.get(name)]
        if different:
            raise UserError(
                f"{part} was begun with another {' and another '.join(different)}; give the same again, or delete "
                "it to start again"
            )
    elif part.stat().st_size:
        raise UserError(f"{part} exists, but {note.name} with its inputs is missing; delete it to start again")
    else:
        note.write_text(inputs, encoding="utf-8")


def _cut(file: IO[bytes], every: int) -> int:
    """Cut off an incomplete chunk of `every` lines at the end. Return the number of remaining lines."""
    file.seek(0)
    lines = kept = at = end = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        lines, at = lines + 1, at + len(line)
        if lines % every == 0:
            kept, end = lines, at
    file.truncate(end)
    return kept
