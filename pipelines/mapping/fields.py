"""Typed access to the fields of raw rows. A row whose field has the wrong type is rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from pipelines.mapping.paths import Scope, has_items, value
from pipelines.mapping.refused import RefusedError, as_json, short
from ubert.schema.record import Category, Kind

Value = TypeVar("Value")
_MAX_INDEX = 1 << 31  # larger than any offset or number in a text
# The keys True and False also match 1 and 0, which equal them.
_FLAGS = {True: True, "true": True, "1": True, False: False, "false": False, "0": False}
_EMPTY = {"": False, None: False}

Field = Callable[[Scope], Value]


def text_field(path: str) -> Field[str]:
    return _typed(path, str, "a string")


def list_field(path: str) -> Field[list[Any]]:
    return _typed(path, list, "a list")


def _typed(path: str, kind: type[Value], expected: str) -> Field[Value]:
    get = value(path)

    def typed(scope: Scope) -> Value:
        found = get(scope)
        if not isinstance(found, kind):
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected {expected}")
        return found

    return typed


def whole_field(path: str) -> Field[int]:
    """Return a function that gets an integer field; the integer may be written as a string."""
    get = value(path)

    def whole(scope: Scope) -> int:
        found = get(scope)
        if type(found) is int and abs(found) < _MAX_INDEX:
            return found
        if isinstance(found, str) and len(found) < 10 and found.isascii() and found.removeprefix("-").isdigit():
            return int(found)
        raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected a whole number")

    return whole


def flag_field(path: str, *, required: bool = False) -> Field[bool]:
    """Return a function that gets a boolean field. It may be written as a string or a number; null and an empty
    string are false, or refused if it is `required`."""
    get, flags = value(path), _FLAGS if required else _FLAGS | _EMPTY

    def flag(scope: Scope) -> bool:
        found = get(scope)
        try:
            return flags[found.casefold() if isinstance(found, str) else found]
        except (KeyError, TypeError):  # TypeError: a list or an object
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected true or false") from None

    return flag


def words_field(path: str) -> Field[list[str]]:
    """Return a function that gets a list of strings, or the words of a string."""
    get = value(path)

    def words(scope: Scope) -> list[str]:
        found = get(scope)
        if isinstance(found, str):
            return [word for word in found.split(" ") if word]
        if not is_words(found):
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected a list of strings")
        return found

    return words


def is_words(found: Any) -> TypeGuard[list[str]]:
    """Tell whether a value is a list of strings."""
    return isinstance(found, list) and {*map(type, found)} <= {str}


def joined_field(paths: list[str], between: str) -> Field[str]:
    """Return a function that joins several fields into one string. A path with `[]` gives all its values."""
    fields = [_strings_field(path) if has_items(path) else text_field(path) for path in paths]
    if len(fields) == 1 and not has_items(paths[0]):
        return text_field(paths[0])

    def joined(scope: Scope) -> str:
        found = (get(scope) for get in fields)
        return between.join(part if isinstance(part, str) else between.join(part) for part in found)

    return joined


def _strings_field(path: str) -> Field[list[str]]:
    get = value(path)

    def strings(scope: Scope) -> list[str]:
        found: list[str] = get(scope)
        if not all(isinstance(part, str) for part in found):
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected strings")
        return found

    return strings


def places(categories: tuple[Category, ...], kind: Kind, names: dict[str, str]) -> dict[str, int]:
    """Map each source label to the index of its category."""
    return {label: categories.index(Category(name, kind)) for label, name in names.items()}


def category_of(label: Any, index: dict[str, int]) -> int:
    """Return the index of a label's category. A label that isn't a string is looked up as JSON."""
    found = index.get(label if type(label) is str else as_label(label))
    if found is None:
        raise RefusedError("unknown category", f"{short(label)} is not among the spec's categories")
    return found


def as_label(found: Any) -> str:
    """Return a label as specs write it: a string as it is, any other value as JSON."""
    return found if isinstance(found, str) else as_json(found)
