"""Convert Arrow batches of columnar files to raw rows, with class names for class numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pydantic import Field

from pipelines.sources import FormatOptions, RawRow, Slice
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

ROWS = 1000  # rows of a batch
ITEMS = "[]"  # the step from a list to its items

Classes = list[tuple[tuple[str, ...], list[str]]]  # paths of class numbers, as steps from the row, and their names


class Options(FormatOptions):
    """Columns of a columnar file."""

    columns: list[str] | None = Field(default=None, min_length=1)
    """The columns to read; default: all."""
    class_names: bool = False
    """Replace the number of a class by its name, if the file's features (of the `datasets` library) have names.
    -1, no class, becomes null."""


def classes(feature: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the paths of named classes in features of the `datasets` library, and the names."""
    match feature:
        case {"_type": "ClassLabel", "names": list(names)}:
            yield steps, names
        case {"_type": str(), "feature": items}:
            yield from classes(items, (*steps, ITEMS))
        case [items]:
            yield from classes(items, (*steps, ITEMS))
        case dict() if not isinstance(feature.get("_type"), str):
            for key, value in feature.items():
                yield from classes(value, (*steps, key))


def chosen(piece: Slice, schema: pa.Schema, options: Options) -> list[str]:
    """Return the columns to read.

    Raises:
        UserError: there is no such column, or two columns have the name.
    """
    wanted = options.columns or schema.names
    wrong = [name for name in wanted if schema.names.count(name) != 1]
    if wrong:
        raise UserError(
            f"{piece.place}: {schema.names.count(wrong[0])} columns {wrong[0]!r}, expected one; "
            f"its columns are {', '.join(schema.names)}; choose with `columns` in the spec's options"
        )
    return wanted


def named_classes(piece: Slice, description: bytes, options: Options) -> Classes:
    """Return the classes to name. `description` is the JSON metadata that the `datasets` library writes to a file.

    Raises:
        UserError: none of the columns has classes.
    """
    if not options.class_names:
        return []
    try:
        described = json.loads(description)
        found = [*classes((described.get("info") or described)["features"])]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        found = []
    found = [at for at in found if at[0] and at[0][0] in (options.columns or at[0])]
    if not found:
        raise UserError(
            f"{piece.place}: names no classes (features of the `datasets` library); "
            "leave `class_names` out of the spec's options"
        )
    return found


def rows(piece: Slice, batches: Iterable[pa.RecordBatch], found: Classes) -> Iterator[RawRow | Reject]:
    """Yield a raw row for each row, numbered from 1, or a reject if its values can't be converted."""
    number = 0
    for batch in batches:
        plain = all(_is_plain(field.type) for field in batch.schema)
        for index, content in enumerate(_contents(batch)):
            number += 1
            try:
                if content is None:
                    [content] = batch.slice(index, 1).to_pylist()
                if not plain:
                    content = json.loads(json.dumps(content, default=lambda value: _text(value, piece.encoding)))
            except (ValueError, OverflowError, pa.ArrowException) as error:
                yield Reject(piece.path, number, "cannot be read", str(error), _raw(batch.slice(index, 1)))
                continue
            for steps, names in found:
                content = _named(content, steps, names)
            yield RawRow(number, f"{piece.path}:{number}", content)


def _contents(batch: pa.RecordBatch) -> list[dict[str, Any]] | list[None]:
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows
    except (ValueError, OverflowError, pa.ArrowException):  # one of the rows can't be converted
        return [None] * len(batch)


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether JSON has values of this type."""
    types = pa.types
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    if types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_plain(kind.value_type)
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_floating,
            types.is_boolean, types.is_null,
        )
    )  # fmt: skip


def _text(value: Any, encoding: str) -> str:
    """Convert a value that JSON lacks to text: bytes by the file's encoding, others (dates, decimals) by `str`."""
    return value.decode(encoding) if isinstance(value, bytes) else str(value)


def _raw(row: pa.RecordBatch) -> str:
    """Format a row that cannot be read, as far as possible."""
    shown = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            shown[name] = str(column[0].as_py())
        except (ValueError, OverflowError, pa.ArrowException):
            text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            shown[name] = column[0].as_buffer().to_pybytes().decode("utf-8", "backslashreplace") if text else "?"
    return json.dumps(shown)


def _named(value: Any, steps: tuple[str, ...], names: list[str]) -> Any:
    """Replace the class numbers at `steps` by their names."""
    if not steps:
        known = isinstance(value, int) and 0 <= value < len(names)
        return names[value] if known else None if value == -1 else value
    step, rest = steps[0], steps[1:]
    if step == ITEMS and isinstance(value, dict):  # a list of structs, stored as a struct of lists
        step, rest = rest[0], (ITEMS, *rest[1:])
    if isinstance(value, dict) and step in value:
        return {**value, step: _named(value[step], rest, names)}
    if step == ITEMS and isinstance(value, list):
        return [_named(item, rest, names) for item in value]
    return value
