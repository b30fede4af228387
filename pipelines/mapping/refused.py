"""Why a row cannot become a record."""

from __future__ import annotations

import json
import reprlib
from typing import Any


class RefusedError(Exception):
    """A row that cannot become a record: a short phrase to group by, and the whole story."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def as_json(value: Any, *, sort_keys: bool = False) -> str:
    """A value as JSON; one that was read but is nested too deeply to be written, as far as it can be shown."""
    try:
        return json.dumps(value, sort_keys=sort_keys)
    except RecursionError:
        return reprlib.repr(value)


def short(value: Any) -> str:
    """A value as it is shown in a sentence."""
    try:
        shown = repr(value)
    except RecursionError:
        shown = reprlib.repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
