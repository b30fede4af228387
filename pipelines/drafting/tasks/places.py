"""Finds the fields that locate a mention: `start` and `end`, lists of them, token indices, or words alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations
from typing import Any

from pipelines.drafting.tasks.fields import MOST, Field, Fields, fields_of, mostly
from pipelines.drafting.tasks.guess import hint

START = "start begin from startoffset start_offset offset startindex start_index start_pos char_start b"
END = "end to stop endoffset end_offset endindex end_index end_pos finish char_end e"
WORDS = (
    "text words word name mention entity entity_text span value term string surface form tokens argument trigger"
)
LABEL = (
    "label labels type entity_type tag category class kind subtype event_type relation role slot ner polarity"
    " sentiment entity"
)


def below(fields: Fields, base: str) -> Fields:
    """Return the fields of the items at `base`, by their path within an item."""
    start = f"{base}." if base else ""
    inside = {path.removeprefix(start): field for path, field in fields.items() if path.startswith(start)}
    return {path: field for path, field in inside.items() if "[]" not in path and "{" not in path}


def kinds(fields: Fields) -> Iterator[tuple[str, dict[str, Any], Fields]]:
    """Yield the path of each list or open object, and the fields of its items by their path within an item.

    If `type` tells which fields an item has, yield these fields for each type, with a `when` that selects it.
    Label Studio lists mentions and relations so.
    """
    for base in bases(fields):
        of_types = _by_type(fields[base].values if base in fields else [])
        for one, inside in of_types.items():
            yield base, {"when": {"type": one}}, below(inside, "")
        if not of_types:
            yield base, {}, below(fields, base)


def _by_type(items: list[Any]) -> dict[str, Fields]:
    """Return the fields of each type of items; none unless each type has a field that all its items and no others
    have."""
    types = {str(item["type"]) for item in items if isinstance(item, dict) and isinstance(item.get("type"), str)}
    if not 2 <= len(types) <= 6 or not all(isinstance(item, dict) and item.get("type") in types for item in items):
        return {}
    found = {one: fields_of([item for item in items if item["type"] == one]) for one in sorted(types)}
    always = {one: {path for path, field in own.items() if field.rows == field.of} for one, own in found.items()}
    return found if all(always[one] - {*found[other]} for one, other in permutations(found, 2)) else {}


def place_of(inside: Fields, prefix: str = "") -> dict[str, str]:
    """Return the part of a `map` that locates a mention; empty if there is none. `prefix` is the prefix of
    its fields' names, such as `trigger_`."""
    numbers = {path: field for path, field in inside.items() if is_whole(field)}
    start = _best(numbers, START, prefix)
    end = _best({path: field for path, field in numbers.items() if path != start}, END, prefix)
    words = _words(inside, prefix)
    if start and end and _ascend(numbers[start], numbers[end]):
        return {"start": start, "end": end, **words, **_sentence(numbers)}
    for path, field in inside.items():
        if path.lower().startswith(prefix) and (pair := _pair(field, path)):
            return {**pair, **words, **_sentence(numbers)}
    if start and words:
        return {"start": start, **words}
    if not prefix and _is_listed_pair(inside):
        return {"start": "0", "end": "1"}
    return words


def label_of(inside: Fields, taken: set[str], words: str = LABEL) -> str | None:
    """Return the path of the label in an item, or None. A field with one value tells least."""
    few = {
        path: field
        for path, field in [*inside.items(), *_only_items(inside)]
        if path not in taken and field.all(str, int, bool) and not is_whole(field) and _is_few(field)
    }
    strings = [path for path in inside if path.isdigit() and path not in taken and inside[path].all(str)]
    if len(strings) == 1 and {"0", "1"} < {*inside} and not few:
        return strings[0]  # [start, end, label] with many distinct labels
    varied = {path: field for path, field in few.items() if field.distinct > 1}
    best = _best(varied, words) or _best(few, words)
    if best:
        return best
    listed = [path for path in few if path.isdigit()]
    return listed[-1] if listed else next(iter(few), None) if len(few) == 1 else None


def _only_items(inside: Fields) -> Iterator[tuple[str, Field]]:
    """Yield the only item of each list, if all lists of a field have one: Label Studio writes labels so."""
    for path, field in inside.items():
        if field.words and {*map(len, field.words)} == {1}:
            yield f"{path}.0", field._replace(path=f"{path}.0", values=[words[0] for words in field.words])


def id_of(inside: Fields) -> str | None:
    """Return the path of an item's id, or None."""
    ids = {path: field for path, field in inside.items() if field.all(str, int) and field.distinct > 1}
    return next((path for path in ids if hint(path.rpartition(".")[2], "id entity_id mention_id") >= 0.8), None)


def _best(fields: Fields, words: str, prefix: str = "") -> str | None:
    scored = {}
    for path in fields:
        key = path.removesuffix(".0")  # the only item of a list
        name = key.replace(".", "_").lower()
        if not name.startswith(prefix):
            continue
        bare = re.sub(r"([a-z])([A-Z])", r"\1_\2", key.rpartition(".")[2]).lower()
        scored[path] = max(hint(name.removeprefix(prefix), words), hint(bare, words))
    best = max(scored, key=scored.__getitem__, default=None)
    return best if best and scored[best] > 0 else None


def _words(inside: Fields, prefix: str) -> dict[str, str]:
    texts = {path: field for path, field in inside.items() if field.all(str) and not is_whole(field)}
    best = _best(texts, WORDS, prefix)
    if not best and prefix.strip("_") in texts:
        best = prefix.strip("_")
    field = texts.get(best or "")
    return {"words": best} if best and field and (field.distinct > 3 or len(field.values) < 8) else {}


def _sentence(numbers: Fields) -> dict[str, str]:
    """Return the field with the number of the sentence that token offsets count from."""
    named = [path for path in numbers if hint(path, "sent_id sentence_id sent_idx sentence_index sent_num") >= 0.5]
    return {"sentence": named[0]} if named else {}


def is_whole(field: Field) -> bool:
    return mostly(whole(value) is not None for value in field.values)


def whole(value: Any) -> int | None:
    """Return a whole number, also one that is written as a string, or None."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    return value if type(value) is int else None


def _is_few(field: Field) -> bool:
    longest = max(len(str(value)) for value in field.values)
    return longest <= 60 and (len(field.values) < 8 or field.distinct <= max(3, len(field.values) / 2))


def omits_zero(start: Field, end: Field) -> bool:
    """Tell whether the data leaves out a start of 0. If few mentions lack their start, these are damaged."""
    return len(start.values) < MOST * len(end.values)


def _ascend(start: Field, end: Field) -> bool:
    if len(start.values) != len(end.values):
        return len(end.values) >= MOST * len(start.values)
    both = [(whole(a), whole(b)) for a, b in zip(start.values, end.values, strict=True)]
    return mostly(a is not None and b is not None and a <= b for a, b in both)


def _pair(field: Field, path: str) -> dict[str, str] | None:
    """Map a list that is [start, end], or a list of token indices; of a list of such lists, its first. If all have
    two numbers, they are [start, end]: hardly any data has only mentions of two tokens."""
    lists = field.values
    if lists and all(isinstance(v, list) and v and all(isinstance(i, list) for i in v) for v in lists):
        lists, path = [v[0] for v in lists], f"{path}.0"
    if not all(isinstance(v, list) and v and all(type(i) is int for i in v) for v in lists) or not lists:
        return None
    if all(len(v) == 2 for v in lists) and mostly(v[0] <= v[1] for v in lists):
        return {"start": f"{path}.0", "end": f"{path}.1"}
    return {"indices": path}


def _is_listed_pair(inside: Fields) -> bool:
    first, second = inside.get("0"), inside.get("1")
    if first is None or second is None or len(first.values) != len(second.values):  # token indices, however many
        return False
    return _are_ints(first) and _are_ints(second) and _ascend(first, second)


def _are_ints(field: Field) -> bool:
    return mostly(type(value) is int for value in field.values)


def bases(fields: Fields) -> list[str]:
    """Return the paths of the items of lists and open objects, which may be mentions."""
    ends = re.compile(r"\[\](?=\.|$)|\{\w+\}(?=\.|$)")
    return list(dict.fromkeys(path[: match.end()] for path in fields for match in ends.finditer(path)))


def optional(fields: Fields, base: str) -> str:
    """Add `?` to the first key of a path if some rows lack it."""
    first = re.match(r"[^.\[{]+", base)
    field = fields.get(first[0]) if first else None
    return f"{first[0]}?{base[first.end() :]}" if first and field and field.rows < field.of else base
