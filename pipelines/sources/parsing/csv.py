"""Read the records of CSV with quoted fields, which may contain line ends, and find where a record ends."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

MAX_RECORD_BYTES = 4 << 20  # limit of a record's bytes after the line in which a file is cut


class Stray(NamedTuple):
    """The reason why no record begins with a line, and the number of further lines that were read."""

    reason: str
    lines: int


def records(lines: Iterable[str], separator: str) -> Iterator[tuple[list[str], list[str] | Stray]]:
    """Yield the lines and the fields of each record. A blank line has no fields.

    A stray quote would swallow all following lines. So its line alone is yielded as `Stray`, and reading continues
    at the next line. The lines after the stray quote are read again one by one, because another quote that opens
    there would fail at the same place. So no line is read more than twice.
    """
    csv.field_size_limit(sys.maxsize)  # a limit would save no memory, because the line is read already
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
    """Read from `file` the rest of the last record of `data`. `data` has whole lines and begins with a record. The
    result is empty if a quote is stray, that is, not closed within `MAX_RECORD_BYTES` bytes."""
    if b'"' not in data:
        return b""
    start = file.tell()

    def lines() -> Iterator[str]:
        yield from _lines(data)
        left = MAX_RECORD_BYTES
        while line := file.readline(left):
            left -= len(line)
            if left == 0:  # the line may continue
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
    """Yield lines with one character for each byte. This is safe, as no byte of a quote, separator or line end is
    part of another character."""
    return io.StringIO(data.decode("latin-1"), newline="")
