"""Converts the tags of tokens to spans of tokens."""

from __future__ import annotations

from itertools import groupby

from pipelines.mapping.refused import RefusedError
from ubert.schema.specs.mapping import Scheme

_MARKS: dict[Scheme, str] = {"BIO": "BI", "IOB": "BI", "IO": "I", "BIOES": "BIES", "BMES": "BMES"}


def tagged_spans(tags: list[str], scheme: Scheme) -> list[tuple[int, int, str]]:
    """Return labelled spans of tokens [start, end), from one tag for each token (`O`, or a mark and a
    label: `B-city`).

    - BIO: every span begins with B.
    - IOB: a span may also begin with I, after O or another label.
    - IO: adjacent tokens with the same label are one span. A tag is the label, with or without `I-`.
    - BIOES and BMES: a span of one token is S; a longer one has B, any number of I (M), and E.

    Raises:
        RefusedError: a tag is not of the scheme, or cannot follow the one before it.
    """
    if scheme == "IO":
        return _runs([tag.removeprefix("I-") for tag in tags])
    closed = scheme in ("BIOES", "BMES")
    inside = "M" if scheme == "BMES" else "I"
    found: list[tuple[int, int, str]] = []
    start, label = -1, ""  # of the open span; -1 if none is open
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
                raise RefusedError(*_wrong(tags, i, scheme, f"comes after an unfinished {label!r}"))
            found.append((start, i, label))
            start = -1
        if tag == "O":
            continue
        if kind and (mark == "B" or (mark == "I" and scheme == "IOB")):
            start, label = i, kind
        elif kind and closed and mark == "S":
            found.append((i, i + 1, kind))
        else:
            raise RefusedError(*_wrong(tags, i, scheme, f"cannot begin a span in {scheme}"))
    return found


def _runs(labels: list[str]) -> list[tuple[int, int, str]]:
    found = []
    end = 0
    for label, run in groupby(labels):
        start, end = end, end + len(list(run))
        if label != "O":
            found.append((start, end, label))
    return found


def _wrong(tags: list[str], i: int, scheme: Scheme, why: str) -> tuple[str, str]:
    """Return the reason and the detail for a wrong tag: an unknown prefix, or a known one in the wrong place."""
    tag = tags[i] if i < len(tags) else "the end"
    known = [*_MARKS[scheme]]
    if i == len(tags) or (tag.partition("-")[0] in known and "-" in tag) or tag == "O":
        return "tags out of order", f"{tag!r} at token {i} {why}"
    there = {each.partition("-")[0] if "-" in each else each for each in tags} - {"O"}
    fits: list[Scheme] = [name for name, marks in _MARKS.items() if there <= set(marks)]
    if not any("-" in each for each in tags):
        fits = ["IO"]
    cure = f"; the tags fit `scheme: {fits[0]}`" if fits else ""
    prefixes = ", ".join(f"{mark}-" for mark in known)
    detail = f"{tag!r} at token {i} begins with none of {prefixes} of {scheme}; the row's tags begin with "
    return "unknown tag", detail + ", ".join(sorted(there)) + cure
