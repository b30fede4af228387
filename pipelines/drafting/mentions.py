"""Tasks of mentions: entities, relations, events and clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from pipelines.drafting.columns import TAG
from pipelines.drafting.fields import Field
from pipelines.drafting.guess import Guess, hint
from pipelines.drafting.places import below, id_of, label_of, place_of
from pipelines.drafting.texts import texts_of
from ubert.schema.mapping import Scheme

Fields = dict[str, Field]
Map = dict[str, Any]
ENDS = (("head", "tail"), ("h", "t"), ("subject", "object"), ("arg1", "arg2"), ("sub", "obj"), ("from", "to"),
        ("source", "target"), ("head_id", "tail_id"), ("from_id", "to_id"), ("subj", "obj"))  # fmt: skip


def mentions(fields: Fields) -> Iterator[Guess]:
    """Guesses of all tasks of mentions."""
    if "standoff" in fields:
        yield from _standoff(fields)
        return
    yield from _tagged(fields)
    yield from _chunked(fields)
    yield from _sentences(fields)
    bodies = _bodies(fields)
    for body, unit in bodies[:2]:
        less = 0.0 if (body, unit) == bodies[0] else 0.05
        for guess in (*_spans(fields, body), *_events(fields, body), *_clusters(fields, body)):
            offsets = {**guess.map.get("offsets", {}), "unit": unit}
            yield guess._replace(map={**guess.map, "offsets": offsets}, score=guess.score - less)


def _standoff(fields: Fields) -> Iterator[Guess]:
    kinds = ("relations", "events", "attributes", "equivalences", "notes")
    there = (
        [kind for kind in kinds if any(fields[f"standoff.{kind}"].values)] if "standoff.notes" in fields else []
    )
    there = [kind for kind in kinds if any((fields.get(f"standoff.{kind}") or _NONE).values)] or there
    unheld = [kind for kind in there if kind not in ("relations", "events")]
    for task, held, score in (("event", ("events",), 0.97), ("relation", ("relations",), 0.93), ("ner", (), 0.9)):
        if held and held[0] not in there:
            continue
        ignore = [kind for kind in there if kind not in held]
        if task == "event" and not unheld:
            ignore = [kind for kind in ignore if kind != "relations"] if "relations" not in there else ignore
        mapping: Map = {"text": "text", "standoff": "standoff", **({"ignore": ignore} if ignore else {})}
        why = f"the annotations hold {held[0] if held else 'mentions'}"
        yield Guess(task, mapping, score, (why,))  # type: ignore[arg-type]


_NONE = Field("", [], 0, 0)


def _bodies(fields: Fields) -> list[tuple[Map, str]]:
    """What may be the text, and what offsets then count, likeliest first."""
    found: list[tuple[Map, str]] = []
    for path, field in fields.items():
        nested = all(isinstance(v, list) and v and all(_is_words(s) for s in v) for v in field.values)
        if field.flat and field.rows == field.of and field.values and (nested or field.words):
            words = [w for v in field.values[:50] for s in v for w in (s if nested else [s])]
            if sum(map(len, words)) / len(words) < 20 and len(words) > 4 * len(field.values[:50]):
                found.append(({"tokens": path, **_glue(words)}, "token"))
    for text in texts_of(fields)[:2]:
        found.append(({"text": text.path}, "character"))
        if text.flat and hint(text.name, "sentence tokens text") and all("  " not in v for v in text.values[:20]):
            found.append(({"tokens": text.path}, "token"))
    return found


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(word) is str for word in value)


def _glue(words: list[str]) -> Map:
    """No space between tokens of scripts that are written without any."""
    unspaced = sum(bool(re.match(r"[\u3040-\u30ff\u4e00-\u9fff]", word)) for word in words)
    return {"glue": ""} if unspaced > 0.5 * len(words) else {}


def _chunked(fields: Fields) -> Iterator[Guess]:
    """Pieces of a text, of which some are mentions."""
    for path in [path for path in fields if f"{path}[].text" in fields and f"{path}[].entity" in fields]:
        why = (f"each of {path} is a piece of the text, and some have an entity",)
        yield Guess("ner", {"chunks": path}, 0.96, why)
        for label in [field for field in fields.values() if field.is_label and field.rows == field.of]:
            yield Guess("classification", {"chunks": path, "label": label.path}, 0.6, why)


def _sentences(fields: Fields) -> Iterator[Guess]:
    """A label for each sentence of a list."""
    lists = {path: field.words for path, field in fields.items() if field.flat and field.words}
    for path, texts in lists.items():
        if sum(text.count(" ") for text in texts[0]) < 3 * len(texts[0]):
            continue
        for other, labels in lists.items():
            if other != path and _as_long(labels, texts) and _kinds(labels) <= 100:
                number = {"each": f"{path}.{{sentence}}", "start": "{sentence}", "end": "{sentence}"}
                spans = {**number, "label": f"/{other}.{{sentence}}"}
                mapping = {"tokens": path, "spans": spans, "offsets": {"unit": "token", "end": "inclusive"}}
                yield Guess("ner", mapping, 0.87, (f"{other} labels each sentence of {path}",))


def _tagged(fields: Fields) -> Iterator[Guess]:
    """A tag for each token."""
    lists = {path: words for path, field in fields.items() if field.flat and (words := _listed(field))}
    tags = {path: words for path, words in lists.items() if _share(words) > 0.98 and _kinds(words) > 1}
    for path, words in lists.items():
        beside = [p for p, found in tags.items() if p != path and _as_long(found, words)]
        if not beside or path in tags:
            continue
        body = {"tokens": path, **_glue([word for listed in words[:50] for word in listed])}
        found = [tag for listed in words[:0] for tag in listed]
        found = [listed for p in beside for listed in tags[p]]  # type: ignore[misc]
        scheme, why = scheme_of(found)  # type: ignore[arg-type]
        mapping: Map = {**body, "tags": beside[0] if len(beside) == 1 else beside}
        if scheme != "BIO":
            mapping["scheme"] = scheme
        yield Guess("ner", mapping, 0.96, (f"{' and '.join(beside)} tag each of {path}", why))
        if len(beside) > 1:
            one = {**mapping, "tags": beside[0]}
            yield Guess("ner", one, 0.8, (f"{beside[0]} tags each of {path}", why))
        return
    yield from _bare_tags(fields, lists)


def _bare_tags(fields: Fields, lists: dict[str, list[list[str]]]) -> Iterator[Guess]:
    """Labels of tokens without a mark where one begins."""
    if "IO" not in get_args(Scheme):
        return
    for path, words in lists.items():
        for other, tags in lists.items():
            kinds = {tag for listed in tags for tag in listed}
            if other != path and "O" in kinds and len(kinds) <= 60 and _as_long(tags, words):
                body = {"tokens": path, **_glue([word for listed in words[:50] for word in listed])}
                yield Guess(
                    "ner", {**body, "tags": other, "scheme": "IO"}, 0.85, (f"{other} labels each of {path}",)
                )
                return


def _listed(field: Field) -> list[list[str]] | None:
    """Lists of words, or strings of them."""
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


def scheme_of(sentences: list[list[str]]) -> tuple[Scheme, str]:
    """The scheme of tags, and what it was told by."""
    marks = {tag[0] for tags in sentences for tag in tags if tag != "O"}
    if "M" in marks and "I" not in marks:
        return "BMES", "M- marks the middle of a mention"
    if marks & {"E", "S"}:
        return "BIOES", "E- and S- mark ends and single tokens"
    for tags in sentences:
        before = "O"
        for tag in tags:
            if tag[0] == "I" and before[1:] != tag[1:]:
                return "IOB", f"{tag} begins a mention without B-"
            before = tag
    return "BIO", "every mention begins with B-"


def _spans(fields: Fields, body: Map) -> Iterator[Guess]:
    """Lists of mentions, and relations between them."""
    found = []
    for base in _bases(fields):
        inside = below(fields, base)
        place = place_of(inside)
        if not place:
            continue
        keys = re.findall(r"\{\w+\}", base)
        label = label_of(inside, {*place.values()})
        if "words" not in place and len(keys) > 1 and "start" in place:
            place = {**place, "words": keys[-1]}
        kind = {"label": label} if label else {"label": keys[0]} if keys else {"as": "mention"}
        each = _optional(fields, base)
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
            score -= 0.15  # of events there is more to be had
        plain = {key: value for key, value in spans.items() if key != "id"}
        why = (f"each of {base} has a place ({', '.join(place.values())})",)
        yield Guess("ner", {**body, "spans": plain}, min(0.9, score), why)
        if not both and "words" in place:
            continue
    for base, spans, own, score in found or [("", {}, None, 0.0)]:
        yield from _relations(fields, body, base, spans, own, score)


def _bases(fields: Fields) -> list[str]:
    """Paths to the items of lists and open objects, which may be mentions."""
    found = {}
    for path in fields:
        for match in re.finditer(r"\[\](?=\.|$)|\{\w+\}(?=\.|$)", path):
            found[path[: match.end()]] = True
    return list(found)


def _optional(fields: Fields, base: str) -> str:
    """A path with `?` at its first key where some rows lack it."""
    first = re.match(r"[^.\[{]+", base)
    field = fields.get(first[0]) if first else None
    return f"{first[0]}?{base[first.end() :]}" if first and field and field.rows < field.of else base


def _relations(fields: Fields, body: Map, of: str, spans: Map, own: str | None, sure: float) -> Iterator[Guess]:
    for base in _bases(fields):
        if base == of or not base.endswith("[]"):
            continue
        inside = below(fields, base)
        for head, tail in ENDS:
            ends = [_end(inside, name) for name in (head, tail)]
            if ends[0] is None or ends[1] is None:
                continue
            named = [end for end in ends if isinstance(end, str)]
            taken = {path for path in inside if path.split(".")[0] in (head, tail)}
            label = label_of(inside, {*taken, *named})
            kind = {"label": label} if label else {"as": "related"}
            given = spans
            if len(named) == 2 and not own and spans:  # ends are positions among the mentions
                each = re.sub(r"\[\]$", ".{entity}", spans["each"], count=1)
                each = re.sub(r"\[\]\[\]$", ".{entity}[]", spans["each"]) if "[][]" in spans["each"] else each
                given = {**spans, "each": each, "id": "{entity}"}
            if len(named) == 2 and not spans:
                continue
            relations: Map = {"each": _optional(fields, base), **kind, "head": ends[0], "tail": ends[1]}
            mapping = {**body, **({"spans": given} if named else {}), "relations": relations}
            why = (f"each of {base} joins a {head} and a {tail}",)
            yield Guess("relation", mapping, 0.88 + 0.05 * bool(label), why)
            break


def _end(inside: Fields, name: str) -> Any:
    """What an end of a relation is: an id, or a mention of its own."""
    own = {path[len(name) + 1 :]: field for path, field in inside.items() if path.startswith(f"{name}.")}
    if own and (place := place_of(own)):
        label = label_of(own, {*place.values()})
        inner = {key: f"{name}.{path}" for key, path in place.items()}
        return {**inner, **({"label": f"{name}.{label}"} if label else {"as": "mention"})}
    field = inside.get(name)
    if field is None or not field.all(str, int):
        return None
    if field.all(str) and sum(" " in value for value in field.values) > 0.1 * len(field.values):
        kind = inside.get(f"{name}_type")
        return {"words": name, **({"label": f"{name}_type"} if kind else {"as": "mention"})}
    return name


def _events(fields: Fields, body: Map) -> Iterator[Guess]:
    for base in _bases(fields):
        inside = below(fields, base)
        lists = [
            other
            for other in _bases(fields)
            if other.startswith(f"{base}.") and other.endswith("[]") and other.count("[]") == base.count("[]") + 1
        ]
        for trigger in ("trigger", "nugget", "event_trigger"):
            at = _trigger(inside, trigger)
            if not at:
                continue
            kinds = {p: f for p, f in inside.items() if not p.startswith(trigger)}
            label = label_of(kinds, {*at.values()}, "event_type subtype eventtype type label category class")
            if not label:
                continue
            parts = [part for other in lists if (part := _arguments(fields, base, other))]
            event: Map = {"each": _optional(fields, base), "label": label, "trigger": at}
            spans: Map = {}
            if parts:
                event["arguments"] = parts[0]
                if isinstance(parts[0]["target"], str):  # the id of a mention that is elsewhere in the row
                    spans = {"spans": found} if (found := _named(fields, base)) else {}
            why = (f"each of {base} has a {trigger}" + (" and arguments" if parts else ""),)
            yield Guess("event", {**body, **spans, "events": event}, 0.97 if parts else 0.8, why)


def _named(fields: Fields, other: str) -> Map | None:
    """A list of mentions with ids."""
    for base in _bases(fields):
        inside = below(fields, base)
        place, own = place_of(inside), id_of(inside)
        if base != other and own and ("start" in place or "indices" in place):
            label = label_of(inside, {*place.values(), own})
            return {"each": _optional(fields, base), "id": own, **place, **({"label": label} if label else {})}
    return None


def _trigger(inside: Fields, name: str) -> dict[str, str]:
    own = {path[len(name) + 1 :]: field for path, field in inside.items() if path.startswith(f"{name}.")}
    if own:
        return {key: f"{name}.{path}" for key, path in place_of(own).items()}
    found = place_of({path: f for path, f in inside.items() if path.startswith(name)}, f"{name}_")
    if name in inside and inside[name].all(str):
        return {**{k: v for k, v in found.items() if k in ("start", "end")}, "words": name}
    return found


def _arguments(fields: Fields, base: str, path: str) -> Map | None:
    inside = below(fields, path)
    roles = [
        p for p in inside if hint(p.replace(".", "_"), "role role_type type label") >= 0.7 and inside[p].all(str)
    ]
    role = max(roles, key=lambda p: hint(p.replace(".", "_"), "role role_type type label"), default=None)
    inner = f"{path[len(base) + 1 :]}"
    if not role:
        return None
    ends = {p: f for p, f in inside.items() if p != role and not p.startswith("role.")}
    target: Any = place_of(ends) or place_of(ends, "argument_")
    named = next((p for p in ends if hint(p, "entity_id refid") >= 0.6), None)
    if named and "start" not in (target or {}):
        target = named
    if not target:
        return None
    if isinstance(target, dict) and (kind := label_of(ends, {*target.values()}, "entity_type type label kind")):
        target["label"] = kind
    first = inner.split("[]")[0]
    some = fields.get(f"{base}.{first}")
    whole = fields.get(base)
    lacking = bool(some and whole and len(some.values) < len(whole.values))
    return {"each": inner.replace("[]", "?[]", 1) if lacking else inner, "role": role, "target": target}


def _clusters(fields: Fields, body: Map) -> Iterator[Guess]:
    """Lists of clusters, each a list of mentions."""
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
