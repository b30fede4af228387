"""Validate names of corpora, mixtures, shards, audits, datasets and runs, each of which becomes a folder name."""

from __future__ import annotations

import re

from ubert.schema.errors import UserError

NAME = r"^[a-z0-9][a-z0-9_.-]*$"
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$"
MAX_CHARACTERS = 200  # characters; file systems allow 255 bytes


def is_name(given: str) -> bool:
    """Whether a string is a valid name."""
    return len(given) <= MAX_CHARACTERS and re.fullmatch(NAME, given) is not None


def checked_name(what: str, given: str) -> str:
    """Return a name that is safe to join to a path.

    Raises:
        UserError: the name is invalid.
    """
    if not is_name(given):
        shown = given if len(given) <= MAX_CHARACTERS else f"{given[:MAX_CHARACTERS]}..."
        raise UserError(
            f"{what} name {shown!r}: expected lower-case letters, digits, '.', '-' and '_' only, a letter or "
            f"digit first, and at most {MAX_CHARACTERS} characters"
        )
    return given
