"""Paths into JSON-like values, as specs write them.

a.b         keys joined by dots; a number selects an item of a list; `.` is the value itself
a[].b       every item of the list `a`
a.{x}       every key of the object `a` (or position in the list `a`), called x from there on
a?[]        nothing if there is no `a`; without `?` the row is rejected (missing field)
/a.b        starts at the row, where other paths start at an item of the row
"a.b"       the key `a.b`: in double quotes, no sign has a meaning; `""` is a double quote
{x}, a.{x}  the key called x, and its value in `a`; if no earlier path has named x, the row's field x is the key
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from pipelines.mapping.refused import RefusedError, child, is_literal, missing, short
from ubert.schema.specs.mapping import QUOTED, unquoted

_NAME = re.compile(r"\{\w+\}")
_STEP = re.compile(rf"(?P<items>\[\])|\{{(?P<name>\w+)\}}|(?P<key>{QUOTED}|[^.\[\]{{}}?]+)(?P<optional>\?)?")


class Scope(Struct, frozen=True, gc=False):
    """Where paths are resolved: an item of a row, the row itself, and the keys named on the way to the item.
    `place` is what errors call the item."""

    item: Any
    row: Any
    named: dict[str, str]
    place: str = "the row"


class Step(NamedTuple):
    """A step of a path: to a key, to the items of a list, or to all keys of an object under a name."""

    key: str = ""
    items: bool = False
    name: str = ""
    optional: bool = False


def steps(path: str) -> tuple[Step, ...]:
    """Split a path, without its leading `/`, into steps."""
    if path in ("", "."):
        return ()
    return tuple(
        Step(unquoted(match["key"] or ""), bool(match["items"]), match["name"] or "", bool(match["optional"]))
        for match in _STEP.finditer(path)
    )


def has_items(path: str) -> bool:
    """Tell whether a path leads to every item of a list."""
    return any(step.items for step in steps(path.removeprefix("/")))


def values(path: str) -> Callable[[Scope], Iterable[Scope]]:
    """Return a function that iterates over all values at a path, with the keys named on the way to each.

    Raises:
        RefusedError: when called: the field is missing, or is not a list or object to iterate over.
    """
    route = steps(path.removeprefix("/"))
    if route and route[-1].items and _is_plain(route[:-1]):
        return _items(path, route[:-1])

    def walk(scope: Scope) -> Iterator[Scope]:
        return _walk(_start(path, scope), route, path, scope, scope.named)

    return walk


@cache
def place_of(path: str, left: int = 0) -> str:
    """Return what errors call the value at a path, or at the path without its last `left` steps. It is empty if no
    step is left."""
    route = steps(path.removeprefix("/"))
    text = ""
    for step in route[: len(route) - left]:
        key = f"{{{step.name}}}" if step.name else step.key
        text += "[]" if step.items else f".{key}" if text else key
    return f"an item of {text}" if text.endswith(("[]", "}")) else text


def _start(path: str, scope: Scope) -> Any:
    return scope.row if path.startswith("/") else scope.item


def _within(path: str, scope: Scope) -> str:
    return "the row" if path.startswith("/") else scope.place


def _walk(
    node: Any, route: tuple[Step, ...], path: str, scope: Scope, named: dict[str, str], below: bool = False
) -> Iterator[Scope]:
    """Yield the values at a route from `node`. `below`: `node` is an item on the way, and not the path's start."""
    top, keys = node, list[str]()
    for i, step in enumerate(route):
        rest = route[i + 1 :]
        if step.items:
            if not isinstance(node, list):
                raise RefusedError("wrong type", f"{path!r} leads to {short(node)}, expected a list")
            for item in node:
                if rest:
                    yield from _walk(item, rest, path, scope, named, below=True)
                else:
                    yield Scope(item, scope.row, named, place_of(path) or scope.place)
            return
        if step.name and step.name not in named:
            for key, item in _keys(node, path):
                yield from _walk(item, rest, path, scope, {**named, step.name: key}, below=True)
            return
        key = named[step.name] if step.name else step.key
        keys.append(key)
        above, node = node, child(node, key)
        if node is None:
            if step.optional and not is_literal(above, key):
                return
            raise missing(path, top, keys, _within(path, scope), place_of(path, len(route)) if below else "it")
    yield Scope(node, scope.row, named, place_of(path) or scope.place)


def _keys(node: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, list):
        return [(str(i), item) for i, item in enumerate(node)]
    raise RefusedError("wrong type", f"{path!r} leads to {short(node)}, expected an object or a list")


def value(path: str) -> Callable[[Scope], Any]:
    """Return a function that gets the value at a path, or the list of all values if the path iterates over
    items. It returns None if an optional step leads to nothing.

    Raises:
        RefusedError: when called: the value is missing or null.
    """
    if _NAME.fullmatch(path):
        return lambda scope: _named(scope, path[1:-1])
    route = steps(path.removeprefix("/"))
    if _is_plain(route):
        return _plain(path, route)
    several = has_items(path)

    def get(scope: Scope) -> Any:
        known = tuple(
            step._replace(key=_named(scope, step.name), name="") if step.name else step for step in route
        )
        found = [found.item for found in _walk(_start(path, scope), known, path, scope, scope.named)]
        return found if several else next(iter(found), None)

    return get


def _named(scope: Scope, name: str) -> str:
    found = scope.named.get(name)
    if found is None and isinstance(scope.row, dict):
        found = scope.row.get(name)
    if not isinstance(found, str):
        detail = f"no earlier path names a key {name!r}, and the row has no field {name!r} with a string"
        raise RefusedError("missing field", detail)
    return found


def _is_plain(route: tuple[Step, ...]) -> bool:
    return not any(step.items or step.name for step in route)


def _plain(path: str, route: tuple[Step, ...]) -> Callable[[Scope], Any]:
    """Do the work of `value` for a path of keys only, which is faster without `_walk`."""
    if len(route) == 1 and not path.startswith("/"):
        return _of_item(path, route[0])
    from_row, keys = path.startswith("/"), [step.key for step in route]

    def get(scope: Scope) -> Any:
        start = node = scope.row if from_row else scope.item
        for step in route:
            above, node = node, child(node, step.key)
            if node is None and step.optional and not is_literal(above, step.key):
                return None
            if node is None:
                break
        if node is None:
            raise missing(path, start, keys, _within(path, scope))
        return node

    return get


def _of_item(path: str, step: Step) -> Callable[[Scope], Any]:
    """Do the work of `value` for a path of one key, the most common case."""
    key, optional = step.key, step.optional

    def get(scope: Scope) -> Any:
        item = scope.item
        found = item.get(key) if type(item) is dict else child(item, key)
        if found is None and (not optional or is_literal(item, key)):
            raise missing(path, item, [key], scope.place)
        return found

    return get


def _items(path: str, route: tuple[Step, ...]) -> Callable[[Scope], list[Scope]]:
    """Do the work of `values` for the items of one list, without `_walk`."""
    get, optional, place = _plain(path, route), any(step.optional for step in route), place_of(path)

    def items(scope: Scope) -> list[Scope]:
        found = get(scope)
        if found is None and optional:
            return []
        if not isinstance(found, list):
            raise RefusedError("wrong type", f"{path!r} leads to {short(found)}, expected a list")
        row, named = scope.row, scope.named
        return [Scope(item, row, named, place) for item in found]

    return items
