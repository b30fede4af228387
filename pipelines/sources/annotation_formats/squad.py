"""SQuAD JSON, versions 1 and 2: documents, paragraphs, questions (Rajpurkar et al. 2016, 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from pydantic import Field, field_validator

from pipelines.mapping.refused import as_json
from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.text import Repeated, all_as_json, json_value, repeated
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


class Options(FormatOptions):
    """Documents of the file."""

    documents: tuple[Annotated[int, Field(ge=0)], int] | None = None
    """Take the documents from this number, up to but not including that one, counted from 0; default: all. One
    file can thus serve several splits that share no document."""

    @field_validator("documents")
    @classmethod
    def _takes_some(cls, given: tuple[int, int] | None) -> tuple[int, int] | None:
        if given is not None and given[0] >= given[1]:
            raise ValueError("expected the first document to take, and a later one to stop before")
        return given


EXAMPLE = Example(
    {
        "train.json": '{"data": [{"title": "Ada", "paragraphs": [{"context": "Ada waits in Oslo.", "qas": [\n'
        '  {"id": "1", "question": "Who waits?", "answers": [{"text": "Ada", "answer_start": 0}]}]}]}]}\n'
    }
)


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each question: its keys, `title` and `context`. `is_impossible` is false if it is absent. A
    file that is not JSON is one reject, and so is a document or paragraph without SQuAD's structure.

    Raises:
        UserError: the file has no documents.
    """
    whole = json_value(piece)
    if isinstance(whole, Reject):
        yield whole
        return
    documents = _items(piece, whole, "data", "")
    if isinstance(documents, Reject):
        raise UserError(f"{piece.place}: {documents.detail}")
    for d, document in islice(enumerate(documents), *(options.documents or (None,))):
        paragraphs = _items(piece, document, "paragraphs", f" of document {d}")
        if isinstance(paragraphs, Reject):
            yield paragraphs
            continue
        for p, paragraph in enumerate(paragraphs):
            questions = _items(piece, paragraph, "qas", f" of document {d}, paragraph {p}")
            if isinstance(questions, Reject):
                yield questions
                continue
            shared = {"title": document.get("title"), "context": paragraph.get("context"), "is_impossible": False}
            for q, question in enumerate(questions):
                if problem := repeated(question):
                    detail = f"#{d}.{p}.{q}: {problem}"
                    yield Reject(piece.path, 1, "repeated key", detail, all_as_json(question))
                elif isinstance(question, dict):
                    yield RawRow(1, f"{piece.path}#{d}.{p}.{q}", {**shared, **question})
                else:
                    detail = f"#{d}.{p}.{q}: expected an object"
                    yield Reject(piece.path, 1, "wrong type", detail, as_json(question))


def _items(piece: Slice, node: Any, key: str, where: str) -> list[Any] | Reject:
    """Return the list `key` of an object, or its reject if it has no such list or several."""
    items = node.get(key) if isinstance(node, dict) else None
    twice = node.keys_twice() if isinstance(node, Repeated) else []
    if lost := [one for one in (key, "context") if one in twice]:
        detail = f"`{lost[0]}`{where} is given twice, and one would be lost; join them"
        return Reject(piece.path, 1, "repeated key", detail, all_as_json(node))
    if not isinstance(items, list):
        detail = f"expected a list `{key}`{where}, as in SQuAD files"
        return Reject(piece.path, 1, "no rows", detail, as_json(node))
    return items
