"""Guesses at events, with triggers, and arguments that are mentions or their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pipelines.drafting.tasks.fields import Fields
from pipelines.drafting.tasks.guess import Guess, Map, each_of, hint
from pipelines.drafting.tasks.places import bases, below, id_of, label_of, optional, place_of


def events(fields: Fields, body: Map) -> Iterator[Guess]:
    """Guess events from lists of objects that have a trigger."""
    for base in bases(fields):
        inside = below(fields, base)
        lists = [
            other
            for other in bases(fields)
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
            parts = [*parts[:1], *_single(fields, base, inside, trigger)]
            event: Map = {"each": optional(fields, base), "label": label, "trigger": at}
            spans: Map = {}
            if parts:
                event["arguments"] = parts[0] if len(parts) == 1 else parts
                if isinstance(parts[0]["target"], str):  # the id of a mention elsewhere in the row
                    spans = {"spans": found} if (found := _named(fields, base)) else {}
            why = (f"{each_of(base)} has the field {trigger!r}" + (" and arguments" if parts else ""),)
            others = [role for other in lists for role in _no_mentions(fields, body, other)]
            ignored = {"ignore_labels": others} if others else {}
            yield Guess("event", {**body, **ignored, **spans, "events": event}, 0.97 if parts else 0.8, why)


def _trigger(inside: Fields, name: str) -> dict[str, str]:
    if own := below(inside, name):
        return {key: f"{name}.{path}" for key, path in place_of(own).items()}
    found = place_of({path: f for path, f in inside.items() if path.startswith(name)}, f"{name}_")
    if name in inside and inside[name].all(str):
        return {**{k: v for k, v in found.items() if k in ("start", "end")}, "words": name}
    return found


def _single(fields: Fields, base: str, inside: Fields, trigger: str) -> Iterator[Map]:
    """Map arguments that the event has one of, each under the name of its role."""
    whole = fields.get(base)
    for name in dict.fromkeys(path.split(".")[0] for path in inside if "." in path):
        own = below(inside, name)
        place = place_of(own)
        if name != trigger and "start" in place:
            lacking = whole is not None and max(len(field.values) for field in own.values()) < len(whole.values)
            yield {"each": f"{name}?" if lacking else name, "as": name, "target": {**place, "as": name}}


def _no_mentions(fields: Fields, body: Map, path: str) -> Iterator[str]:
    """Find roles whose fillers are in no text: they are classes of the event, not mentions."""
    inside, texts = below(fields, path), _joined(fields, body)
    role, words = _role(inside), place_of(inside).get("words") or place_of(inside, "argument_").get("words")
    if not role or not words or not texts or len(inside[role].values) != len(inside[words].values):
        return
    there: defaultdict[str, list[bool]] = defaultdict(list)
    for name, filler in zip(inside[role].values, inside[words].values, strict=True):
        there[name].append(filler in texts)
    yield from (name for name, found in there.items() if len(found) > 4 and sum(found) < 0.5 * len(found))


def _joined(fields: Fields, body: Map) -> str:
    paths = body.get("text", [])
    found = [fields[path] for path in ([paths] if isinstance(paths, str) else paths)]
    return "\n".join(value for field in found if field.all(str) for value in field.values)


def _role(inside: Fields) -> str | None:
    named = {path: hint(path.replace(".", "_"), "role role_type type label") for path in inside}
    roles = [path for path, likely in named.items() if likely >= 0.7 and inside[path].all(str)]
    return max(roles, key=named.__getitem__, default=None)


def _arguments(fields: Fields, base: str, path: str) -> Map | None:
    inside = below(fields, path)
    role = _role(inside)
    inner = path[len(base) + 1 :]
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


def _named(fields: Fields, other: str) -> Map | None:
    """Find a list of mentions with ids."""
    for base in bases(fields):
        inside = below(fields, base)
        place, own = place_of(inside), id_of(inside)
        if base != other and own and ("start" in place or "indices" in place):
            label = label_of(inside, {*place.values(), own})
            return {"each": optional(fields, base), "id": own, **place, **({"label": label} if label else {})}
    return None
