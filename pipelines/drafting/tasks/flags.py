"""Guesses labels that have a column each, with a flag in each row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from pipelines.drafting.tasks.fields import Field, Fields, mostly
from pipelines.drafting.tasks.guess import Guess, called, hint
from ubert.schema.specs.mapping import QUOTED

LEAST = 3  # columns of flags: fewer may well tell something else, such as whether a text was checked
_FLAGS = ({"0", "1"}, {"0.0", "1.0"}, {"true", "false"})


def flagged(fields: Fields, texts: list[Field]) -> Iterator[Guess]:
    """Guess one or several labels for each text, from columns that have the same two flags."""
    groups: defaultdict[tuple[str, int], list[Field]] = defaultdict(list)
    for field in fields.values():
        if field.flat and field.rows == field.of and not hint(field.name, "id idx index split"):
            values = {str(value).lower() for value in field.values}
            for number, flags in enumerate(_FLAGS):
                if values <= flags:
                    groups[re.sub(QUOTED, "key", field.path).rpartition(".")[0], number].append(field)
    if not (texts and groups):
        return
    (parent, _), columns = max(groups.items(), key=lambda group: len(group[1]))
    marked = zip(
        *([str(value).lower() in ("1", "1.0", "true") for value in column.values] for column in columns),
        strict=True,
    )
    one = mostly(sum(row) == 1 for row in marked)
    least = 2 if one and parent else LEAST  # an object whose flags exclude each other, as in spaCy
    if len(columns) < least or sum(column.distinct == 2 for column in columns) < least:
        return
    paths = [column.path for column in columns]
    why = f"{called(*paths)} tell which labels a text has"
    yield Guess(
        "classification" if one else "multilabel", {"text": texts[0].path, "label_flags": paths}, 0.8, (why,)
    )
