"""brat and BioNLP standoff: a text file, and its annotations in files beside it (.ann, or .a1 and .a2).

A row is {"text", "standoff"}; a standoff is

    spans:        [{id, label, fragments: [[start, end], ...], text}]      T
    relations:    [{id, label, head, tail}]                                R
    events:       [{id, label, trigger, arguments: [{role, target}]}]      E
    attributes:   [{id, label, target, value?}]                            A, M
    equivalences: [{label, targets}]                                       *
    notes:        [{id, label, target, text}]                              N, #

(https://brat.nlplab.org/standoff.html). Targets and triggers are ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.text import text
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

Standoff = dict[str, list[dict[str, Any]]]
Ending = Annotated[str, Field(pattern=r"^\.[A-Za-z0-9_-]+$")]


class Options(FormatOptions):
    """Files of a document."""

    annotations: list[Ending] = Field(default=[".ann"], min_length=1)
    """The extensions of annotation files, which replace that of the text file. The spec may name files with the
    first of these extensions instead of text files. A document without a text file is then rejected."""
    text: Ending = ".txt"
    """The extension of text files, if the spec names annotation files."""


EXAMPLE = Example(
    {
        "1.txt": "Ann Lee founded Acme.\n",
        "1.ann": "T1\tPerson 0 7\tAnn Lee\nT2\tOrg 16 20\tAcme\nR1\tFounded Arg1:T1 Arg2:T2\n",
    }
)


def companions(folder: Path, path: str, options: Options) -> list[str]:
    """Return the other files of the document that exist."""
    document, annotations = _files(path, options)
    return [file for file in (document, *annotations) if file != path and os.path.isfile(f"{folder}/{file}")]


def _files(path: str, options: Options) -> tuple[str, list[str]]:
    """Return the text file and the annotation files. `path` is the text file or the first annotation file."""
    dot = path.rfind(".", path.rfind("/") + 1)
    stem, ending = (path, "") if dot < 0 else (path[:dot], path[dot:])
    document = stem + options.text if ending == options.annotations[0] else path
    return document, [stem + ending for ending in options.annotations]


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield one row, the document."""
    standoff: Standoff = {
        kind: [] for kind in ("spans", "relations", "events", "attributes", "equivalences", "notes")
    }
    document = ""
    at, annotation_files = _files(piece.path, options)
    try:
        try:
            document = text(piece if at == piece.path else piece.whole(at))
        except (FileNotFoundError, IsADirectoryError):
            yield Reject(piece.path, 1, "no text file", f"{at} is missing", text(piece))
            return
        for beside in annotation_files:
            try:
                annotations = text(piece.whole(beside))
            except FileNotFoundError:
                yield Reject(piece.path, 1, "no annotation file", f"{beside} is missing", document)
                return
            _annotations(beside, annotations, standoff)
    except UserError as error:
        yield Reject(piece.path, 1, "wrong encoding", str(error), document)
    except _BadLineError as error:
        yield Reject(piece.path, 1, "bad annotation", str(error), document)
    else:
        ids = [mention["id"] for mention in standoff["spans"]]
        if len(set(ids)) < len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            yield Reject(piece.path, 1, "bad annotation", f"two mentions have the same id {twice}", document)
        else:
            yield RawRow(1, piece.path, {"text": document, "standoff": standoff})


class _BadLineError(Exception):
    """An annotation line that cannot be read, and the reason."""


def _annotations(path: str, content: str, standoff: Standoff) -> None:
    spans = standoff["spans"]
    for number, line in enumerate(content.removesuffix("\r").replace("\r\n", "\n").split("\n"), 1):
        if line[:1] == "T":  # most lines are contiguous mentions, so they are parsed here without a function call
            try:
                name, what, words = line.split("\t", 2)
                label, start, end = what.split(" ")
                spans.append({"id": name, "label": label, "fragments": [[int(start), int(end)]], "text": words})
                continue
            except ValueError:
                pass  # another kind of mention
        try:
            kind, parse = _LINES[line[0]]
            standoff[kind].append(parse(line.split("\t")))
        except (KeyError, ValueError, IndexError):
            if not line or line.isspace():
                continue
            raise _BadLineError(f"{path}: line {number}: not a standoff annotation: {line!r}") from None


def _span(fields: list[str]) -> dict[str, Any]:
    name, what, *words = fields
    label, *ends = what.split(" ")
    places = [place.split(" ") for place in " ".join(ends).split(";")]
    fragments = [[int(start), int(end)] for start, end in places]
    # A tab in a mention was split as a separator, so it is restored.
    return {"id": name, "label": label, "fragments": fragments, "text": "\t".join(words)}


def _relation(fields: list[str]) -> dict[str, Any]:
    label, head, tail = fields[1].split()
    ends = {"head": _argument(head)["target"], "tail": _argument(tail)["target"]}
    return {"id": fields[0], "label": label, **ends}


def _event(fields: list[str]) -> dict[str, Any]:
    first, *arguments = fields[1].split()
    label, _, trigger = first.partition(":")
    found = [_argument(argument) for argument in arguments]
    return {"id": fields[0], "label": label, "trigger": trigger or None, "arguments": found}


def _argument(argument: str) -> dict[str, str]:
    role, colon, target = argument.rpartition(":")
    if not colon:
        raise ValueError
    return {"role": role, "target": target}


def _attribute(fields: list[str]) -> dict[str, Any]:
    label, target, *value = fields[1].split(" ")
    return {"id": fields[0], "label": label, "target": target, "value": " ".join(value) or None}


def _equivalence(fields: list[str]) -> dict[str, Any]:
    label, *targets = fields[1].split()
    return {"label": label, "targets": targets}


def _note(fields: list[str]) -> dict[str, Any]:
    label, target, *_ = fields[1].split()
    return {"id": fields[0], "label": label, "target": target, "text": " ".join(fields[2:])}


_LINES: dict[str, tuple[str, Callable[[list[str]], dict[str, Any]]]] = {
    "T": ("spans", _span),
    "R": ("relations", _relation),
    "E": ("events", _event),
    "A": ("attributes", _attribute),
    "M": ("attributes", _attribute),
    "*": ("equivalences", _equivalence),
    "N": ("notes", _note),
    "#": ("notes", _note),
}
