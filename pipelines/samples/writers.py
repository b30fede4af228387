"""Write records to files in five formats.

A writer takes as many records as it needs from an endless stream. It yields (file, number of records) for each
file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from pipelines.samples.deals import Document
from ubert.schema.record import Split

Written: TypeAlias = Iterator[tuple[str, int]]
Format: TypeAlias = Callable[[Iterator[Any], int, Path, Split], Written]  # records, their number, folder, split

LINES = 100_000  # records of one file of lines
QUESTIONS = 20_000  # records of one file of questions, which must be small enough to parse at once
DOCUMENTS = 1_000  # records of one folder of documents


def jsonl(records: Iterator[dict[str, Any]], count: int, folder: Path, split: Split) -> Written:
    """Write one JSON object on each line."""
    for number, size in _files(count, LINES):
        lines = (f"{json.dumps(record, ensure_ascii=False)}\n" for record in islice(records, size))
        yield _write(folder / f"{split}-{number:03d}.jsonl", lines), size


def comma_separated(columns: Sequence[str]) -> Format:
    """Return a writer of a header and rows, with quotes for cells that need them."""

    def write(records: Iterator[Sequence[str]], count: int, folder: Path, split: Split) -> Written:
        for number, size in _files(count, LINES):
            path = folder / f"{split}-{number:03d}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(columns)
                rows.writerows(islice(records, size))
            yield path.name, size

    return write


def tab_separated(columns: Sequence[str]) -> Format:
    """Return a writer of a header and rows without quoting. No cell contains a tab."""

    def write(records: Iterator[Sequence[str]], count: int, folder: Path, split: Split) -> Written:
        for number, size in _files(count, LINES):
            rows = ("\t".join(row) + "\n" for row in chain([columns], islice(records, size)))
            yield _write(folder / f"{split}-{number:03d}.tsv", rows), size

    return write


def conll(records: Iterator[list[tuple[str, str]]], count: int, folder: Path, split: Split) -> Written:
    """Write a token, a tab and its tag on each line, and a blank line after each text."""
    for number, size in _files(count, LINES):
        texts = ("".join(f"{token}\t{tag}\n" for token, tag in text) + "\n" for text in islice(records, size))
        yield _write(folder / f"{split}-{number:03d}.conll", texts), size


def brat(records: Iterator[Document], count: int, folder: Path, split: Split) -> Written:
    """Write a text and its annotations to a file each, with a thousand documents in a folder."""
    for number, size in _files(count, DOCUMENTS):
        inner = folder / split / f"{number:03d}"
        inner.mkdir(parents=True)
        for i, document in enumerate(islice(records, size), start=number * DOCUMENTS):
            _write(inner / f"{i:06d}.txt", [document.text])
            _write(inner / f"{i:06d}.ann", [document.annotations])
        yield f"{split}/{number:03d}", size


def squad(records: Iterator[dict[str, Any]], count: int, folder: Path, split: Split) -> Written:
    """Write SQuAD 2.0. Records are questions, but the stream has paragraphs; the last is cut to fit `count`."""
    for number, size in _files(count, QUESTIONS):
        yield _write(folder / f"{split}-{number:03d}.json", _articles(records, size)), size


def _articles(records: Iterator[dict[str, Any]], size: int) -> Iterator[str]:
    opening = '{"version": "v2.0", "data": [\n'
    while size:
        paragraph = next(records)
        asked = paragraph["qas"][:size]
        size -= len(asked)
        article = {"title": paragraph["title"], "paragraphs": [{"context": paragraph["context"], "qas": asked}]}
        yield f"{opening}{json.dumps(article, ensure_ascii=False)}"
        opening = ",\n"
    yield "\n]}\n"


def _files(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (number, size) of the files that `count` records fill."""
    for number, start in enumerate(range(0, count, most)):
        yield number, min(most, count - start)


def _write(path: Path, texts: Iterable[str]) -> str:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(texts)
    return path.name
