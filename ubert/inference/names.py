"""Tokenise the names of categories. Short names are cached, because most calls share them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from ubert.inference.candidates import short
from ubert.model.tokenizer import Encoding, Tokenizer
from ubert.schema.errors import UserError

NAMES_KEPT = 4096  # size of the cache
LONGEST_KEPT = 200  # characters; a longer name would stay in memory although it is rarely used again


def name_encoder(tokenizer: Tokenizer) -> Callable[[str], Encoding]:
    """Return a function that tokenises a name. It raises a `UserError` if the name has no token."""
    encode = partial(_encode, tokenizer)
    cached = lru_cache(NAMES_KEPT)(encode)
    return lambda name: (cached if len(name) <= LONGEST_KEPT else encode)(name)


def _encode(tokenizer: Tokenizer, name: str) -> Encoding:
    [encoding] = tokenizer.encode([name])
    if not len(encoding.ids):  # its anchor would be the next marker
        raise UserError(f"category {short(name)} has no token that the model reads; give it a name in plain words")
    return encoding
