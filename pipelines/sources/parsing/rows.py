"""Find the rows in a JSON-like value by a path, and add fields of the enclosing objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import AfterValidator, Field

from pipelines.mapping.paths import Step, steps
from pipelines.mapping.refused import as_json, child, short
from pipelines.sources import FormatOptions, RawRow, Slice
from pipelines.sources.parsing.text import Repeated, all_as_json, repeated
from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.specs.mapping import Path


def _absolute(path: str) -> str:
    if path.startswith("/"):
        raise ValueError("expected a path from the top of the file, without a `/`")
    return path


Route = Annotated[Path, AfterValidator(_absolute)]
Place = tuple[str, ...]


class RowOptions(FormatOptions):
    """Where the rows are."""

    rows: list[Route] = Field(default=["[]"], min_length=1)
    """The paths to the rows, such as `data[].items[]`. With `{x}` in a path, the row has its key or position as
    the field x."""
    enclosing: list[str] = Field(default_factory=list)
    """Fields of the surrounding objects, or positions in the surrounding lists, to add to a row."""
    columns: list[str] | None = Field(default=None, min_length=1)
    """The names of the items, if rows are lists."""
    item: str | None = None
    """The name of the field, if rows are single values."""


class JsonOptions(RowOptions):
    """Where the rows are, and how strictly JSON is read."""

    control_characters: bool = False
    """Allow line ends and tabs within strings, which JSON forbids."""


def rows_of(
    piece: Slice, whole: Any, options: RowOptions, line: int = 1, before: Place = ()
) -> Iterator[RawRow | Reject]:
    """Yield a row for each item at the paths `rows`. Its locator is `before` and its place in `whole`. The
    detail of a reject begins with it.

    If a repeated key puts several rows in one place, all but the first are rejected. A row with a repeated key, or
    with an object that has one, is rejected, because only one of its values could be kept. An item without the
    rest of a path is rejected, too.

    Raises:
        UserError: a path doesn't exist before its first items.
    """
    routes = [steps(route) for route in options.rows]
    found = chain.from_iterable(_walk(piece, whole, route, before, {}, options.enclosing) for route in routes)
    seen: set[str] = set()
    for one in found:
        if isinstance(one, Reject):
            yield replace(one, line=line)
            continue
        place, around, value = one
        where = _joined(place)
        at = f"#{where}: " if where else ""
        if where in seen:
            yield Reject(piece.path, line, "repeated key", f"{at}an earlier row is there, too", as_json(value))
            continue
        seen.add(where)
        if problem := repeated(value):
            yield Reject(piece.path, line, "repeated key", at + problem, all_as_json(value))
            continue
        if options.columns is not None and isinstance(value, list):
            if len(value) != len(options.columns):
                detail = f"{at}expected {len(options.columns)} items, got {len(value)}"
                yield Reject(piece.path, line, "wrong column count", detail, as_json(value))
                continue
            value = dict(zip(options.columns, value, strict=True))
        if options.item is not None and not isinstance(value, dict):
            value = {options.item: value}
        if isinstance(value, dict):
            yield RawRow(line, f"{piece.path}#{where}", {**around, **value})
        else:
            expected = "an object" if options.columns is None else "a list"
            yield Reject(piece.path, line, "wrong type", f"{at}expected {expected}", as_json(value))


def _joined(place: Place) -> str:
    """Join the keys of a locator by dots, and escape those within the keys."""
    return ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in place)


def _walk(
    piece: Slice,
    node: Any,
    route: tuple[Step, ...],
    place: Place,
    around: dict[str, Any],
    wanted: list[str],
    among: bool = False,
) -> Iterator[tuple[Place, dict[str, Any], Any] | Reject]:
    """Yield (place, fields of enclosing objects, row) of each row below `node`. `among`: `node` is in one of
    several items, so that others may have rows if it has none."""
    if not route:
        yield place, around, node
        return
    step, rest = route[0], route[1:]
    if step.items and isinstance(node, list):
        for i, item in enumerate(node):
            yield from _walk(piece, item, rest, (*place, str(i)), around, wanted, among=True)
        return
    if wanted:
        around = {**around, **{key: found for key in wanted if (found := child(node, key)) is not None}}
    if step.name and isinstance(node, dict | list):
        for key, item in _pairs(node):
            yield from _walk(piece, item, rest, (*place, key), {**around, step.name: key}, wanted, among=True)
        return
    below = child(node, step.key) if step.key else None
    if below is not None:
        found = [item for key, item in node.pairs if key == step.key] if isinstance(node, Repeated) else [below]
        for item in found:
            yield from _walk(piece, item, rest, (*place, step.key), around, wanted, among)
    elif not step.optional:
        there = ", ".join(node) if isinstance(node, dict) else short(node)
        missing = "list" if step.items else f"key {step.key or step.name!r}"
        where, found = _joined(place), f"there is {there[:200]}; correct `rows` in the spec"
        if not among:
            raise UserError(f"{piece.place}: no {missing} at {where or 'its top'}, {found}")
        yield Reject(piece.path, 1, "no rows", f"#{where}: no {missing}, {found}", as_json(node))


def _pairs(node: dict[str, Any] | list[Any]) -> Iterable[tuple[str, Any]]:
    """Return pairs of key or position and value, including all values of a repeated key."""
    if isinstance(node, list):
        return ((str(i), item) for i, item in enumerate(node))
    return node.pairs if isinstance(node, Repeated) else node.items()
