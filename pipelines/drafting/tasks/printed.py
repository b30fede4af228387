"""Finds lists and objects that are printed in strings, as in a CSV file that pandas wrote."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pipelines.drafting.tasks.fields import Fields, mostly
from pipelines.mapping.clean import cleaner
from pipelines.mapping.refused import RefusedError
from ubert.schema.specs.rules import Clean

_WAYS: tuple[Clean, ...] = (Clean(parse="json"), Clean(parse="python"))


def printed(fields: Fields) -> dict[str, Clean]:
    """Return how to parse each field that nearly always has a printed list or object, and not only empty ones."""
    found = dict[str, Clean]()
    for path, field in fields.items():
        if not (field.flat and field.all(str) and mostly(value[:1] in ("[", "{") for value in field.values)):
            continue
        for how in _WAYS:
            parsed = [_parsed(value, how) for value in field.values]
            if any(parsed) and mostly(isinstance(value, list | dict) for value in parsed):
                found[path if field.rows == field.of else f"{path}?"] = how
                break
    return found


def _parsed(value: str, how: Clean) -> Any:
    with suppress(RefusedError):
        return cleaner({"x": how})({"x": value})["x"]
    return None


def as_parsed(rows: Sequence[dict[str, Any]], how: dict[str, Clean]) -> list[dict[str, Any]]:
    """Return the rows that can be parsed, parsed."""
    clean, found = cleaner(how), list[dict[str, Any]]()
    for row in rows:
        with suppress(RefusedError):
            found.append(clean(row))
    return found
