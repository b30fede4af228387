"""Sentences with two marked mentions and their relation, as in SemEval-2010 task 8 (Hendrickx et al. 2010):

    1   "The <e1>screws</e1> of the <e2>chair</e2> are loose."
    Component-Whole(e1,e2)
    Comment: seen in a shop

A record has a line with a number, a tab and the sentence in quotes, a line with the label, perhaps a line with a
comment, and a blank line. The label has the direction of the relation, if there is one. A row is

    {"id", "marked", "text", "label", "comment",     marked: the text with its marks
     "mentions": [{id, start, end}],                 e1 and e2; characters of the text, the end exclusive
     "relations": [{label, head, tail}]}             empty if the label has no direction (Other)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.paragraphs import Lines, bad_line, paragraphs, raw
from ubert.schema.record import Reject

_SENTENCE = re.compile(r'(\d+)\t"(.*)"\s*')
_MARK = re.compile(r"<(/?)(e[12])>")
_LABEL = re.compile(r"([^()]+)(?:\((e[12]),(e[12])\))?")


class Options(FormatOptions):
    """Marked sentences need no options."""


EXAMPLE = Example(
    {"train.txt": '1\t"The <e1>screws</e1> of the <e2>chair</e2> are loose."\nComponent-Whole(e1,e2)\nComment:\n'}
)


def split_at(options: Options) -> Literal["blank line"]:
    """A record ends at a blank line."""
    return "blank line"


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each block of lines."""
    for first, block in paragraphs(piece):
        yield bad_line(piece, first, block) or _row(piece, first, block)


def _row(piece: Slice, first: int, block: Lines) -> RawRow | Reject:
    given = [str(line).strip() for line in block]
    sentence = _SENTENCE.fullmatch(given[0])
    label = _LABEL.fullmatch(given[1]) if len(given) > 1 else None
    comment = given[2] if len(given) > 2 else ""
    if sentence is None or label is None or len(given) > 3 or not (comment + "Comment").startswith("Comment"):
        detail = 'expected number TAB "sentence", a label, and Comment: or no more'
        return Reject(piece.path, first, "not a marked sentence", detail, raw(block))
    text, mentions = _unmarked(sentence[2])
    if mentions is None:
        detail = "expected <e1>...</e1> and <e2>...</e2>, each once"
        return Reject(piece.path, first, "not a marked sentence", detail, raw(block))
    name, head, tail = label.groups()
    content: dict[str, Any] = {
        "id": sentence[1],
        "marked": sentence[2],
        "text": text,
        "label": given[1],
        "comment": comment.removeprefix("Comment").removeprefix(":").strip(),
        "mentions": mentions,
        "relations": [{"label": name, "head": head, "tail": tail}] if head else [],
    }
    return RawRow(first, f"{piece.path}:{first}", content)


def _unmarked(sentence: str) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the sentence without marks, and the mentions; None unless each of the four marks occurs once."""
    parts: list[str] = []
    places: dict[tuple[str, str], int] = {}
    at = done = 0
    for mark in _MARK.finditer(sentence):
        parts.append(sentence[done : mark.start()])
        at, done = at + len(parts[-1]), mark.end()
        if (mark[2], mark[1]) in places:
            return sentence, None
        places[mark[2], mark[1]] = at
    text = "".join([*parts, sentence[done:]])
    mentions = [
        {"id": name, "start": places.get((name, "")), "end": places.get((name, "/"))} for name in ("e1", "e2")
    ]
    ordered = len(places) == 4 and all(places[name, ""] < places[name, "/"] for name in ("e1", "e2"))
    return text, mentions if ordered else None
