"""What a detector proposes for a format."""

from __future__ import annotations

from typing import Any, NamedTuple

from ubert.schema.record import Split


class Proposal(NamedTuple):
    """Options of a format, with the reason for them. A `score` of 1 means that no other format has these signs."""

    options: dict[str, Any]
    score: float
    why: str
    parts: dict[Split, dict[str, Any]] = {}  # noqa: RUF012  options of splits that are in one file
