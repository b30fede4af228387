"""Finds the rows in a JSON-like value, and returns the options `rows`, `enclosing`, `columns` and `item`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pipelines.drafting.formats.files import split_of
from pipelines.drafting.formats.proposal import Proposal
from pipelines.drafting.formats.tables import USUAL_COLUMN
from pipelines.drafting.names import is_key, step
from pipelines.drafting.tasks.guess import hint
from ubert.schema.record import Split

DEEPEST, MANY, WIDEST = 6, 6, 12
_LABEL = "tag intent label category class topic name"
_TEXTS = "patterns utterances examples texts text sentences questions queries inputs samples"
OPEN_KEYS = 8  # an object with as many keys, whose values are alike, contains rows by key


class _Found(NamedTuple):
    path: str
    items: list[Any]
    enclosing: list[str]


def routes(content: Any) -> list[Proposal]:
    """Return the possible places of rows in a value, likeliest first."""
    found = [route for place in _places(content, "", [], 0) if (route := _route(place))]
    found += _texts_of_labels(content)
    if isinstance(content, dict) and are_columns(content):
        found.append(
            Proposal({"by_column": True}, 0.95, f"each of {len(content):,} keys has the values of a column")
        )
    if parts := _parts(content):
        found.append(parts)
    if isinstance(content, dict) and not is_open(content):
        document = any(isinstance(item, str) and item.count(" ") >= 15 for item in content.values())
        found.append(Proposal({"rows": ["."]}, 0.85 if document else 0.5, "the file is one object"))
    return sorted(found, key=lambda route: -route.score)[:5]


def _parts(content: Any) -> Proposal | None:
    """Find the rows of a file that has a list for each split."""
    if not isinstance(content, dict) or not all(isinstance(item, list) and item for item in content.values()):
        return None
    splits = {key: split_of(key) for key in content}
    if len(content) < 2 or not all(why for _, why in splits.values()):
        return None
    first = _route(_Found("[]", next(iter(content.values())), []))
    if first is None:
        return None
    parts: dict[Split, dict[str, Any]] = {}
    for key, (split, _) in splits.items():
        parts.setdefault(split, {"rows": []})["rows"].append(f"{key}[]")
    return Proposal(
        {**first.options, **next(iter(parts.values()))}, 0.98, "the file has a list for each split", parts
    )


def _texts_of_labels(content: Any, path: str = "") -> Iterator[Proposal]:
    """Find lists of texts that have one label each: beside it, as in `[{"tag": ..., "patterns": [...]}]`, or as
    their key."""
    if isinstance(content, dict):
        if are_texts_by_label(content):
            why = f"each of {len(content):,} keys has a list of texts"
            yield Proposal({"rows": [f"{path}{'.' if path else ''}{{label}}[]"], "item": "text"}, 0.9, why)
        elif not path:
            for key, item in content.items():
                if to_key := step(key):
                    yield from _texts_of_labels(item, to_key)
        return
    if not (isinstance(content, list) and len(content) > 1 and all(isinstance(item, dict) for item in content)):
        return
    columns = {key: [item.get(key) for item in content] for key in content[0] if is_key(key)}
    labels = [key for key, values in columns.items() if _are_names(values)]
    label = max(labels, key=lambda key: hint(key, _LABEL), default=None)
    if label is None or not hint(label, _LABEL):
        return
    listed = [key for key, values in columns.items() if _are_texts(values)]
    for place, key in enumerate(sorted(listed, key=lambda key: -hint(key, _TEXTS))):
        why = f"each item of {path or '[]'!r} has a list {key!r} of texts, and its own {label!r}"
        options = {"rows": [f"{path}[].{key}[]"], "item": "text", "enclosing": [label]}
        yield Proposal(options, 0.9 - 0.2 * place, why)


def are_columns(content: dict[str, Any]) -> bool:
    """Tell whether an object has a list of values for each column, or an object of them by row. One has texts."""
    columns = [[*one.values()] if isinstance(one, dict) else one for one in content.values()]
    if len(columns) < 2 or not all(isinstance(column, list) and len(column) > 1 for column in columns):
        return False
    alike = len({type(one) for one in content.values()}) == 1 and len({*map(len, columns)}) == 1
    flat = not any(isinstance(value, list | dict) for column in columns for value in column)
    return alike and flat and any(all(isinstance(value, str) and " " in value for value in one) for one in columns)


def are_texts_by_label(content: dict[str, Any]) -> bool:
    """Tell whether an object has a list of texts for each label, rather than for each column or split."""
    names = any(USUAL_COLUMN.fullmatch(key) or split_of(key)[1] for key in content)
    return not names and _are_texts([*content.values()])


def _are_texts(values: list[Any]) -> bool:
    """Tell whether values are lists of texts: of strings, of which several have more than one word."""
    lists = [value for value in values if isinstance(value, list)]
    texts = [text for one in lists for text in one]
    if len(values) < 2 or len(lists) < len(values) or not all(isinstance(text, str) for text in texts):
        return False
    return len(texts) > len(values) and sum(" " in text.strip() for text in texts) >= 0.3 * len(texts)


def _are_names(values: list[Any]) -> bool:
    """Tell whether values are distinct short strings."""
    return len({value for value in values if isinstance(value, str) and 0 < len(value) <= 60}) == len(values)


def _places(node: Any, path: str, enclosing: list[str], depth: int) -> Iterator[_Found]:
    """Find lists and open objects, outer ones before inner ones."""
    if depth > DEEPEST:
        return
    if isinstance(node, list) and len(node) > 0:
        yield _Found(f"{path}[]", node, enclosing)
        if isinstance(node[0], dict):
            yield from _places(node[0], f"{path}[]", enclosing, depth + 1)
        elif isinstance(node[0], list):
            texts = [str(i) for i, part in enumerate(node[0]) if _is_text(part)]
            for i, part in enumerate(node[0]):  # each position of such a list has its own meaning
                if isinstance(part, list | dict):
                    yield from _places(part, f"{path}[].{i}", [*enclosing, *texts], depth + 1)
    elif isinstance(node, dict):
        texts = [key for key, item in node.items() if _is_text(item) or _is_dialogue(item)]
        dot = "." if path else ""
        if is_open(node):
            yield _Found(f"{path}{dot}{{key}}", list(node.values()), enclosing)
            yield from _places(next(iter(node.values())), f"{path}{dot}{{key}}", enclosing, depth + 1)
            return
        for key, item in node.items():
            if to_key := step(key):
                around = [text for text in texts if text != key]
                yield from _places(item, f"{path}{dot}{to_key}", [*enclosing, *around], depth + 1)


def is_open(node: dict[str, Any]) -> bool:
    """Tell whether an object's keys name its items: lists of objects, or objects with similar keys."""
    items = list(node.values())
    if not items:
        return False
    if all(isinstance(item, list) and item and isinstance(item[0], dict | list) for item in items):
        named = [{*item[0]} for item in items if isinstance(item[0], dict)]
        alike = not named or len(set.intersection(*named)) * 2 >= max(map(len, named))
        return alike and (len(items) > 1 or not str(next(iter(node))).islower())
    keys = {tuple(sorted(item)) for item in items[:50] if isinstance(item, dict)}
    return len(items) >= OPEN_KEYS and all(isinstance(item, dict) for item in items) and len(keys) <= 5


def _is_text(item: Any) -> bool:
    """Tell whether a value is a text of some words or a list of strings that form one, as in XML or a dialogue."""
    if isinstance(item, list):
        return bool(item) and all(isinstance(part, str) for part in item) and _is_text(" ".join(item))
    return isinstance(item, str) and (item.count(" ") >= 3 or (len(item) >= 15 and not item.isascii()))


def _is_dialogue(item: Any) -> bool:
    """Tell whether a value is a list of objects that are a sentence or an utterance each, with no list in it."""
    if not isinstance(item, list) or len(item) < 3 or not all(isinstance(part, dict) for part in item):
        return False
    values = [value for part in item for value in part.values()]
    inner = [each for value in values for each in (value if isinstance(value, list) else [value])]
    flat = not any(isinstance(each, dict | list) for each in inner)
    return flat and sum(any(map(_is_text, part.values())) for part in item) > 0.3 * len(item)


def _route(found: _Found) -> Proposal | None:
    path, items, around = found
    depth, first = path.count("[]") + path.count("{"), items[0]
    many = 0.1 * min(len(items), MANY) / MANY
    why = f"{path!r} has {len(items):,} item{'s' if len(items) > 1 else ''}"
    enclosing = {"enclosing": list(dict.fromkeys(around))} if around else {}
    if isinstance(first, dict) and first:
        own = any(_is_text(item) for item in first.values()) or any(_has_text(item) for item in first.values())
        score = (0.75 if own else 0.6 if around else 0.4) + many - 0.05 * (depth - 1)
        return Proposal({"rows": [path], **enclosing}, score, f"{why}, each an object")
    widths = {len(item) for item in items[:100] if isinstance(item, list)}
    texts = [item for item in first if isinstance(item, str) and _is_text(item)] if isinstance(first, list) else []
    if len(widths) == 1 and max(widths) <= WIDEST and texts:
        columns = [f"column{number}" for number in range(1, widths.pop() + 1)]
        return Proposal({"rows": [path], "columns": columns, **enclosing}, 0.6 + many, f"{why}, each a list")
    return None


def _has_text(item: Any) -> bool:
    if isinstance(item, dict):
        return any(map(_is_text, item.values()))
    if isinstance(item, list) and item:
        return isinstance(item[0], list | dict) or len(item) > 3
    return False
