"""JSON files that hold a list of rows, or lists of rows by key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import Field

from pipelines.sources import RawRow, Slice
from pipelines.sources._text import json_value
from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.yaml_file import Strict


class Options(Strict):
    """`rows`: where the rows are, each place as keys joined by dots; lists on the way are entered. `{name}` stands
    for every key, which the row then holds under that name. `columns` names the items of rows that are lists."""

    rows: list[str] = Field(default=[""], min_length=1)
    columns: list[str] | None = Field(default=None, min_length=1)


def split_at(options: Options) -> None:
    """A file is read whole."""
    return


def companions(path: Path, options: Options) -> list[Path]:
    """None."""
    return []


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """One row for each item that `rows` leads to.

    Raises:
        UserError: the file is not of its encoding, is not JSON (says line and column), or has no such key.
    """
    whole = json_value(piece)
    routes = [route.split(".") if route else [] for route in options.rows]
    for place, keys, value in chain.from_iterable(_rows(piece, whole, route, (), {}) for route in routes):
        where = ".".join(place)
        if options.columns is not None and isinstance(value, list):
            if len(value) != len(options.columns):
                detail = f"expected {len(options.columns)} items, got {len(value)} at {where}"
                yield Reject(piece.path, 1, "wrong column count", detail, json.dumps(value))
                continue
            value = dict(zip(options.columns, value, strict=True))
        if isinstance(value, dict):
            yield RawRow(1, f"{piece.path}#{where}", {**keys, **value})
        else:
            expected = "an object" if options.columns is None else "a list"
            yield Reject(piece.path, 1, "wrong type", f"expected {expected} at {where}", json.dumps(value))


def _rows(
    piece: Slice, node: Any, steps: list[str], place: tuple[str, ...], keys: dict[str, str]
) -> Iterator[tuple[tuple[str, ...], dict[str, str], Any]]:
    """(place, keys on the way, row) of each row under `node`."""
    if isinstance(node, list):
        for i, item in enumerate(node):
            if steps:
                yield from _rows(piece, item, steps, (*place, str(i)), keys)
            else:
                yield (*place, str(i)), keys, item
        return
    if not steps:
        yield place, keys, node
        return
    step, *rest = steps
    if isinstance(node, dict) and step.startswith("{") and step.endswith("}"):
        for key, value in node.items():
            yield from _rows(piece, value, rest, (*place, key), {**keys, step[1:-1]: key})
    elif isinstance(node, dict) and step in node:
        yield from _rows(piece, node[step], rest, (*place, step), keys)
    else:
        there = ", ".join(node) if isinstance(node, dict) else f"a {type(node).__name__}"
        raise UserError(
            f"{piece.folder / piece.path}: no key {step!r} at {'.'.join(place) or 'its top'}, there is {there}; "
            "correct `rows` in the spec"
        )
