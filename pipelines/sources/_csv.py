"""CSV whose fields may be quoted and then hold line ends: its records, and where one of them ends."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

LONGEST = 4 << 20  # bytes that a record goes on for at most, beyond the line in which a file is to be cut


class Stray(NamedTuple):
    """Why no record begins with a line, and how many more were read to see that."""

    reason: str
    lines: int


def records(lines: Iterable[str], separator: str) -> Iterator[tuple[list[str], list[str] | Stray]]:
    """The lines of each record, and its fields (none of a blank line); of what is no record the first line alone.

    A stray quote would take all that follows with it, so reading goes on at the next line. What such a quote was
    read over, is read again line by line: a quote that is opened there comes to the same end. So no line is read
    more than twice.
    """
    csv.field_size_limit(sys.maxsize)  # the limit guards no memory: the line is there already
    source, again, taken = iter(lines), list[str](), list[str]()

    def following() -> Iterator[str]:
        while (line := again.pop() if again else next(source, None)) is not None:
            taken.append(line)
            yield line

    while True:
        try:
            for fields in csv.reader(following(), delimiter=separator, strict=True):
                yield taken.copy(), fields
                taken.clear()
            return
        except csv.Error as error:
            stray, (first, *over) = str(error), taken
            taken.clear()
        yield [first], Stray(stray, len(over))
        for line in over[:-1]:
            try:
                yield [line], next(csv.reader([line], delimiter=separator, strict=True), [])
            except csv.Error as error:
                yield [line], Stray(str(error), 0)
        again += over[-1:]


def rest_of_record(file: BinaryIO, data: bytes, separator: str) -> bytes:
    """What `data`, whole lines of which the first begins a record, lacks of its last record; `file` is read from
    there on. Nothing, where a quote is stray: where nothing closes it for long."""
    if data.count(b'"') % 2 == 0:  # all are closed, unless stray ones make up for one that is not
        return b""
    start = file.tell()

    def lines() -> Iterator[str]:
        yield from _lines(data)
        left = LONGEST
        while line := file.readline(left):
            left -= len(line)
            if left == 0:  # the line may go on
                return
            yield from _lines(line)

    end = 0
    for of_record, _ in records(lines(), separator):
        end += sum(map(len, of_record))
        if end >= len(data):
            break
    file.seek(start)
    return file.read(end - len(data))


def _lines(data: bytes) -> Iterator[str]:
    """The lines of bytes as characters, one each: of what parts records no byte is that of another character."""
    return io.StringIO(data.decode("latin-1"), newline="")
