"""Counts suspicious annotations in records that are kept, for `ubert ingest` to warn of: annotations that
never become a training target, and texts longer than any record should be."""

from __future__ import annotations

import re
from collections import Counter

from ubert.schema.record import Record

LONG_WORDS = 4_000  # of a text; each East Asian character counts as a word

NO_TRIGGER = "event without a trigger"
NO_TRIGGER_OR_ARGUMENT = "event without a trigger or arguments"
NO_FILLER = "event or argument without a mention"
NO_CATEGORY = "mention without a category"
MERGED = "repeated mention, merged with the one before"
SEVERAL_LABELS = "id whose mentions have different labels"
TOO_LONG = f"text of more than {LONG_WORDS:,} words"
ONE_ROW = "file of many lines read as one row"
LEFT_OUT = "row left out by `when`"

_WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff]|\\w+")


def notice(record: Record, into: Counter[str]) -> None:
    """Count what looks wrong in a record."""
    if len(record.text) > LONG_WORDS and record.task != "text" and _is_long(record.text):
        into[TOO_LONG] += 1
    for event in record.events:
        if event.trigger is None:
            into[NO_TRIGGER if event.arguments else NO_TRIGGER_OR_ARGUMENT] += 1
    if record.task == "ner" and (bare := sum(span.category is None for span in record.spans)):
        into[NO_CATEGORY] += bare


def _is_long(text: str) -> bool:
    return sum(1 for _ in _WORD.finditer(text)) > LONG_WORDS
