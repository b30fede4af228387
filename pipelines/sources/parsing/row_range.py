"""A range of a file's rows, by which one file can serve several splits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from pydantic import AfterValidator, Field

from pipelines.sources import RawRow
from ubert.schema.record import Reject


def _takes_some(given: tuple[int, int]) -> tuple[int, int]:
    if given[0] >= given[1]:
        raise ValueError("expected the first row to take, and a later one to stop before")
    return given


RowRange = Annotated[tuple[Annotated[int, Field(ge=0)], int], AfterValidator(_takes_some)]


def in_range(rows: Iterator[RawRow | Reject], only: RowRange | None) -> Iterator[RawRow | Reject]:
    """Yield the rows and rejects in a range, or all of them."""
    return rows if only is None else islice(rows, *only)
