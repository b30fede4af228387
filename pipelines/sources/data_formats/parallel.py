"""Parallel files: line n of each file belongs to record n."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from pipelines.sources import Example, FormatOptions, RawRow, Slice, sibling
from pipelines.sources.parsing.text import lines
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


class Options(FormatOptions):
    """Names of the files' lines."""

    column: str = "text"
    """The field for a line of the file itself."""
    beside: dict[str, Annotated[str, Field(pattern=r"^[^/\\]+$")]] = Field(min_length=1)
    """The other files, in the same folder, by the field for their lines."""

    @model_validator(mode="after")
    def _has_a_field_for_each_file(self) -> Options:
        if self.column in self.beside:
            raise ValueError(
                f"beside: {self.column!r} is the field for the file's own lines (`column`); name another field"
            )
        return self


EXAMPLE = Example({"train.text": "Fine.\nBad.\n", "train.label": "5\n1\n"}, {"beside": {"label": "train.label"}})


def companions(folder: Path, path: str, options: Options) -> list[str]:
    """Return the other files."""
    return [sibling(path, name) for name in options.beside.values()]


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each line.

    Raises:
        UserError: the files differ in their number of lines.
    """
    columns = {options.column: list(lines(piece))}
    for column, name in options.beside.items():
        columns[column] = list(lines(piece.whole(sibling(piece.path, name))))
    counts = {column: len(found) for column, found in columns.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{column} {count}" for column, count in counts.items())
        raise UserError(f"{piece.place}: expected parallel files with the same number of lines, got {said}")
    for number, values in enumerate(zip(*columns.values(), strict=True), piece.line):
        bad = next((value for value in values if isinstance(value, Reject)), None)
        if bad is None:
            yield RawRow(number, f"{piece.path}:{number}", dict(zip(columns, values, strict=True)))
        else:
            raw = " | ".join(value.raw if isinstance(value, Reject) else value for value in values)
            yield Reject(piece.path, number, bad.reason, f"{bad.path}: {bad.detail}", raw)
