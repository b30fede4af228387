"""Guesses at mentions that have fields of their own, such as `subj`, `subj_start` and `subj_end`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipelines.drafting.tasks.fields import Field, Fields, mostly
from pipelines.drafting.tasks.guess import Guess, Map, called, hint
from pipelines.drafting.tasks.places import bases, below, is_whole, label_of, whole

_START = r"start|begin|from|offset|index|idx|pos"
_END = r"end|to|stop|last"
_OTHER = r"[_\-. ]?(?:offset|index|idx|pos|char)?"
_HEADS = ("head", "subj", "subject", "h", "e1", "entity1", "arg1", "source", "from")
_TRUE = ("true", "1", "yes", "TRUE", "True", "Yes")


class Marked(NamedTuple):
    """A mention: its name, the fields that locate it, and the field of its label, if there is one."""

    name: str
    place: dict[str, str]
    label: str | None

    @property
    def kind(self) -> Map:
        """Return its category: the value of a field, or its own name."""
        return {"label": self.label} if self.label else {"as": self.name}


def marked_mentions(fields: Fields, body: Map) -> Iterator[Guess]:
    """Guess mentions of the row or, of a grouped table, of its `rows`."""
    text = fields[body.get("text") or body["tokens"]]
    for base in ("", *(base for base in bases(fields) if base.endswith("[]") and base.count("[]") == 1)):
        inside = below(fields, base)
        found = [one for one in _marked(inside) if _is_there(inside, one, text, base)]
        if not found:
            continue
        starts = called(*(one.place["start"] for one in found))
        why = (f"{starts} {'locates a mention' if len(found) == 1 else 'locate mentions'}",)
        mapping = {**body, **_offsets(inside, found, text)}
        if base == "" and len(found) > 1 and (links := _links(fields, found)):
            spans = [dict(one.place) for one in found]
            yield Guess("coref", {**mapping, "spans": spans, "links": links}, 0.96, why)
        elif len(found) == 2:
            relation = {"each": base or ".", **_kind(inside, found), **_ends(found)}
            yield Guess("relation", {**mapping, "relations": relation}, 0.93, why)
        elif base in ("", "rows[]"):
            each = {} if base == "" else {"each": base}
            spans = [{**each, **one.place, **(_kind(inside, [one]) or one.kind)} for one in found]
            yield Guess("ner", {**mapping, "spans": spans[0] if len(spans) == 1 else spans}, 0.85, why)


def _marked(inside: Fields) -> Iterator[Marked]:
    """Find fields that are named after a mention, and give the place where it starts."""
    numbers = {path: field for path, field in inside.items() if is_whole(field)}
    for start in numbers:
        parent, dot, own = start.rpartition(".")
        above = parent + dot
        before = re.fullmatch(rf"(.+?)[_\-. ]?(?:{_START}){_OTHER}", own, re.IGNORECASE)
        after = re.fullmatch(rf"(?:{_START})[_\-. ]?(.+)", own, re.IGNORECASE)
        for name in [match[1] for match in (before, after) if match]:
            stem = re.escape(above + name)
            ends = [
                rf"{stem}[_\-. ]?(?:{_END}){_OTHER}",
                rf"{re.escape(above)}(?:{_END})[_\-. ]?{re.escape(name)}",
            ]
            end = next(
                (path for form in ends for path in numbers if re.fullmatch(form, path, re.IGNORECASE)), None
            )
            words = _beside(inside, stem, "|text|words?|name|string|form|mention|span|token")
            if end or words:
                place = {"start": start, **({"end": end} if end else {}), **({"words": words} if words else {})}
                yield Marked(name, place, _beside(inside, stem, "type|label|class|category|ner|kind"))
                break


def _beside(inside: Fields, stem: str, endings: str) -> str | None:
    form = re.compile(rf"{stem}[_\-. ]?(?:{endings})", re.IGNORECASE)
    strings = [path for path, field in inside.items() if field.all(str) and not is_whole(field)]
    return next((path for path in strings if form.fullmatch(path)), None)


def _is_there(inside: Fields, one: Marked, text: Field, base: str) -> bool:
    """Tell whether the words of a mention are as long as its offsets say, or are where it starts."""
    start = [whole(value) for value in inside[one.place["start"]].values]
    end = [whole(value) for value in inside[one.place["end"]].values] if "end" in one.place else []
    words: list[str] = inside[one.place["words"]].values if "words" in one.place else []
    lengths = [-1 if a is None or b is None else b - a for a, b in zip(start, end, strict=False)]
    if len(end) == len(start) and mostly(size >= 0 for size in lengths):
        same = [size - len(word) in (0, -1) for size, word in zip(lengths, words, strict=False)]
        return not text.all(str) or not words or bool(sum(same) >= 0.9 * len(same))
    if end or base or not text.all(str) or not len(words) == len(start) == len(text.values):
        return False
    there = [
        at is not None and t[at : at + len(word)] == word
        for t, at, word in zip(text.values, start, words, strict=True)
    ]
    return bool(sum(there) >= 0.8 * len(there))


def _offsets(inside: Fields, found: list[Marked], text: Field) -> Map:
    """Return `offsets` if some are beyond the longest text, that is, in the document that it is from. A few may be
    beyond it by mistake."""
    ends = [whole(value) for one in found for value in inside[one.place.get("end", one.place["start"])].values]
    longest = max(map(len, text.values))
    return {} if mostly(end is None or end <= longest for end in ends) else {"offsets": {"base": "document"}}


def _kind(inside: Fields, found: list[Marked]) -> Map:
    """Return the label of a relation or a mention; without a field for it, all have the same."""
    taken = {path for one in found for path in (*one.place.values(), one.label) if path}
    label = label_of(inside, taken)
    if label and hint(
        label.rpartition(".")[2], "relation label type class category rel predicate polarity sentiment"
    ):
        return {"label": label}
    return {"as": "related"} if len(found) == 2 else {}


def _ends(found: list[Marked]) -> Map:
    first, second = sorted(found, key=lambda one: one.name.lower() not in _HEADS)
    return {"head": {**first.place, **first.kind}, "tail": {**second.place, **second.kind}}


def _links(fields: Fields, found: list[Marked]) -> list[Map]:
    """Return links of two mentions, or of one with each of the others, if a field says whether it is true."""
    flags = {path: field for path, field in fields.items() if field.flat and _is_flag(field)}
    own = [(one, path) for one in found for path in flags if path.lower().startswith(one.name.lower())]
    confirmed = [one.name for one, _ in own]
    rest = [one for one in found if one.name not in confirmed]
    if not own and len(found) == 2:
        label = next((path for path in flags if hint(flags[path].name, "label answer is_coref coref") > 0.5), None)
        own, rest = ([(found[1], label)], found[:1]) if label else (own, rest)
    if len(rest) != 1:
        return []
    yes = {path: next(text for text in map(_text, flags[path].values) if text in _TRUE) for _, path in own}
    return [{"head": rest[0].place, "tail": one.place, "when": {path: yes[path]}} for one, path in own]


def _is_flag(field: Field) -> bool:
    said = {_text(value).lower() for value in field.values}
    return len(said) == 2 and any(said == pair for pair in ({"true", "false"}, {"0", "1"}, {"yes", "no"}))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
