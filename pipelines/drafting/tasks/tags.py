"""Guesses at entities from tags of tokens, labels of sentences, and labelled pieces of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from pipelines.drafting.formats.columns import TAG
from pipelines.drafting.tasks.fields import Field, Fields
from pipelines.drafting.tasks.guess import Guess, Map, called, each_of
from ubert.schema.specs.mapping import Scheme


def tagged(fields: Fields) -> Iterator[Guess]:
    """Guess entities whose labels belong to parts of the text."""
    yield from _tagged(fields)
    yield from _chunked(fields)
    yield from _sentences(fields)


def _tagged(fields: Fields) -> Iterator[Guess]:
    """Guess from one tag for each token."""
    lists = {path: words for path, field in fields.items() if field.flat and (words := _listed(field))}
    tags = {path: words for path, words in lists.items() if _share(words) > 0.98 and _kinds(words) > 1}
    for path, words in lists.items():
        beside = [p for p, found in tags.items() if p != path and _as_long(found, words)]
        if not beside or path in tags:
            continue
        body = tokens_of(path, [word for listed in words[:50] for word in listed])
        beside = _layers({p: tags[p] for p in beside})
        scheme, why = scheme_of([listed for p in beside for listed in tags[p]])
        mapping: Map = {**body, "tags": beside[0] if len(beside) == 1 else beside}
        if scheme != "BIO":
            mapping["scheme"] = scheme
        if any(tag[0] in "LU" for p in beside for listed in tags[p] for tag in listed):
            mapping["clean"] = {p: {"regex": {r"(?<!\S)L-": "E-", r"(?<!\S)U-": "S-"}} for p in beside}
        yield Guess("ner", mapping, 0.96, (_tells(beside, path), why))
        if len(beside) > 1:
            one = {**mapping, "tags": beside[0]}
            yield Guess("ner", one, 0.8, (_tells(beside[:1], path), why))
        return
    yield from _bare_tags(fields, lists)


def _tells(tags: list[str], path: str) -> str:
    return f"{called(*tags)} {'tags' if len(tags) == 1 else 'tag'} each item of {path!r}"


def _layers(tags: dict[str, list[list[str]]]) -> list[str]:
    """Return the columns of tags, without those that only rename the labels of another column."""
    places = {path: {at for at, _ in _firsts(found)} for path, found in tags.items()}
    kinds = {path: len({kind for _, kind in _firsts(found)}) for path, found in tags.items()}
    fine = sorted(tags, key=lambda path: (-len(places[path]), -kinds[path]))
    kept: list[str] = []
    for path in fine:
        if not any(len(places[path] & places[other]) > 0.9 * len(places[path]) for other in kept):
            kept.append(path)
    return [path for path in tags if path in kept]


def _firsts(found: list[list[str]]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the place and the label of each first tag of a mention."""
    for number, tags in enumerate(found):
        for at, (before, tag) in enumerate(pairwise(["O", *tags])):
            if tag[0] in "BSU" or (tag != "O" and before[1:] != tag[1:]):
                yield (number, at), tag[2:]


def _bare_tags(fields: Fields, lists: dict[str, list[list[str]]]) -> Iterator[Guess]:
    """Guess from labels of tokens without a mark where an entity begins."""
    for path, words in lists.items():
        for other, tags in lists.items():
            kinds = {tag for listed in tags for tag in listed}
            if other != path and "O" in kinds and len(kinds) <= 60 and _as_long(tags, words):
                body = tokens_of(path, [word for listed in words[:50] for word in listed])
                why = (f"{called(other)} labels each item of {path!r}",)
                yield Guess("ner", {**body, "tags": other, "scheme": "IO"}, 0.75, why)
                return


def _sentences(fields: Fields) -> Iterator[Guess]:
    """Guess from one label for each sentence of a list."""
    lists = {path: field.words for path, field in fields.items() if field.flat and field.words}
    for path, texts in lists.items():
        if sum(text.count(" ") for text in texts[0]) < 3 * len(texts[0]):
            continue
        for other, labels in lists.items():
            short = _kinds(labels) <= min(100, sum(map(len, labels)) / 4)
            if other != path and short and _as_long(labels, texts):
                number = {"each": f"{path}.{{sentence}}", "start": "{sentence}", "end": "{sentence}"}
                spans = {**number, "label": f"/{other}.{{sentence}}"}
                mapping = {"tokens": path, "spans": spans, "offsets": {"unit": "token", "end": "inclusive"}}
                yield Guess("ner", mapping, 0.87, (f"{called(other)} labels each sentence of {path!r}",))


def _chunked(fields: Fields) -> Iterator[Guess]:
    """Guess from pieces of a text, some of which are mentions."""
    for path in [path for path in fields if f"{path}[].text" in fields and f"{path}[].entity" in fields]:
        why = (f"{each_of(path)} is a piece of the text, and some have an entity",)
        yield Guess("ner", {"chunks": path}, 0.96, why)
        for label in [field for field in fields.values() if field.is_label and field.rows == field.of]:
            yield Guess("classification", {"chunks": path, "label": label.path}, 0.6, why)


def scheme_of(sentences: list[list[str]]) -> tuple[Scheme, str]:
    """Return the scheme of tags, and what it was inferred from."""
    marks = {tag[0] for tags in sentences for tag in tags if tag != "O"}
    if "M" in marks and "I" not in marks:
        return "BMES", "'M-' marks the middle of a mention"
    if marks & {"E", "S"}:
        return "BIOES", "'E-' and 'S-' mark ends and single tokens"
    if marks & {"L", "U"}:
        return "BIOES", "'L-' and 'U-' mark ends and single tokens, which are 'E-' and 'S-' in BIOES"
    for tags in sentences:
        for before, tag in pairwise(["O", *tags]):
            if tag[0] == "I" and before[1:] != tag[1:]:
                return "IOB", f"{tag!r} begins a mention without 'B-'"
    return "BIO", "every mention begins with 'B-'"


def _listed(field: Field) -> list[list[str]] | None:
    """Return the values as lists of words, also from strings of words, or None."""
    if field.words:
        return field.words
    if field.all(str) and field.values and sum(" " in value for value in field.values) > 0.5 * len(field.values):
        return [[word for word in value.split(" ") if word] for value in field.values]
    return None


def _share(words: list[list[str]]) -> float:
    tags = [tag for listed in words for tag in listed]
    return sum(bool(TAG.fullmatch(tag)) for tag in tags) / (len(tags) or 1)


def _kinds(words: list[list[str]]) -> int:
    return len({tag for listed in words for tag in listed})


def _as_long(tags: list[list[str]], words: list[list[str]]) -> bool:
    return len(tags) == len(words) and all(len(a) == len(b) for a, b in zip(tags, words, strict=True))


def tokens_of(path: str, words: list[str]) -> Map:
    """Return a `map` of tokens. For scripts without spaces between words, `glue` is the empty string."""
    unspaced = sum(bool(re.match(r"[\u3040-\u30ff\u4e00-\u9fff]", word)) for word in words)
    return {"tokens": path, **({"glue": ""} if unspaced > 0.5 * len(words) else {})}
