"""Cleans fields of a row, as a spec's `map.clean` describes. The row itself stays as it was read."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from pipelines.mapping.paths import Step, place_of, steps
from pipelines.mapping.refused import RefusedError, child, is_literal, missing, short
from ubert.schema.specs.rules import Clean

Cleaned = Callable[[Any], Any]
_NO_COMMA = re.compile(r"['\"]\s+[rbuRBU]?['\"]")


def cleaner(given: dict[str, Clean]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that cleans the fields of a row, in a copy.

    Raises:
        RefusedError: when called: a field is missing, or can't be parsed.
    """
    parts = [(path, steps(path.removeprefix("/")), _of_field(path, how)) for path, how in given.items()]

    def clean(content: dict[str, Any]) -> dict[str, Any]:
        for path, route, change in parts:
            content = _changed(content, route, change, path)
        return content

    return clean


def _changed(node: Any, route: tuple[Step, ...], change: Cleaned, path: str) -> Any:
    """Return a copy of `node` with the values at the end of `route` changed. Unchanged parts are shared."""
    if not route:
        return change(node)
    step, rest = route[0], route[1:]
    if step.items and not isinstance(node, list):
        raise RefusedError("wrong type", f"{path!r} leads to {short(node)}, expected a list")
    if isinstance(node, list) and (step.items or step.name):
        return [_changed(item, rest, change, path) for item in node]
    if step.name and isinstance(node, dict):
        return {key: _changed(item, rest, change, path) for key, item in node.items()}
    if (found := child(node, step.key)) is not None:
        copied = node.copy()
        copied[step.key if isinstance(node, dict) else int(step.key)] = _changed(found, rest, change, path)
        return copied
    if step.optional and not is_literal(node, step.key):
        return node
    raise missing(path, node, [step.key], top=place_of(path, len(route)) or "it")


def _of_field(path: str, how: Clean) -> Cleaned:
    parse = {"json": _json, "python": _python, None: None}[how.parse]
    patterns = [(re.compile(pattern), new) for pattern, new in how.regex.items()]
    nulls = set(how.nulls)

    def text(found: str) -> str | None:
        if how.strip:
            found = found.strip(how.strip if isinstance(how.strip, str) else None)
        for old, new in how.replace.items():
            found = found.replace(old, new)
        for pattern, new in patterns:
            found = pattern.sub(new, found)
        return None if found in nulls else found

    def each(found: Any) -> Any:
        if isinstance(found, str):
            return text(found)
        return [each(item) for item in found] if isinstance(found, list) else found

    def field(found: Any) -> Any:
        if parse is not None and isinstance(found, str):
            if found in nulls:
                return None
            try:
                found = parse(found)
            except (ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError) as error:
                why = f": {error}" if type(error) is ValueError else ""
                raise RefusedError(f"not {how.parse}", f"{path!r} is {short(found)}{why}") from None
        return each(found)

    return field


def _json(text: str) -> Any:
    """Parse JSON. An object with a repeated key would lose a value, so it raises ValueError."""
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key more than once")
    return found


def _python(text: str) -> Any:
    """Parse a Python literal, and convert it to JSON types."""
    if _NO_COMMA.search(text) and _has_strings_side_by_side(text):
        raise ValueError("there is no comma between two strings")
    return _as_json(ast.literal_eval(text.strip()))


def _has_strings_side_by_side(text: str) -> bool:
    """Tell whether Python would concatenate two strings of the text. numpy prints lists without commas."""
    tokens = tokenize.generate_tokens(io.StringIO(text.strip()).readline)
    return any(
        a.type == b.type == tokenize.STRING for a, b in pairwise(t for t in tokens if t.type != tokenize.NL)
    )


def _as_json(found: Any) -> Any:
    match found:
        case list() | tuple():
            return [_as_json(item) for item in found]
        case dict():
            return {str(key): _as_json(item) for key, item in found.items()}
        case None | bool() | int() | float() | str():
            return found
        case _:
            raise ValueError(f"a {type(found).__name__} is neither a list nor an object")
