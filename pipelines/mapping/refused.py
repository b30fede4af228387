"""Why a row cannot become a record."""

from __future__ import annotations

from typing import Any


class RefusedError(Exception):
    """A row that cannot become a record: a short phrase to group by, and the whole story."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def short(value: Any) -> str:
    """A value as it is shown in a sentence."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
