"""Documents of the CoNLL-2012 shared task: one token per line, with coreference as brackets in the last column.

    #begin document (name); part 0
    name  0  0  Anna  ...  (0)
    name  0  1  saw   ...  -
    name  0  2  her   ...  (1|(0)
    name  0  3  dog   ...  1)
    #end document

The fourth column is the word. A row is a document:

    {"document": "(name); part 0", "sentences": [[word]], "clusters": {"0": [[start, end]]}}

The mentions of a cluster are ranges of token numbers in the document, with an exclusive end.
(https://conll.cemantix.org/2012/data.html)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.paragraphs import raw
from pipelines.sources.parsing.text import lines
from ubert.schema.record import Reject

_WORD, _MIN_FIELDS = 3, 5
_BRACKETS = re.compile(r"(?:\(\d+\)|\(\d+|\d+\))(?:\|(?:\(\d+\)|\(\d+|\d+\)))*")
_BRACKET = re.compile(r"(\(?)(\d+)(\)?)")


class Options(FormatOptions):
    """CoNLL-2012 needs no options."""


EXAMPLE = Example(
    {
        "a.conll": "#begin document (a); part 0\na 0 0 Ada NNP (0)\na 0 1 saw VBD -\na 0 2 herself PRP (0)\n"
        "#end document\n"
    }
)


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each document. Lines outside of documents are a reject.

    A file is never cut, because documents contain blank lines.
    """
    document: list[tuple[int, str | Reject]] = []
    for number, line in enumerate(lines(piece), piece.line):
        begins = isinstance(line, str) and line.startswith("#begin document")
        if begins and document:  # the previous document has no end
            yield _document(piece, document)
            document = []
        if document or not isinstance(line, str) or line.strip():
            document.append((number, line))
        if isinstance(line, str) and line.startswith("#end document"):
            yield _document(piece, document)
            document = []
    if document:
        yield _document(piece, document)


class _BadDocumentError(Exception):
    """The reason and detail of a document that cannot be read."""


def _document(piece: Slice, document: list[tuple[int, str | Reject]]) -> RawRow | Reject:
    first = document[0][0]
    try:
        return RawRow(first, f"{piece.path}:{first}", _content(document))
    except _BadDocumentError as error:
        reason, detail = error.args
        return Reject(piece.path, first, reason, detail, raw([line for _, line in document]))


def _content(document: list[tuple[int, str | Reject]]) -> dict[str, Any]:
    header, footer = document[0][1], document[-1][1]
    framed = isinstance(header, str) and header.startswith("#begin document")
    if not (framed and isinstance(footer, str) and footer.startswith("#end document")):
        raise _BadDocumentError("not a document", "expected #begin document, lines of tokens, and #end document")
    sentences: list[list[str]] = [[]]
    clusters: dict[str, list[list[int]]] = {}
    opened: dict[str, list[int]] = {}
    at = 0
    for number, line in document[1:-1]:
        if isinstance(line, Reject):
            raise _BadDocumentError(line.reason, f"line {line.line}: {line.detail}")
        if not line.strip():
            sentences.append([])
            continue
        fields = line.split("\t") if "\t" in line else line.split()
        if len(fields) < _MIN_FIELDS:
            detail = f"line {number}: expected {_MIN_FIELDS} columns or more, got {len(fields)}"
            raise _BadDocumentError("wrong column count", detail)
        _note(fields[-1].strip(), at, number, opened, clusters)
        sentences[-1].append(fields[_WORD])
        at += 1
    if any(opened.values()):
        left = next(name for name, starts in opened.items() if starts)
        raise _BadDocumentError("mention without an end", f"a mention of cluster {left} is not closed")
    name = str(header).removeprefix("#begin document").strip()
    return {"document": name, "sentences": [words for words in sentences if words], "clusters": clusters}


def _note(
    marks: str, at: int, number: int, opened: dict[str, list[int]], clusters: dict[str, list[list[int]]]
) -> None:
    """Open and close mentions by the brackets of the token `at`."""
    if marks in ("", "-", "_"):
        return
    if not _BRACKETS.fullmatch(marks):
        raise _BadDocumentError("bad brackets", f"line {number}: {marks!r} is not like (0), (0|(1) or 0)|1)")
    for begins, cluster, ends in _BRACKET.findall(marks):
        if begins:
            opened.setdefault(cluster, []).append(at)
        if ends:
            if not opened.get(cluster):
                raise _BadDocumentError("mention without a start", f"line {number}: {marks!r} closes no mention")
            clusters.setdefault(cluster, []).append([opened[cluster].pop(), at + 1])
