"""The text of a row, and where its tokens are in it."""

from __future__ import annotations

from typing import NamedTuple

from pipelines.fields import Field, joined_field, text_field
from pipelines.paths import Scope, value, values
from pipelines.refused import RefusedError, short
from ubert.schema.mapping import Mapping


class Body(NamedTuple):
    """A text. `starts` and `ends` are the places of its tokens, `sentences` the numbers of the first token of each
    sentence and, last, of tokens in all; all are empty where the source has no tokens."""

    text: str
    starts: list[int]
    ends: list[int]
    sentences: list[int]


def body_field(given: Mapping) -> Field[Body]:
    """What gets the text that a spec maps."""
    if given.tokens is not None:
        return _token_field(given.tokens, given.glue)
    if given.chunks is not None:
        chunks, part = values(f"{given.chunks}[]"), text_field("text")
        return lambda scope: Body("".join(part(chunk) for chunk in chunks(scope)), [], [], [])
    text = joined_field(given.text or [], given.join)
    return lambda scope: Body(text(scope), [], [], [])


def _token_field(path: str, glue: str) -> Field[Body]:
    get = value(path)

    def body(scope: Scope) -> Body:
        found = get(scope)
        if isinstance(found, str):
            found = [word for word in found.split(" ") if word]
        nested = isinstance(found, list) and bool(found) and all(isinstance(part, list) for part in found)
        sentences = found if nested else [found]
        starts: list[int] = []
        ends: list[int] = []
        firsts, words, at = [0], [], 0
        for sentence in sentences:
            if not isinstance(sentence, list) or not all(isinstance(word, str) for word in sentence):
                raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected a list of strings")
            for word in sentence:
                starts.append(at)
                ends.append(at + len(word))
                at += len(word) + len(glue)
            words += sentence
            firsts.append(len(words))
        if "" in words:
            raise RefusedError("empty token", f"token {words.index('')} of {len(words)}")
        return Body(glue.join(words), starts, ends, firsts)

    return body
