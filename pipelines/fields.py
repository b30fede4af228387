"""Fields of raw rows, typed: what a spec's `map` names is got here, or the row is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from ubert.schema.record import Category, Kind

Value = TypeVar("Value")
Content = dict[str, Any]  # of a raw row


class RefusedError(Exception):
    """A row that cannot become a record: a short phrase to group by, and the whole story."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def any_field(path: str | None) -> Callable[[Any], Any]:
    """What gets a field (a key, or keys joined by dots) that is there and not null."""
    keys = (path or "").split(".")

    def get(content: Any) -> Any:
        value = content
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            raise RefusedError("missing field", f"no {path!r} in the row")
        return value

    return get


def text_field(path: str | None) -> Callable[[Any], str]:
    """What gets a field that holds a string."""
    return _typed(path, str, "a string")


def list_field(path: str | None) -> Callable[[Any], list[Any]]:
    """What gets a field that holds a list."""
    return _typed(path, list, "a list")


def dict_field(path: str | None) -> Callable[[Any], dict[str, Any]]:
    """What gets a field that holds an object."""
    return _typed(path, dict, "an object")


def _typed(path: str | None, kind: type[Value], expected: str) -> Callable[[Any], Value]:
    get = any_field(path)

    def typed(content: Any) -> Value:
        value = get(content)
        if not isinstance(value, kind):
            raise RefusedError("wrong type", f"{path!r} is {short(value)}, expected {expected}")
        return value

    return typed


def words_field(path: str | None) -> Callable[[Any], list[str]]:
    """What gets a field that holds a list of strings, or a string of words."""
    get = any_field(path)

    def words(content: Any) -> list[str]:
        value = get(content)
        if isinstance(value, str):
            return [word for word in value.split(" ") if word]
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise RefusedError("wrong type", f"{path!r} is {short(value)}, expected a list of strings")
        return value

    return words


def places(categories: tuple[Category, ...], kind: Kind, names: dict[str, str]) -> dict[str, int]:
    """Source label to the place of its category among the record's."""
    return {label: categories.index(Category(name, kind)) for label, name in names.items()}


def category_of(label: Any, index: dict[str, int]) -> int:
    """The place of a label's category; a label that is no string is looked up as JSON writes it."""
    found = index.get(label if isinstance(label, str) else json.dumps(label))
    if found is None:
        raise RefusedError("unknown category", f"{short(label)} is not among the spec's categories")
    return found


def short(value: Any) -> str:
    """A value as it is shown in a sentence."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
