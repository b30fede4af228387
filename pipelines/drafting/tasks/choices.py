"""Guesses at multiple choice: the options of a row, and the field that marks the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.drafting.tasks.fields import Field, Fields
from pipelines.drafting.tasks.guess import Guess, called, hint

OPTIONS = "choice option ending answer sol solution ans alternative warrant"  # names of fields with options

# Endings of the names of fields that explain the answer, and so would reveal it.
EXPLAINS = ("rationale", "explanation", "justification", "solution", "fact", "evidence")


def choices(fields: Fields, texts: list[Field]) -> Iterator[Guess]:
    """Guess fields of options, and a field that marks the right one."""
    marked = "label labels answer answerkey gold correct answer_idx correct_answer_idx solution answerid ans"
    labels = [f for f in fields.values() if f.flat and f.all(str, int) and hint(f.name, marked)]
    labels = sorted((f for f in labels if f.rows >= 0.9 * f.of), key=lambda f: -hint(f.name, marked))
    if not labels:  # fall back to fields of single letters or digits
        labels = [f for f in fields.values() if f.flat and f.all(str, int) and f.distinct <= 6]
        labels = [f for f in labels if all(len(str(value)) == 1 for value in f.values)]
    for options, own in _options(fields):
        for label in labels[:2]:
            if label.path in own or not _points(fields, label, options):
                continue
            others = [text for text in texts if text.path != label.path and text.path.split("[]")[0] not in own]
            questions = [text for text in others if hint(text.name, "question query stem") or _is_question(text)]
            questions.sort(key=lambda text: not _is_beside(text, own))
            rest = [text for text in others if text not in questions and not (questions and _explains(text))]
            if not questions and "question" in fields and fields["question"].all(str):  # one word: cause or effect
                questions = [fields["question"]]
            names = ", ".join(map(repr, sorted(own - {""})[:5]))
            why = (f"each row has options ({names}), and {called(label.path)} says which is right",)
            if not questions and len(rest) == 2:
                rest.sort(key=lambda field: -field.length)
                rest, questions = rest[:1], rest[1:]
            body = [text.path for text in [*rest[:1], *questions[:1]]]
            if body:
                pair: dict[str, Any] = {"pair": body[1]} if len(body) > 1 else {}
                yield Guess("choice", {"text": body[0], **pair, **options, "label": label.path}, 0.995, why)


def _is_beside(text: Field, own: set[str]) -> bool:
    """Tell whether a text is in the object that has the options."""
    parent = text.path.rpartition(".")[0]
    return bool(parent) and any(path.startswith(f"{parent}.") for path in own)


def _explains(text: Field) -> bool:
    return text.name.rstrip("0123456789").endswith(EXPLAINS)


def _is_question(text: Field) -> bool:
    """Tell whether most values are questions."""
    asking = [value for value in text.values if value.rstrip().endswith(("?", "？"))]
    return len(asking) > 0.6 * len(text.values)


def _options(fields: Fields) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """Find `candidates`, and the fields that they consist of."""
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
    """Tell whether the values of a label identify options. If the options are fields, replace their keys
    in `options` by the label's values."""
    values = {str(value) for value in label.values} - {"-1"}  # -1 means no label
    candidates = options["candidates"]
    if isinstance(candidates, dict):
        paths = list(candidates.values())
        keys = next((keys for keys in _keys(paths) if values <= set(keys) and len(values) > 1), None)
        candidates.clear()
        candidates.update(zip(keys or [], paths, strict=False))
        return keys is not None
    if "candidate_keys" in options:
        return True
    field = fields[candidates]
    longest = max(map(len, field.values))
    letters = "ABCDEFGHIJKL"[:longest]
    if label.all(str) and values <= {*letters} and {*map(len, field.values)} == {longest}:
        options["candidates"] = {letter: f"{candidates}.{i}" for i, letter in enumerate(letters)}
        return True
    if label.all(int) and min(label.values) == 1 and {*map(len, field.values)} == {max(label.values)}:
        options["candidates"] = {str(i + 1): f"{candidates}.{i}" for i in range(longest)}  # counted from 1
        return True
    if label.all(int):
        return all(0 <= value < 12 for value in label.values)
    return any(label.values[i] in field.values[i] for i in range(min(len(label.values), len(field.values))))


def _keys(paths: list[str]) -> Iterator[list[str]]:
    """Return the possible names that labels give to options, if each option is a field."""
    ends = [path[-1] for path in paths]
    if len(set(ends)) == len(ends):
        yield ends
    count = len(paths)
    yield from ([str(first + i) for i in range(count)] for first in (0, 1))
    yield from (list(letters[:count]) for letters in ("ABCDE", "abcde") if count <= len(letters))
    yield paths
