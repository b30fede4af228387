"""Split lines into runs that are separated by blank lines."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.sources import Slice
from pipelines.sources.parsing.text import lines
from ubert.schema.record import Reject

Lines = list[str | Reject]


def is_blank(line: str | Reject) -> bool:
    """Return whether a line is decoded and contains only white space."""
    return isinstance(line, str) and (not line or line.isspace())


def paragraphs(piece: Slice) -> Iterator[tuple[int, Lines]]:
    """Yield the runs of non-blank lines, each with the number of its first line."""
    run: Lines = []
    for number, line in enumerate(lines(piece), piece.line):
        if not is_blank(line):
            run.append(line)
        elif run:
            yield number - len(run), run
            run = []
    if run:
        yield number + 1 - len(run), run


def bad_line(piece: Slice, first: int, run: Lines) -> Reject | None:
    """Return a reject for a whole run if one of its lines could not be decoded."""
    bad = next((line for line in run if isinstance(line, Reject)), None)
    return bad and Reject(piece.path, first, bad.reason, f"line {bad.line}: {bad.detail}", raw(run))


def raw(run: Lines) -> str:
    """Return lines as they are in the file."""
    return "\n".join(line if isinstance(line, str) else line.raw for line in run)
