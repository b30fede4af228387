"""Guesses at relations: between mentions with ids, between inline mentions, and in nested lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.drafting.tasks.fields import Fields, mostly
from pipelines.drafting.tasks.guess import Guess, Map, each_of, hint
from pipelines.drafting.tasks.places import bases, below, kinds, label_of, optional, place_of

ENDS = (("head", "tail"), ("h", "t"), ("head_span", "child_span"), ("subject", "object"), ("arg1", "arg2"),
        ("sub", "obj"), ("from", "to"), ("source", "target"), ("head_id", "tail_id"), ("from_id", "to_id"),
        ("subj", "obj"))  # fmt: skip


def relations(fields: Fields, body: Map, of: str, spans: Map, own: str | None) -> Iterator[Guess]:
    """Guess lists of relations between the mentions `spans`, which are at `of` and may have ids of their own."""
    text = fields[body.get("text") or body["tokens"]]
    texts = "\n".join(text.values) if text.all(str) and not own else ""
    for base, when, inside in kinds(fields):
        if (base == of and when.get("when") == spans.get("when")) or not base.endswith("[]"):
            continue
        for head, tail in ENDS:
            ends = [_end(inside, name, texts) for name in (head, tail)]
            if ends[0] is None or ends[1] is None:
                continue
            named = [end for end in ends if isinstance(end, str)]
            given = spans
            if len(named) == 2 and not own and spans:  # ends are positions in the list of mentions
                each = re.sub(r"\[\]$", ".{entity}", spans["each"], count=1)
                each = re.sub(r"\[\]\[\]$", ".{entity}[]", spans["each"]) if "[][]" in spans["each"] else each
                given = {**spans, "each": each, "id": "{entity}"}
            if len(named) == 2 and not spans:
                continue
            kind = _kind(inside, (head, tail), named)
            joined: Map = {"each": optional(fields, base), **when, **kind, "head": ends[0], "tail": ends[1]}
            among = not named and _are_among(ends, inside, spans, fields)
            mapping = {**body, **({"spans": given} if named or among else {}), "relations": joined}
            why = (f"{each_of(base)} joins {head!r} and {tail!r}",)
            yield Guess("relation", mapping, 0.88 + 0.05 * ("label" in kind) + 0.01 * among, why)
            break


def _are_among(ends: list[Any], inside: Fields, spans: Map, fields: Fields) -> bool:
    """Tell whether the ends of relations, which have places of their own, have labels of the mentions in the list
    `spans`. That list then has the mentions without a relation, too."""
    if not {"start", "label"} <= {*spans}:
        return False
    labels = [inside.get(end.get("label", "")) for end in ends]
    listed = fields.get(f"{spans['each'].replace('?', '')}.{spans['label']}")
    return listed is not None and all(kind and {*kind.values} <= {*listed.values} for kind in labels)


def whole_relations(fields: Fields, body: Map) -> Iterator[Guess]:
    """Guess relations that have the places or words of their two mentions: one of each row, or nested lists."""
    inside = below(fields, "")
    for head, tail in ENDS:
        ends = [_end(inside, name, "") for name in (head, tail)]
        if all(isinstance(end, dict) and {"start", "indices", "words"} & {*end} for end in ends):
            kind = _kind(inside, (head, tail), [])
            mapping = {**body, "relations": {**kind, "head": ends[0], "tail": ends[1]}}
            placed = all({"start", "indices"} & {*end} for end in ends)
            yield Guess("relation", mapping, 0.93 if placed else 0.8, (f"each row joins {head!r} and {tail!r}",))
            break
    for base in bases(fields):
        if listed := _listed_ends(below(fields, base)):
            mapping = {**body, "relations": {"each": optional(fields, base), **listed}}
            yield Guess("relation", mapping, 0.92, (f"{each_of(base)} has the places of two mentions",))


def _kind(inside: Fields, ends: tuple[str, str], named: list[str]) -> Map:
    taken = {path for path in inside if path.split(".")[0] in ends}
    label = label_of(inside, {*taken, *named}) or _named_label(inside)
    return {"label": label} if label else {"as": "related"}


def _named_label(inside: Fields) -> str | None:
    """Return the path of a relation's label by its name alone: in few rows, each may have another label."""
    names = [path for path, field in inside.items() if field.all(str) and max(map(len, field.values)) <= 60]
    return next((path for path in names if hint(path, "relation predicate label type rel") > 0.5), None)


def _end(inside: Fields, name: str, texts: str) -> Any:
    """Return the end of a relation: an id, or an inline mention. Words are in most cases somewhere in `texts`."""
    own = below(inside, name)
    if place := place_of(own):
        label = label_of(own, {*place.values()})
        inner = {key: f"{name}.{path}" for key, path in place.items()}
        return {**inner, **({"label": f"{name}.{label}"} if label else {"as": "mention"})}
    field = inside.get(name)
    if field is None or not field.all(str, int):
        return None
    spaced = field.all(str) and sum(" " in value for value in field.values) > 0.1 * len(field.values)
    if spaced or (field.all(str) and sum(value in texts for value in field.values) > 0.8 * len(field.values)):
        kind = inside.get(f"{name}_type")
        return {"words": name, **({"label": f"{name}_type"} if kind else {"as": "mention"})}
    return name


def _listed_ends(inside: Fields) -> Map | None:
    """Map a list of two places and a label, such as [start, end, start, end, label], or with a type after each."""
    numbers = [path for path in inside if path.isdigit() and inside[path].all(int)]
    strings = [path for path in inside if path.isdigit() and inside[path].all(str)]
    pairs = [(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=False) if int(b) == int(a) + 1]
    if len(numbers) != 4 or len(pairs) != 2 or not strings or len(numbers) + len(strings) != len(inside):
        return None
    both = [zip(inside[start].values, inside[end].values, strict=False) for start, end in pairs]
    if not mostly(start <= end for places in both for start, end in places):
        return None
    types = [str(int(end) + 1) for _, end in pairs]
    typed = len(strings) == 3 and {*types} < {*strings}
    kinds: list[Map] = [{"label": path} if typed else {"as": "mention"} for path in types]
    head, tail = ({"start": a, "end": b, **kind} for (a, b), kind in zip(pairs, kinds, strict=True))
    label = max((path for path in strings if not typed or path not in types), key=lambda p: inside[p].distinct)
    return {"label": label, "head": head, "tail": tail}
