"""Names of corpora, mixtures, shards, audits, datasets and runs: each is a folder, and can be nothing else."""

from __future__ import annotations

import re

from ubert.schema.errors import UserError
from ubert.schema.spec import NAME

LONGEST = 200  # characters; a folder's name may have 255 bytes


def is_name(given: str) -> bool:
    """Whether something may be called so."""
    return len(given) <= LONGEST and re.fullmatch(NAME, given) is not None


def checked_name(what: str, given: str) -> str:
    """A name that is joined to a path.

    Raises:
        UserError: it is none.
    """
    if not is_name(given):
        shown = given if len(given) <= LONGEST else f"{given[:LONGEST]}..."
        raise UserError(
            f"{what} name {shown!r}: expected lower-case letters, digits, '.', '-' and '_' only, a letter or "
            f"digit first, and at most {LONGEST} characters"
        )
    return given
