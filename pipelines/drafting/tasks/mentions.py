"""Guesses at tasks with mentions: entities, relations, events and coreference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.drafting.tasks.events import events
from pipelines.drafting.tasks.fields import Fields
from pipelines.drafting.tasks.guess import Guess, Map, called, each_of, hint
from pipelines.drafting.tasks.marked import marked_mentions
from pipelines.drafting.tasks.places import below, id_of, kinds, label_of, omits_zero, optional, place_of
from pipelines.drafting.tasks.relations import relations, whole_relations
from pipelines.drafting.tasks.tags import tagged, tokens_of
from pipelines.drafting.tasks.texts import texts_of
from pipelines.mapping.fields import is_words


def mentions(fields: Fields) -> Iterator[Guess]:
    if "standoff" in fields:
        yield from _standoff(fields)
        return
    yield from tagged(fields)
    bodies = _bodies(fields)
    titles = [field for field in texts_of(fields) if field.flat and hint(field.name, "title headline") > 0.5]
    for place, (body, unit) in enumerate(bodies[:2]):
        title = titles[0].path if titles and "text" in body else None
        nested = "tokens" in body and isinstance(fields[body["tokens"]].values[0][0], list)
        found = (marked_mentions, whole_relations, _spans, events, _clusters)
        for guess in (guess for guesses in found for guess in guesses(fields, body)):
            offsets = {**guess.map.get("offsets", {}), "unit": unit}
            mapping = guess.map if nested else _without_sentence(guess.map)
            made = guess._replace(map={**mapping, "offsets": offsets}, score=guess.score - 0.05 * place)
            yield made
            if title and body != {"text": title} and "'start'" not in str(mapping) and "'words'" in str(mapping):
                both = {**made.map, "text": [title, body["text"]]}
                why = (*made.reasons, f"{called(title)} has some of the mentions")
                yield made._replace(map=both, score=made.score - 0.03, reasons=why)


def _without_sentence(given: Any) -> Any:
    """Remove `sentence` from a map whose token offsets count from the start of the text."""
    if isinstance(given, dict):
        return {key: _without_sentence(item) for key, item in given.items() if key != "sentence"}
    return [_without_sentence(item) for item in given] if isinstance(given, list) else given


def _standoff(fields: Fields) -> Iterator[Guess]:
    kinds = ("relations", "events", "attributes", "equivalences", "notes")
    there = [kind for kind in kinds if (field := fields.get(f"standoff.{kind}")) and any(field.values)]
    for task, held, score in (("event", ("events",), 0.97), ("relation", ("relations",), 0.93), ("ner", (), 0.9)):
        if held and held[0] not in there:
            continue
        ignore = [kind for kind in there if kind not in held]
        mapping: Map = {"text": "text", "standoff": "standoff", **({"ignore": ignore} if ignore else {})}
        why = f"the annotations have {held[0] if held else 'mentions'}"
        lost = 0.15 * len({"relations", "events"} & {*ignore})  # so that a few damaged rows don't leave them out
        yield Guess(task, mapping, score - lost, (why,))  # type: ignore[arg-type]


def _bodies(fields: Fields) -> list[tuple[Map, str]]:
    """Return the fields that may be the text, each with the unit of its offsets, likeliest first."""
    found: list[tuple[Map, str]] = []
    for path, field in fields.items():
        nested = all(isinstance(v, list) and v and all(s and is_words(s) for s in v) for v in field.values)
        if field.flat and field.rows == field.of and field.values and (nested or field.words):
            words = [w for v in field.values[:50] for s in v for w in (s if nested else [s])]
            if sum(map(len, words)) / len(words) < 20 and len(words) > 4 * len(field.values[:50]):
                found.append((tokens_of(path, words), "token"))
    for text in texts_of(fields)[:2]:
        found.append(({"text": text.path}, "character"))
        if text.flat and hint(text.name, "sentence tokens text") and all("  " not in v for v in text.values[:20]):
            found.append(({"tokens": text.path}, "token"))
    return found


def _spans(fields: Fields, body: Map) -> Iterator[Guess]:
    """Guess lists of mentions, and relations between them."""
    found = []
    for base, when, inside in kinds(fields):
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
        spans: Map = {"each": each, **when, **({"id": own} if own else {}), **place, **kind}
        found.append((base, spans, own))
        start, end = inside.get(place.get("start", "")), inside.get(place.get("end", ""))
        if start and end and omits_zero(start, end):
            body = {**body, "offsets": {"absent_start": 0}}
        if any(path.startswith(("trigger", "nugget", "cause")) for path in place.values()):
            score -= 0.15  # a guess at events would use more of the data
        plain = {key: value for key, value in spans.items() if key != "id"}
        why = (f"{each_of(base)} has a place ({', '.join(map(repr, place.values()))})",)
        yield Guess("ner", {**body, "spans": plain}, min(0.9, score), why)
    for base, spans, own in found or [("", {}, None)]:
        yield from relations(fields, body, base, spans, own)


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
                why = (f"{called(path)} lists clusters of mentions",)
                yield Guess("coref", {**body, "spans": spans}, 0.8, why)
