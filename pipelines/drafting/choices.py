"""Multiple choice: the options of a row, and what says which of them is right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.drafting.fields import Field
from pipelines.drafting.guess import Guess, hint

Fields = dict[str, Field]
OPTIONS = "choice option ending answer sol solution ans alternative warrant"  # what options are called

# Ends of names of fields that say why an answer is right, and so give it away.
EXPLAINS = ("rationale", "explanation", "justification", "solution", "fact", "evidence")


def choices(fields: Fields, texts: list[Field]) -> Iterator[Guess]:
    """A right one of several options, which each row has itself."""
    marked = "label labels answer answerkey gold correct answer_idx correct_answer_idx solution answerid ans"
    labels = [f for f in fields.values() if f.flat and f.all(str, int) and hint(f.name, marked)]
    labels = sorted((f for f in labels if f.rows >= 0.9 * f.of), key=lambda f: -hint(f.name, marked))
    if not labels:  # a letter or a number may say which
        labels = [f for f in fields.values() if f.flat and f.all(str, int) and f.distinct <= 6]
        labels = [f for f in labels if all(len(str(value)) == 1 for value in f.values)]
    for options, own in _options(fields):
        for label in labels[:2]:
            if label.path in own or not _points(fields, label, options):
                continue
            others = [text for text in texts if text.path != label.path and text.path.split("[]")[0] not in own]
            asked = [text for text in others if hint(text.name, "question query stem") or _asks(text)]
            asked.sort(key=lambda text: not _is_beside(text, own))
            rest = [text for text in others if text not in asked and not (asked and _explains(text))]
            if not asked and "question" in fields and fields["question"].all(str):  # of a word: cause, effect
                asked = [fields["question"]]
            why = (f"each row has options ({', '.join(sorted(own)[:5])}), and {label.path} says which is right",)
            if not asked and len(rest) == 2:
                rest.sort(key=lambda field: -field.length)
                rest, asked = rest[:1], rest[1:]
            body = [text.path for text in [*rest[:1], *asked[:1]]]
            if body:
                pair: dict[str, Any] = {"pair": body[1]} if len(body) > 1 else {}
                yield Guess("choice", {"text": body[0], **pair, **options, "label": label.path}, 0.995, why)


def _is_beside(text: Field, own: set[str]) -> bool:
    """Whether a text is in the object that holds the options."""
    parent = text.path.rpartition(".")[0]
    return bool(parent) and any(path.startswith(f"{parent}.") for path in own)


def _explains(text: Field) -> bool:
    return text.name.rstrip("0123456789").endswith(EXPLAINS)


def _asks(text: Field) -> bool:
    """Whether most values are questions."""
    asking = [value for value in text.values if value.rstrip().endswith(("?", "？"))]
    return len(asking) > 0.6 * len(text.values)


def _options(fields: Fields) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """`candidates`, and the fields that it is made of."""
    for field in fields.values():
        listed = hint(field.name, "choices options choice candidates answers endings answer_choices text option")
        if field.words and field.flat and listed and {*map(len, field.words)} <= set(range(2, 12)):
            keys = f"{field.path.rpartition('.')[0]}.label"
            keyed = {"candidate_keys": keys} if field.name == "text" and keys in fields else {}
            yield {"candidates": field.path, **keyed}, {field.path, field.path.rpartition(".")[0]}
        if field.path.endswith("[].text") and f"{field.path[:-4]}label" in fields and field.path.count("[]") == 1:
            keys = f"{field.path[:-4]}label"
            yield {"candidates": field.path, "candidate_keys": keys}, {field.path, field.path.split("[]")[0]}
    series: dict[str, list[str]] = {}
    for field in fields.values():
        numbered = re.fullmatch(r"(.*?)[_ ]?(\d|[a-e])", field.path, re.IGNORECASE)
        if field.flat and field.all(str) and numbered:
            series.setdefault(numbered[1].lower(), []).append(field.path)
    for stem, paths in series.items():
        usual = hint(stem, OPTIONS) or stem == ""
        if len(paths) >= 2 and (usual or len(paths) > 2):
            yield {"candidates": {path: path for path in paths}}, set(paths)


def _points(fields: Fields, label: Field, options: dict[str, Any]) -> bool:
    """Whether a label says which of the options; keys of options in fields are made those of the label."""
    said = {str(value) for value in label.values} - {"-1"}  # which stands for no label
    candidates = options["candidates"]
    if isinstance(candidates, dict):
        paths = list(candidates.values())
        keys = next((keys for keys in _keys(paths) if said <= set(keys) and len(said) > 1), None)
        candidates.clear()
        candidates.update(zip(keys or [], paths, strict=False))
        return keys is not None
    if "candidate_keys" in options:
        return True
    field = fields[candidates]
    longest = max(map(len, field.values))
    letters = "ABCDEFGHIJKL"[:longest]
    if label.all(str) and said <= {*letters} and {*map(len, field.values)} == {longest}:
        options["candidates"] = {letter: f"{candidates}.{i}" for i, letter in enumerate(letters)}
        return True
    if label.all(int):
        return all(0 <= value < 12 for value in label.values)
    return any(label.values[i] in field.values[i] for i in range(min(len(label.values), len(field.values))))


def _keys(paths: list[str]) -> Iterator[list[str]]:
    """What a label may call options that are fields of their own."""
    ends = [path[-1] for path in paths]
    if len(set(ends)) == len(ends):
        yield ends
    count = len(paths)
    yield from ([str(first + i) for i in range(count)] for first in (0, 1))
    yield from (list(letters[:count]) for letters in ("ABCDE", "abcde") if count <= len(letters))
    yield paths
