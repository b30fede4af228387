"""Rows as JSON lines: their form, and a file of them that may be stopped at any time and gone on with."""

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
    """A row as one line. Characters are written as they are; only halves of surrogate pairs are escaped."""
    line = json_line(row)
    return (line if is_utf8(line) else json.dumps(json.loads(line))) + "\n"


@contextmanager
def resumable(path: Path, made_of: Mapping[str, Any], *, every: int) -> Iterator[tuple[int, Write]]:
    """A file of JSON lines that appears under its name when all of them are written.

    Until then they are in `path` + ".part", beside a file that says what they are made of. If that is there
    already, the same work goes on behind it.

    Args:
        made_of: what the lines depend on.
        every: rows that are made together. A number of lines that is no multiple of it is cut down to one.

    Yields:
        How many lines are there already, and what writes more.

    Raises:
        UserError: the file exists, its part is made of something else or is being written, or it can't be written.
    """
    part, note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    if path.suffix not in SUFFIXES:
        raise UserError(
            f"{path}: predictions are written as JSON lines; name the file with {SUFFIXES[0]} at its end"
        )
    if path.exists():
        raise UserError(f"{path} exists already; remove it, or name another file")
    try:
        with part.open("a+b") as file:
            _hold(file, part)
            _check_note(note, part, json.dumps(made_of, sort_keys=True))
            lines = _cut(file, every)

            def write(rows: Iterable[Row]) -> None:
                file.write("".join(map(utf8_line, rows)).encode())
                file.flush()

            yield lines, write
            os.fsync(file.fileno())
            part.rename(path)
            note.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: cannot be written: {reason}; what is written stays in {part.name}") from None


def _hold(file: IO[bytes], part: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{part} is being written by another command; wait for it, or name another file") from None


def _check_note(note: Path, part: Path, made_of: str) -> None:
    """Write what the lines are made of, or compare it with what is written."""
    if part.stat().st_size and note.exists():
        there, wanted = json.loads(note.read_text(encoding="utf-8")), json.loads(made_of)
        different = [name for name in {**there, **wanted} if there.get(name) != wanted.get(name)]
        if different:
            raise UserError(
                f"{part} was begun with another {' and another '.join(different)}; give the same again, or remove "
                "it to begin anew"
            )
    elif part.stat().st_size:
        raise UserError(f"{part} is there, but nothing says what it is made of; remove it to begin anew")
    else:
        note.write_text(made_of, encoding="utf-8")


def _cut(file: IO[bytes], every: int) -> int:
    """Cut off the last lines unless they are `every` whole ones; returns how many lines are left."""
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
