"""The error that rejects a row, and how its message shows values."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable
from typing import Any

from ubert.schema.checks import is_utf8
from ubert.schema.specs.mapping import quoted
from ubert.schema.wrong_keys import shortened

short = shortened
MOST_FIELDS = 20  # maximum number of a row's fields to list in the message about a missing one
# json.dumps would make an encoder for each call
_ENCODE = {keys: json.JSONEncoder(ensure_ascii=False, sort_keys=keys).encode for keys in (False, True)}


class RefusedError(Exception):
    """A row cannot become a record. `reason` is a short phrase to group by, `detail` the full explanation."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def as_json(value: Any, *, sort_keys: bool = False) -> str:
    """Encode a value as JSON, with its letters as they are. If it has a lone surrogate, which can't be stored or
    printed, letters beyond ASCII are escaped. A value that is nested too deeply is abbreviated."""
    try:
        text = _ENCODE[sort_keys](value)
        return text if text.isascii() or is_utf8(text) else json.dumps(value, sort_keys=sort_keys)
    except RecursionError:
        return reprlib.repr(value)


def child(node: Any, key: str) -> Any:
    """Return the value of a key of an object or at a position of a list, or None if there is none."""
    if isinstance(node, dict):
        return node.get(key)
    if isinstance(node, list) and key.isascii() and key.isdigit() and int(key) < len(node):
        return node[int(key)]
    return None


def is_literal(node: Any, key: str) -> bool:
    """Tell whether an optional step `key?` is meant to be the key of an object that ends with `?`."""
    return isinstance(node, dict) and f"{key}?" in node


def missing(path: str, start: Any, keys: list[str], within: str = "the row", top: str = "it") -> RefusedError:
    """Make the error of a row in which `keys` lead to nothing from `start`. It tells how far they lead,
    and which fields are there.

    Args:
        within: where `path` begins: the row, or one of its items.
        top: what `start` is.
    """
    node = start
    for number, key in enumerate(keys):
        below = child(node, key)
        if below is not None:
            node = below
            continue
        where = ".".join(keys[:number]) or top
        if isinstance(node, dict) and key in node:
            why = f"{'.'.join(keys[: number + 1])} is null"
        elif isinstance(node, dict) and (literal := _literal(path, key, node)):
            written = path.replace(literal, quoted(literal), 1)
            why = f"{where} has the key {literal!r}; write it in double quotes: {written!r}"
        elif isinstance(node, dict):
            fields = [*node]
            more = f" and {len(fields) - MOST_FIELDS} more" if len(fields) > MOST_FIELDS else ""
            why = f"{where} has {', '.join(map(str, fields[:MOST_FIELDS])) or 'no fields'}{more}"
        else:
            why = f"{where} is {short(node)}"
        return RefusedError("missing field", f"no {path!r} in {within}: {why}")
    return RefusedError("missing field", f"no {path!r} in {within}")


def _literal(path: str, key: str, fields: Iterable[Any]) -> str | None:
    """Return the longest of the fields that is in a path as it is, from the step `key` on; None if none is."""
    longer = [field for field in map(str, fields) if field.startswith(key) and field != key]
    there = [field for field in longer if re.search(rf"(?:^/?|\.|\]){re.escape(field)}(?=[.\[?]|$)", path)]
    return max(there, key=len, default=None)
