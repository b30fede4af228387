"""Runs of lines with blank lines between."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.sources import Slice
from pipelines.sources._text import lines
from ubert.schema.record import Reject

Lines = list[str | Reject]


def is_blank(line: str | Reject) -> bool:
    """Whether a line is there and holds nothing but white space."""
    return isinstance(line, str) and (not line or line.isspace())


def paragraphs(piece: Slice) -> Iterator[tuple[int, Lines]]:
    """The runs of lines that are not blank, each with the number of its first line."""
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
    """The reject that a line which could not be decoded makes of the lines around it, if there is one."""
    bad = next((line for line in run if isinstance(line, Reject)), None)
    return bad and Reject(piece.path, first, bad.reason, f"line {bad.line}: {bad.detail}", raw(run))


def raw(run: Lines) -> str:
    """Lines as they are in the file."""
    return "\n".join(line if isinstance(line, str) else line.raw for line in run)
