"""Tags of tokens to spans of tokens."""

from __future__ import annotations

from pipelines.mapping.refused import RefusedError
from ubert.schema.mapping import Scheme


def tagged_spans(tags: list[str], scheme: Scheme) -> list[tuple[int, int, str]]:
    """Spans of tokens [start, end) with their label, from one tag a token (`O`, or a mark and a label: `B-city`).

    BIO: every span begins with B. IOB: one that begins with I, after O or another label, is a span too. BIOES and
    BMES: spans of one token are S, longer ones go from B over I (M) to E.

    Raises:
        RefusedError: a tag is not of the scheme, or cannot follow the one before it.
    """
    closed = scheme in ("BIOES", "BMES")
    inside = "M" if scheme == "BMES" else "I"
    found: list[tuple[int, int, str]] = []
    start, label = -1, ""  # of the open span; -1: none is
    for i, tag in enumerate([*tags, "O"]):
        if tag == "O" and start < 0:
            continue
        mark, _, kind = tag.partition("-")
        goes_on = start >= 0 and kind == label
        if mark == inside and goes_on:
            continue
        if closed and mark == "E" and goes_on:
            found.append((start, i + 1, label))
            start = -1
            continue
        if start >= 0:
            if closed:
                raise RefusedError("tags out of order", f"{tag!r} at token {i} after an unfinished {label!r}")
            found.append((start, i, label))
            start = -1
        if tag == "O":
            continue
        if kind and (mark == "B" or (mark == "I" and scheme == "IOB")):
            start, label = i, kind
        elif kind and closed and mark == "S":
            found.append((i, i + 1, kind))
        else:
            raise RefusedError("tags out of order", f"{tag!r} at token {i} begins no span in {scheme}")
    return found
