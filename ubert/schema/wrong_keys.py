"""Explain what is wrong with the keys of a YAML file, in the words of the file."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ubert.schema.names import LANGUAGE, NAME

FEW_KEYS = 6  # keys of a mapping to name in the message about a value that is none
Place = tuple[int | str, ...]
_ALTERNATIVE = re.compile(r"(dict|list|literal)\[.*\]")  # of a union; pydantic puts it among the keys
_FORMS = {
    NAME: "a name of lower-case letters, digits, `_`, `-` and `.`",
    LANGUAGE: "a language tag (BCP 47) such as en, de or zh-Hant",
}


def explain(
    error: ValidationError,
    path: Path | str,
    prefix: tuple[str, ...] = (),
    model: type[BaseModel] | None = None,
) -> list[str]:
    """Return one sentence per error: file, key path, what is wrong, and the value; see `sentences`."""
    return sentences(error.errors(include_url=False), path, prefix, model)


def sentences(
    items: Sequence[ErrorDetails],
    path: Path | str,
    prefix: tuple[str, ...] = (),
    model: type[BaseModel] | None = None,
) -> list[str]:
    """Return one sentence per item of a `ValidationError`.

    Args:
        path: the file, or what else was validated.
        prefix: the keys that lead to what was validated.
        model: its model, whose keys are suggested for unknown ones.
    """
    meant = {item["loc"]: _meant(item["loc"], model) for item in items if item["type"] == "extra_forbidden"}
    misspelt = {(*place[:-1], name) for place, name in meant.items() if name}
    lines = []
    for item in items:
        if item["type"] == "missing" and item["loc"] in misspelt:
            continue  # the error of the misspelt key suggests this one
        place = [part for part in map(str, item["loc"]) if not _ALTERNATIVE.fullmatch(part)]
        if place[-1:] == ["[key]"] and not isinstance(item["input"], str):
            place[-2] = shortened(item["input"])  # pydantic shows a key that is not a string as an index
        key = ".".join([*prefix, *place])
        if not key and isinstance(item["input"], dict):  # keys contradict each other, and the message names them
            lines.append(f"{path}: {item['msg'].removeprefix('Value error, ')}")
            continue
        lines.append(f"{path}: {key or '(whole file)'}: {_sentence(item, model, meant.get(item['loc']))}")
    return lines


def _sentence(item: ErrorDetails, model: type[BaseModel] | None, meant: str | None) -> str:
    """Say what is wrong with a key, and what it has instead."""
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key; {f'did you mean {meant}?' if meant else 'remove it or correct its name'}"
    if kind == "missing":
        return "missing; add this key"
    if kind in ("model_type", "dict_type"):
        keys = [*_keys(_models_at(item["loc"], model))]
        more = ", ..." if len(keys) > FEW_KEYS else ""
        those = f" ({', '.join(keys[:FEW_KEYS])}{more})" if keys else ""
        what = f"expected keys with values{those}"
    elif kind == "literal_error":
        what = f"expected {context['expected']}"
    elif kind == "too_short":
        what = f"expected at least {context['min_length']} item{'s' * (context['min_length'] > 1)}"
    elif kind == "string_pattern_mismatch":
        what = f"expected {_FORMS.get(context['pattern'], 'text that matches ' + context['pattern'])}"
    else:
        what = item["msg"].removeprefix("Value error, ")
    if isinstance(given, BaseModel):  # its keys were not given: they have defaults
        return what
    unquoted = kind == "string_type" and isinstance(given, bool | int | float | date | None)
    return f"{what}, got {shortened(given)}" + (f"; {_cure(given)}" if unquoted else "")


def _meant(place: Place, model: type[BaseModel] | None) -> str | None:
    """Return the key that is most like an unknown one."""
    close = difflib.get_close_matches(str(place[-1]), [*_keys(_models_at(place[:-1], model))], n=1)
    return close[0] if close else None


def _models_at(place: Place, model: type[BaseModel] | None) -> list[type[BaseModel]]:
    """Return the models that a value at a place may have. Parts of a place that are no fields, such as the indexes
    of lists, stay within a model's annotation."""
    found = [] if model is None else [model]
    for part in place:
        fields = [
            field for one in found for name, field in one.model_fields.items() if part in (name, field.alias)
        ]
        if fields:
            found = [inner for field in fields for inner in _models_in(field.annotation)]
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _keys(models: Iterable[type[BaseModel]]) -> Iterator[str]:
    for model in models:
        yield from (field.alias or name for name, field in model.model_fields.items())


def _cure(value: bool | float | date | None) -> str:
    """Explain how to write a value that YAML does not read as a string."""
    if isinstance(value, bool):
        return "quote it: YAML reads yes, no, on and off without quotes as true or false"
    if value is None:
        return "quote it: YAML reads null, ~ and nothing at all without quotes as no value"
    if isinstance(value, float):  # 1.50 is read as 1.5
        return "quote it as it is written"
    return f'quote it: "{value}"'


def shortened(value: Any) -> str:
    """Format a value for an error message, truncated: strings in quotes, other values as JSON."""
    text = _written(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _written(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)
    return text.encode("utf-8", "backslashreplace").decode()  # escape lone surrogates
