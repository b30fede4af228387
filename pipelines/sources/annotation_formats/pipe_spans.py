"""Sentences and their spans of words, in blocks of three lines (Ju et al. 2018; Zheng et al. 2019):

    il-4 inhibits ap-1 .
    0,1 G#protein|2,3 G#protein

A block has a sentence of words, its spans, and a blank line. A span is `start,end label`, with an exclusive end,
and `|` separates spans. A sentence without spans has a blank line in their place. A row is
{"sentence", "spans": [{start, end, label}]}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.paragraphs import Lines, bad_line, is_blank, raw
from pipelines.sources.parsing.text import lines
from ubert.schema.record import Reject

_SPAN = re.compile(r"(\d{1,9}),(\d{1,9}) (\S+)")


class Options(FormatOptions):
    """Blocks need no options."""


EXAMPLE = Example({"train.txt": "il-4 inhibits ap-1 .\n0,1 G#protein|2,3 G#protein\n\n"})


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each block. A block with more lines, up to a blank one, is a reject.

    A file is never cut, because a block may contain a blank line.
    """
    block: Lines = []
    for number, line in enumerate([*lines(piece), "", ""], piece.line):
        if is_blank(line) and len(block) >= 2:
            first = number - len(block)
            yield bad_line(piece, first, block) or _row(piece, first, block)
            block = []
        elif block or not is_blank(line):
            block.append(line)


def _row(piece: Slice, first: int, block: Lines) -> RawRow | Reject:
    given = [str(line).strip() for line in block]
    spans = _spans(given[1])
    if spans is None or len(given) > 2:
        detail = "expected a sentence, its spans as start,end label|start,end label, and a blank line"
        return Reject(piece.path, first, "not a sentence and spans", detail, raw(block))
    return RawRow(first, f"{piece.path}:{first}", {"sentence": given[0], "spans": spans})


def _spans(listed: str) -> list[dict[str, Any]] | None:
    found = [_SPAN.fullmatch(span) for span in listed.split("|")] if listed else []
    if not all(found):
        return None
    return [{"start": int(match[1]), "end": int(match[2]), "label": match[3]} for match in found if match]
