"""List the categories of the data that its spec lacks, with their counts, as YAML to paste into the spec."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from pipelines.mapping.missing_labels import Census, merged
from ubert.schema.specs.rules import NameRules

MAX_SHOWN = 200  # labels of a kind that are shown
PLAIN = NameRules(replace={"_": " "}, split_camel_case=True, lower=True)


def to_paste(lacking: Census) -> str:
    """Return the missing `categories` of a spec as YAML; an empty string if none is missing."""
    if not lacking:
        return ""
    count = sum(map(len, lacking.values()))
    head = f"the spec lacks {count:,} labels of the data; add them under `categories`, with names in plain words:"
    return "\n".join([head, *_lines(lacking)])


def _lines(lacking: Census) -> Iterator[str]:
    for kind, labels in lacking.items():
        yield f"  # to the {kind}:" if " " in kind else f"  {kind}:"
        yield from (
            f"    {line}  # {count:,} times" for line, count in _entries(kind, labels.most_common(MAX_SHOWN))
        )
        if len(labels) > MAX_SHOWN:
            yield f"    # and {len(labels) - MAX_SHOWN:,} more"


def _entries(kind: str, labels: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for label, count in labels:
        key, name = _quoted(label), _quoted(PLAIN.name(label) or label)
        if kind == "relation":
            yield f"- {{label: {key}, name: {name}}}", count
        elif kind == "event":
            yield f"{key}: {{name: {name}}}", count
        else:
            yield f"{key}: {name}", count


def _quoted(text: str) -> str:
    """Quote a string for JSON and YAML, with lone surrogates escaped."""
    return json.dumps(text, ensure_ascii=any(0xD800 <= ord(letter) < 0xE000 for letter in text))


def total(found: list[dict[str, dict[str, int]]]) -> Census:
    """Sum the counts of units, which are read from JSON."""
    return merged([{kind: Counter(labels) for kind, labels in census.items()} for census in found])
