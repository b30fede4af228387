"""Predict texts as they come, one JSON object each, in their order."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import ubert
from ubert.inference.candidates import NOTHING, Events, Relations, check_string
from ubert.objectives import Overlap, Overlaps
from ubert.schema.errors import UserError
from ubert.schema.recipe import Precision

CHUNK = 512  # texts that are sorted by length together; their predictions come out together


class Input(NamedTuple):
    """A text, and the second one of a pair."""

    text: str
    pair: str | None = None


def predict(
    checkpoint: Path,
    inputs: Iterable[Input],
    *,
    task: str,
    categories: Sequence[str] = (),
    relations: Relations = NOTHING,
    events: Events = NOTHING,
    instruction: str | None = None,
    threshold: float | None = None,
    overlap: Overlaps = "highest",
    discontinuous: bool = False,
    precision: Precision = "auto",
    verify: bool = True,
    chunk: int = CHUNK,
) -> Iterator[list[dict[str, Any]]]:
    """Predict `chunk` texts at a time; see `ubert.inference.predictor.Predictor.predict` for the arguments.

    Yields:
        For each text {"text", "pair" where it has one, "predictions": [...]}, in the order of the texts; for chunk
        after chunk of them. A prediction has the fields of its class in `ubert.objectives`: {"category", "score"},
        {"value"}, {"start", "end", "category", "text", "score"}, {"category", "fragments", "score"},
        {"category", "head", "tail", "score"}, {"category", "trigger", "arguments"} or {"mentions"}.

    Raises:
        UserError: whatever is wrong with the checkpoint, the texts or the arguments.
    """
    predictor = ubert.load(checkpoint, precision=precision, verify=verify)
    remaining = iter(inputs)
    while asked := list(islice(remaining, chunk)):
        found = predictor.predict(
            [one.text for one in asked],
            task=task,
            categories=categories,
            relations=relations,
            events=events,
            pairs=pairs_of(asked),
            instruction=instruction,
            threshold=threshold,
            overlap=overlap,
            discontinuous=discontinuous,
        )
        yield [
            {
                **{name: value for name, value in one._asdict().items() if value is not None},
                "predictions": [asdict(prediction) for prediction in predictions],
            }
            for one, predictions in zip(asked, found, strict=True)
        ]


def pairs_of(asked: Sequence[Input]) -> list[str] | None:
    """The second texts, where all texts have one; none where none has.

    Raises:
        UserError: some have one.
    """
    pairs = [one.pair for one in asked if one.pair is not None]
    if pairs and len(pairs) < len(asked):
        raise UserError(f"{len(asked) - len(pairs)} of {len(asked)} texts lack a `pair` that the others have")
    return pairs or None


def comma_separated(given: str) -> list[str]:
    """Categories with commas between; one that has a comma itself stands in double quotes."""
    [row] = csv.reader([" ".join(given.splitlines())], skipinitialspace=True) if given.strip() else [[]]
    return [name for name in map(str.strip, row) if name]


def relation_types(given: Iterable[str]) -> dict[str, tuple[str, str] | None]:
    """Relations written as "name" or "name:head type:tail type".

    Raises:
        UserError: one is written in another way, or is given twice.
    """
    found: dict[str, tuple[str, str] | None] = {}
    for one in given:
        match [part.strip() for part in one.split(":")]:
            case [name] if name and name not in found:
                found[name] = None
            case [name, head, tail] if name and head and tail and name not in found:
                found[name] = (head, tail)
            case _:
                raise UserError(
                    f'relation {one!r}: expected "name" or "name:head type:tail type", each name once, '
                    'such as "lives in:person:place"'
                )
    return found


def event_types(given: Iterable[str]) -> dict[str, list[str]]:
    """Events written as "type:role,role,...", or "type" where only its triggers are wanted.

    Raises:
        UserError: one has no type, or is given twice.
    """
    found: dict[str, list[str]] = {}
    for one in given:
        name, _, roles = (part.strip() for part in one.partition(":"))
        if not name or name in found:
            raise UserError(f'event {one!r}: expected "type:role,role", each type once, such as "attack:attacker"')
        found[name] = [role.strip() for role in roles.split(",") if role.strip()]
    return found


def overlap_policies(given: Sequence[str]) -> Overlaps:
    """Policies of overlap written as "nested", or as "category=nested" for each category that differs from
    "highest".

    Raises:
        UserError: one is written in another way, or is given twice.
    """
    found: dict[str, Overlap] = {}
    for one in given:
        name, _, said = (part.strip() for part in one.rpartition("="))
        policy = next((policy for policy in get_args(Overlap) if policy == said), None)
        if policy is None or name in found or (not name and len(given) > 1):
            raise UserError(
                f"overlap {one!r}: expected one of {', '.join(get_args(Overlap))} for all categories, or such as "
                '"person=nested", each category once'
            )
        found[name] = policy
    return found.get("", found) or "highest"


def json_lines(path: Path) -> Iterator[Input]:
    """Texts of a file of JSON lines, {"text": ..., "pair"?: ...}; other keys are an error.

    Raises:
        UserError: no such file, it can't be read, is not UTF-8, a line is not such an object, or its text is empty
            or holds half of a surrogate pair.
    """
    for number, line in _lines(path):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not valid JSON: {error}") from None
        match content:
            case {"text": str(text), **rest} if text.strip() and set(rest) <= {"pair"}:
                pair = rest.get("pair")
                if pair is None or isinstance(pair, str):
                    check_string(f"{path}:{number}: text", text)
                    check_string(f"{path}:{number}: pair", pair or "")
                    yield Input(text, pair)
                    continue
        raise UserError(
            f'{path}:{number}: {line[:80]!r}; expected {{"text": "..."}} or {{"text": "...", "pair": "..."}}, '
            "with a text that is not empty"
        )


def plain_lines(lines: Iterable[str]) -> Iterator[Input]:
    """A text a line, as on the standard input.

    Raises:
        UserError: a line is empty, or not UTF-8.
    """
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise UserError(f"line {number} of the standard input is empty; leave it out")
            yield Input(line.rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise UserError(f"the standard input: not UTF-8 ({error.reason}); convert it to UTF-8") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from enumerate(file, 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a file of JSON lines") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}); convert it to UTF-8") from None
