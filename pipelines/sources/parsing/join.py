"""Join the rows of two files by a field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from pipelines.mapping.refused import as_json
from pipelines.sources import FormatOptions, RawRow
from ubert.schema.record import Reject
from ubert.schema.yaml_file import InsidePath


class Beside(FormatOptions):
    """A file beside another one, whose rows go into its rows."""

    path: InsidePath
    """The file, relative to the folder of the other one."""
    into: str
    """The field that receives the row of this file."""
    key: str
    """The field of the rows to join by."""
    other_key: str
    """The field of this file's rows to join by."""

    def place(self, path: str) -> str:
        """Return the path of the file that belongs to `path`."""
        return (PurePosixPath(path).parent / self.path).as_posix()


def joined(
    rows: Iterator[RawRow | Reject], others: Iterator[RawRow | Reject], beside: Beside, path: str
) -> Iterator[RawRow | Reject]:
    """Yield each row joined with its partner. Rows of either file without exactly one partner become rejects of
    the first file."""
    partners: dict[str, RawRow] = {}
    rejects: list[Reject] = []
    for other in others:
        if isinstance(other, Reject):
            rejects.append(Reject(path, other.line, other.reason, f"{other.path}: {other.detail}", other.raw))
            continue
        key = _key(other.content, beside.other_key)
        if key is None or key in partners:
            why = "it has no" if key is None else "an earlier row has the same"
            rejects.append(_alone(path, other, f"{why} {beside.other_key!r}"))
        else:
            partners[key] = other
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        partner = partners.pop(_key(row.content, beside.key) or "", None)
        if partner is None:
            yield _alone(path, row, f"no row of {beside.path} has its {beside.key!r}")
        else:
            yield RawRow(row.line, row.locator, {**row.content, beside.into: partner.content})
    yield from rejects
    yield from (_alone(path, other, f"no row has its {beside.other_key!r}") for other in partners.values())


def _key(content: dict[str, Any], field: str) -> str | None:
    return as_json(content[field], sort_keys=True) if content.get(field) is not None else None


def _alone(path: str, row: RawRow, detail: str) -> Reject:
    return Reject(path, row.line, "not joined", f"{row.locator}: {detail}", as_json(row.content))
