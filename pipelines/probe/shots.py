"""Draw the records to fine-tune on: a few of each category, the same for all checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from ubert.schema.keys import keys
from ubert.schema.record import Record

NONE = ""  # the category of a record that has none
NOT_PROBED = frozenset({"seq2seq", "text"})  # tasks without categories to draw shots of


def drawn(records: Sequence[Record], shots: int, seed: int) -> list[Record]:
    """Take records in pseudo-random order until each category has `shots` of them, or all that there are.

    A record counts for all of its categories. Records without a category count as a category of their own.
    """
    order = shuffled([record.record_id for record in records], seed)
    taken: Counter[str] = Counter()
    chosen = []
    for i in order:
        names = categories_of(records[i])
        if any(taken[name] < shots for name in names):
            taken.update(names)
            chosen.append(records[i])
    return chosen


def shuffled(identifiers: Sequence[str], seed: int) -> list[int]:
    """Return the indices of records in the pseudo-random order of a seed."""
    numbers = [xxhash.xxh3_64_intdigest(identifier.encode()) for identifier in identifiers]
    return [int(i) for i in np.argsort(keys(numbers, seed))]


def categories_of(record: Record) -> set[str]:
    """Return the names of the categories that occur in a record: its labels, and the types of its mentions,
    relations and events. For regression it is the nearest number of the scale, and for questions whether there is
    an answer."""
    if record.task == "qa":
        return {"answered" if record.spans else "unanswered"}
    if record.task == "choice":
        return {"choice"}  # each record has its own
    if (value := record.value) is not None:
        names = [category.name for category in record.categories]
        return {min(names, key=lambda name: abs(float(name) - value))}
    of_spans = {span.category for span in record.spans if span.category is not None}
    of_links = {link.category for link in record.relations} | {event.category for event in record.events}
    return _names(record, {*record.labels, *of_spans, *of_links}) or {NONE}


def _names(record: Record, indices: Iterable[int]) -> set[str]:
    return {record.categories[i].name for i in indices}
