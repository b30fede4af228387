"""Guesses at tasks with mentions: entities, relations, events and coreference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.drafting.tasks.events import events
from pipelines.drafting.tasks.fields import Field
from pipelines.drafting.tasks.guess import Guess, hint
from pipelines.drafting.tasks.marked import marked_mentions
from pipelines.drafting.tasks.places import bases, below, id_of, label_of, optional, place_of
from pipelines.drafting.tasks.tags import glue, tagged
from pipelines.drafting.tasks.texts import texts_of

Fields = dict[str, Field]
Map = dict[str, Any]
ENDS = (("head", "tail"), ("h", "t"), ("subject", "object"), ("arg1", "arg2"), ("sub", "obj"), ("from", "to"),
        ("source", "target"), ("head_id", "tail_id"), ("from_id", "to_id"), ("subj", "obj"))  # fmt: skip


def mentions(fields: Fields) -> Iterator[Guess]:
    if "standoff" in fields:
        yield from _standoff(fields)
        return
    yield from tagged(fields)
    bodies = _bodies(fields)
    for place, (body, unit) in enumerate(bodies[:2]):
        nested = "tokens" in body and isinstance(fields[body["tokens"]].values[0][0], list)
        found = (marked_mentions, _spans, events, _clusters)
        for guess in (guess for guesses in found for guess in guesses(fields, body)):
            offsets = {**guess.map.get("offsets", {}), "unit": unit}
            mapping = guess.map if nested else _without_sentence(guess.map)
            yield guess._replace(map={**mapping, "offsets": offsets}, score=guess.score - 0.05 * place)


def _without_sentence(given: Any) -> Any:
    """Remove `sentence` from a map whose token offsets count from the start of the text."""
    if isinstance(given, dict):
        return {key: _without_sentence(item) for key, item in given.items() if key != "sentence"}
    return [_without_sentence(item) for item in given] if isinstance(given, list) else given


def _standoff(fields: Fields) -> Iterator[Guess]:
    kinds = ("relations", "events", "attributes", "equivalences", "notes")
    there = [kind for kind in kinds if any((fields.get(f"standoff.{kind}") or _NONE).values)]
    for task, held, score in (("event", ("events",), 0.97), ("relation", ("relations",), 0.93), ("ner", (), 0.9)):
        if held and held[0] not in there:
            continue
        ignore = [kind for kind in there if kind not in held]
        mapping: Map = {"text": "text", "standoff": "standoff", **({"ignore": ignore} if ignore else {})}
        why = f"the annotations hold {held[0] if held else 'mentions'}"
        yield Guess(task, mapping, score, (why,))  # type: ignore[arg-type]


_NONE = Field("", [], 0, 0)


def _bodies(fields: Fields) -> list[tuple[Map, str]]:
    """Return the fields that may be the text, each with the unit of its offsets, likeliest first."""
    found: list[tuple[Map, str]] = []
    for path, field in fields.items():
        nested = all(isinstance(v, list) and v and all(_is_words(s) for s in v) for v in field.values)
        if field.flat and field.rows == field.of and field.values and (nested or field.words):
            words = [w for v in field.values[:50] for s in v for w in (s if nested else [s])]
            if sum(map(len, words)) / len(words) < 20 and len(words) > 4 * len(field.values[:50]):
                found.append(({"tokens": path, **glue(words)}, "token"))
    for text in texts_of(fields)[:2]:
        found.append(({"text": text.path}, "character"))
        if text.flat and hint(text.name, "sentence tokens text") and all("  " not in v for v in text.values[:20]):
            found.append(({"tokens": text.path}, "token"))
    return found


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(word) is str for word in value)


def _spans(fields: Fields, body: Map) -> Iterator[Guess]:
    """Guess lists of mentions, and relations between them."""
    found = []
    for base in bases(fields):
        inside = below(fields, base)
        place = place_of(inside)
        if not place:
            continue
        keys = re.findall(r"\{\w+\}", base)
        label = label_of(inside, {*place.values()})
        if "words" not in place and len(keys) > 1 and "start" in place:
            place = {**place, "words": keys[-1]}
        kind = {"label": label} if label else {"label": keys[0]} if keys else {"as": "mention"}
        each = optional(fields, base)
        own = id_of(inside)
        name = hint(
            base.replace("[]", "").rpartition(".")[2], "entities ner spans labels mentions entity aspects slots"
        )
        both = "start" in place or "indices" in place
        score = (
            (0.6 if both else 0.35)
            + 0.12 * name
            + (0.15 if label or keys else 0)
            + (0.05 if "words" in place else 0)
        )
        spans: Map = {"each": each, **({"id": own} if own else {}), **place, **kind}
        found.append((base, spans, own, score))
        start, end = inside.get(place.get("start", "")), inside.get(place.get("end", ""))
        if start and end and len(start.values) < len(end.values):
            body = {**body, "offsets": {"absent_start": 0}}
        if any(path.startswith(("trigger", "nugget", "cause")) for path in place.values()):
            score -= 0.15  # a guess at events would use more of the data
        plain = {key: value for key, value in spans.items() if key != "id"}
        why = (f"each of {base} has a place ({', '.join(place.values())})",)
        yield Guess("ner", {**body, "spans": plain}, min(0.9, score), why)
    for base, spans, own, score in found or [("", {}, None, 0.0)]:
        yield from _relations(fields, body, base, spans, own, score)


def _relations(fields: Fields, body: Map, of: str, spans: Map, own: str | None, sure: float) -> Iterator[Guess]:
    text = fields[body.get("text") or body["tokens"]]
    texts = "\n".join(text.values) if text.all(str) and not own else ""
    for base in (*bases(fields), ""):
        if (base == of and base) or not (base.endswith("[]") or base == ""):
            continue
        inside = below(fields, base)
        for head, tail in ENDS:
            ends = [_end(inside, name, texts) for name in (head, tail)]
            if base == "" and not all(isinstance(end, dict) for end in ends):
                continue  # a row has no ids of mentions
            if ends[0] is None or ends[1] is None:
                continue
            named = [end for end in ends if isinstance(end, str)]
            taken = {path for path in inside if path.split(".")[0] in (head, tail)}
            label = label_of(inside, {*taken, *named})
            kind = {"label": label} if label else {"as": "related"}
            given = spans
            if len(named) == 2 and not own and spans:  # ends are positions in the list of mentions
                each = re.sub(r"\[\]$", ".{entity}", spans["each"], count=1)
                each = re.sub(r"\[\]\[\]$", ".{entity}[]", spans["each"]) if "[][]" in spans["each"] else each
                given = {**spans, "each": each, "id": "{entity}"}
            if len(named) == 2 and not spans:
                continue
            relations: Map = {"each": optional(fields, base) or ".", **kind, "head": ends[0], "tail": ends[1]}
            mapping = {**body, **({"spans": given} if named else {}), "relations": relations}
            why = (f"each {f'of {base}' if base else 'row'} joins a {head} and a {tail}",)
            yield Guess("relation", mapping, 0.88 + 0.05 * bool(label), why)
            break


def _end(inside: Fields, name: str, texts: str) -> Any:
    """Return the end of a relation: an id, or an inline mention. Words are in most cases somewhere in `texts`."""
    own = {path[len(name) + 1 :]: field for path, field in inside.items() if path.startswith(f"{name}.")}
    if own and (place := place_of(own)):
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


def _clusters(fields: Fields, body: Map) -> Iterator[Guess]:
    """Guess lists of clusters, each a list of mentions."""
    for path, field in fields.items():
        name = re.findall(r"[^.\[\]{}]+", path)
        if not name or not hint(name[-1], "clusters coref coreference chains mention_clusters vertexset"):
            continue
        for inner in (f"{path}[][]", f"{path}.{{key}}[]"):
            if inner not in fields and f"{inner}.0" not in fields:
                continue
            place = place_of(below(fields, inner))
            if not place and any(isinstance(item, list) and len(item) == 2 for item in fields[inner].values[:5]):
                place = {"start": "0", "end": "1"}
            if place and field.flat:
                spans = {"each": f"{path}.{{cluster}}[]", **place, "id": "{cluster}"}
                yield Guess("coref", {**body, "spans": spans}, 0.8, (f"{path} lists clusters of mentions",))
