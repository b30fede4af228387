"""Guesses at events, with triggers, and arguments that are mentions or their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.drafting.tasks.fields import Field
from pipelines.drafting.tasks.guess import Guess, hint
from pipelines.drafting.tasks.places import bases, below, id_of, label_of, optional, place_of

Fields = dict[str, Field]
Map = dict[str, Any]


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
            event: Map = {"each": optional(fields, base), "label": label, "trigger": at}
            spans: Map = {}
            if parts:
                event["arguments"] = parts[0]
                if isinstance(parts[0]["target"], str):  # the id of a mention elsewhere in the row
                    spans = {"spans": found} if (found := _named(fields, base)) else {}
            why = (f"each of {base} has a {trigger}" + (" and arguments" if parts else ""),)
            yield Guess("event", {**body, **spans, "events": event}, 0.97 if parts else 0.8, why)


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


def _named(fields: Fields, other: str) -> Map | None:
    """Find a list of mentions with ids."""
    for base in bases(fields):
        inside = below(fields, base)
        place, own = place_of(inside), id_of(inside)
        if base != other and own and ("start" in place or "indices" in place):
            label = label_of(inside, {*place.values(), own})
            return {"each": optional(fields, base), "id": own, **place, **({"label": label} if label else {})}
    return None
