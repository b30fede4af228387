"""The text of a row, and the offsets of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add

from msgspec import Struct

from pipelines.mapping.fields import Field, is_words, joined_field, text_field
from pipelines.mapping.paths import Scope, value, values
from pipelines.mapping.refused import RefusedError, short
from ubert.schema.specs.mapping import Mapping


class Body(Struct, frozen=True, gc=False):
    """A text and its tokens. `starts` and `ends` are the character offsets of the tokens. `sentences` has
    the index of each sentence's first token and, last, the number of all tokens. The three are empty if
    the source has no tokens."""

    text: str
    starts: Sequence[int] = ()
    ends: Sequence[int] = ()
    sentences: Sequence[int] = ()


def body_field(given: Mapping) -> Field[Body]:
    """Return a function that gets the mapped text of a row, with its tokens."""
    if given.tokens is not None:
        return _token_field(given.tokens, given.glue)
    if given.chunks is not None:
        chunks, part = values(f"{given.chunks}[]"), text_field("text")
        return lambda scope: Body("".join(part(chunk) for chunk in chunks(scope)))
    text = whole_text_field(given)
    return lambda scope: Body(text(scope))


def whole_text_field(given: Mapping) -> Field[str]:
    """Return a function that gets the mapped text of a row, without its tokens."""
    if given.tokens is None and given.chunks is None:
        return joined_field(given.text or [], given.join)
    body = body_field(given)
    return lambda scope: body(scope).text


def _token_field(path: str, glue: str) -> Field[Body]:
    get, gap = value(path), len(glue)

    def body(scope: Scope) -> Body:
        found = get(scope)
        if isinstance(found, str):
            found = [word for word in found.split(" ") if word]
        nested = isinstance(found, list) and bool(found) and all(isinstance(part, list) for part in found)
        sentences = found if nested else [found]
        firsts: list[int] = [0]
        words: list[str] = []
        for sentence in sentences:
            if not is_words(sentence):
                raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected a list of strings")
            words += sentence
            firsts.append(len(words))
        if "" in words:
            raise RefusedError("empty token", f"token {words.index('')} of {len(words)} is an empty string")
        lengths = list(map(len, words))
        starts = list(accumulate(map(add, lengths, repeat(gap)), initial=0))[:-1]
        return Body(glue.join(words), starts, list(map(add, starts, lengths)), firsts)

    return body
