"""Where a row is in its source, as people read it: `letters.jsonl:12`, or `train.json#12` if it has no line."""

from __future__ import annotations

import re

from ubert.schema.record import Record

# Formats without lines count every row as line 1. The detail of a reject then begins with the row's locator.
_LOCATOR = r"^(#.+?): "
REJECT_PLACE = f"""path || coalesce(
    nullif(regexp_extract(CASE WHEN line = 1 THEN detail END, '{_LOCATOR}', 1), ''), ':' || line
)"""  # in SQL, for rows of the view rejects


def record_place(record: Record) -> str:
    """Return the place of the row that became a record."""
    source = record.source
    locator = record.record_id.removeprefix(f"{record.corpus}/{record.split}/")
    without_line = source.line == 1 and locator.startswith(f"{source.path}#")
    return locator if without_line else f"{source.path}:{source.line}"


def reject_place(path: str, line: int, detail: str) -> tuple[str, str]:
    """Return the place of a rejected row, and the detail without its locator if the place has that."""
    locator = re.match(_LOCATOR, detail) if line == 1 else None
    return (f"{path}{locator[1]}", detail[locator.end() :]) if locator else (f"{path}:{line}", detail)
