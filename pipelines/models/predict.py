"""Predict a stream of texts, with one JSON object for each, in order."""

from __future__ import annotations

import csv
import gc
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Required, TypedDict, Unpack, get_args

import ubert
from pipelines.models.inputs import Input, Inputs, read_inputs
from pipelines.models.json_lines import resumable
from pipelines.models.own_categories import arguments, with_own_categories
from pipelines.progress import meter
from ubert.inference.candidates import Events, Relations, short
from ubert.inference.predictor import Predictor
from ubert.inference.questions import questions
from ubert.inference.thresholds import read_thresholds
from ubert.model.ubert import WEIGHTS
from ubert.objectives import Overlap, Overlaps
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision
from ubert.training.checkpoints.checkpoint import hash_of

# An event type, quoted or not, and its roles.
_EVENT = re.compile(r'\s*(?:"([^"]*)"\s*|([^":][^:]*)?)(?::(.*))?', re.DOTALL)
CHUNK = 512  # texts that are sorted by length and predicted together


class Ask(TypedDict, total=False):
    """Arguments of `ubert.inference.predictor.Predictor.predict`, without the texts. `categories` are those of
    texts whose rows have none."""

    task: Required[str]
    categories: Sequence[str]
    relations: Relations
    events: Events
    instruction: str | None
    threshold: float | None
    overlap: Overlaps
    discontinuous: bool


class Chunk(NamedTuple):
    """Texts that are predicted together. `done` is how much of the input has been read up to them."""

    texts: list[Input]
    done: int


def predict(
    checkpoint: Path,
    inputs: Iterable[Input],
    *,
    precision: Precision = "auto",
    verify: bool = True,
    chunk: int = CHUNK,
    **ask: Unpack[Ask],
) -> Iterator[list[dict[str, Any]]]:
    """Predict `chunk` texts at a time.

    Yields:
        The rows of a chunk, in the order of the texts: the fields of each row and {"predictions": [...]}. A
        prediction has the fields of its class in `ubert.objectives`: {"category", "score"}, {"value"}, {"start",
        "end", "category", "text", "score"}, {"category", "fragments", "score"}, {"category", "head", "tail",
        "score"}, {"category", "trigger", "arguments"} or {"mentions"}.

    Raises:
        UserError: there is an error in the checkpoint, the texts or the arguments.
    """
    questions([], **ask)  # before the model loads, and even if there are no texts
    predictor = ubert.load(checkpoint, precision=precision, verify=verify)
    gc.freeze()  # torch and the model stay: without it, the interpreter searches them for a second when it exits
    remaining = with_own_categories(inputs, ask)
    while batch := list(islice(remaining, chunk)):
        yield with_predictions(predictor, batch, ask)


def predict_file(
    checkpoint: Path,
    source: Path,
    output: Path,
    *,
    precision: Precision = "auto",
    verify: bool = True,
    workers: int = 1,
    address: str | None = None,
    **ask: Unpack[Ask],
) -> int:
    """Predict the texts of a file, and write a file of JSON lines. After an interruption, the same call resumes,
    and the output is the same as without an interruption.

    Args:
        workers: number of predicting processes. More than one use Ray; the output is the same.
        address: a Ray cluster whose machines can read `source`; None: a local Ray.

    Returns:
        The number of texts in the output.

    Raises:
        UserError: `output` exists, was begun with other arguments or from a pipe, or can't be written. Or several
            workers would read a pipe, or there is an error in the checkpoint, the texts or the arguments.
    """
    checkpoint = ubert.checkpoint(checkpoint)
    questions([], **ask)
    inputs = read_inputs(source)
    status, piped = source.stat(), not source.is_file()
    version = f"{source.resolve()}, {status.st_size} bytes, modified at {status.st_mtime_ns} ns"
    if piped and workers > 1:
        raise UserError(
            f"--workers {workers}: {source} is a pipe, which workers can't read; leave out --workers, or write "
            "the texts to a file"
        )
    same = {
        "checkpoint": str(checkpoint.resolve()),
        "set of weights": hash_of(checkpoint / WEIGHTS),
        "set of thresholds": {task: fit.threshold for task, fit in read_thresholds(checkpoint).items()},
        "input": "a pipe" if piped else version,
        "precision": precision,
        **ask,
    }
    with (
        resumable(output, same, every=CHUNK) as (written, write),
        meter(source.name, inputs.size, "texts") as advance,
    ):
        if piped and written:
            raise UserError(
                f"{output}.part was begun from a pipe, whose texts can't be compared with these; delete it to "
                "start again"
            )
        if workers > 1:
            from pipelines.models.pool import predict_on_workers

            chunks = predict_on_workers(
                checkpoint,
                source,
                written,
                ask,
                precision=precision,
                verify=verify,
                workers=workers,
                address=address,
            )
        else:
            predictor = ubert.load(checkpoint, precision=precision, verify=verify)
            chunks = (
                (with_predictions(predictor, texts, ask), done) for texts, done in chunks_of(inputs, written, ask)
            )
        before = 0
        for rows, done in chunks:
            write(rows)
            advance(done - before, len(rows))
            before, written = done, written + len(rows)
    return written


def chunks_of(inputs: Inputs, skip: int, ask: Ask) -> Iterator[Chunk]:
    """Yield the texts after the first `skip`, `CHUNK` at a time. An empty chunk comes first if any is."""
    if skip:
        deque(islice(inputs.texts, skip), maxlen=0)
        yield Chunk([], inputs.done())
    remaining = with_own_categories(inputs.texts, ask)
    while texts := list(islice(remaining, CHUNK)):
        yield Chunk(texts, inputs.done())


def with_predictions(predictor: Predictor, inputs: Sequence[Input], ask: Ask) -> list[dict[str, Any]]:
    """Return the rows of texts with their predictions."""
    if not inputs:
        return []
    texts, pairs = [one.text for one in inputs], pairs_of(inputs)
    found = predictor.predict(texts, pairs=pairs, **arguments(inputs, ask))
    return [{**one.row, **result.to_dict()} for one, result in zip(inputs, found, strict=True)]


def pairs_of(inputs: Sequence[Input]) -> list[str] | None:
    """Return the second texts if all texts have one, or None if no text has.

    Raises:
        UserError: only some texts have one.
    """
    pairs = [one.pair for one in inputs if one.pair is not None]
    if pairs and len(pairs) < len(inputs):
        first = next(one.text for one in inputs if one.pair is None)
        raise UserError(
            f"{len(inputs) - len(pairs)} of {len(inputs)} texts lack a `pair` that the others have, such as "
            f"{short(first)}; give one to every text, or to none"
        )
    return pairs or None


def comma_separated(given: str) -> list[str]:
    """Parse a comma-separated list of categories. A name with a comma must be in double quotes."""
    [row] = csv.reader([" ".join(given.splitlines())], skipinitialspace=True) if given.strip() else [[]]
    return [name for name in map(str.strip, row) if name]


def relation_types(given: Iterable[str]) -> dict[str, tuple[str, str] | None]:
    """Parse relations written as "name" or "name:head type:tail type". A name with a colon must be in double
    quotes.

    Raises:
        UserError: one has another form, or is given twice.
    """
    found: dict[str, tuple[str, str] | None] = {}
    for one in given:
        [parts] = csv.reader([" ".join(one.splitlines())], delimiter=":", skipinitialspace=True) if one else [[""]]
        match [part.strip() for part in parts]:
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
    """Parse events written as "type:role,role,...", or "type" for triggers only. A type with a colon, and a role
    with a comma, must be in double quotes.

    Raises:
        UserError: one has no type, or is given twice.
    """
    found: dict[str, list[str]] = {}
    for one in given:
        parsed = _EVENT.fullmatch(one)
        name = (parsed[1] or parsed[2] or "").strip() if parsed else ""
        if parsed is None or not name or name in found:
            raise UserError(f'event {one!r}: expected "type:role,role", each type once, such as "attack:attacker"')
        found[name] = comma_separated(parsed[3] or "")
    return found


def overlap_policies(given: Sequence[str]) -> Overlaps:
    """Parse overlap policies written as "nested", or as "category=nested" for each category that differs from
    "highest".

    Raises:
        UserError: one has another form, or is given twice.
    """
    found: dict[str, Overlap] = {}
    for one in given:
        name, _, wanted = (part.strip() for part in one.rpartition("="))
        policy = next((policy for policy in get_args(Overlap) if policy == wanted), None)
        if policy is None or name in found or (not name and len(given) > 1):
            raise UserError(
                f"overlap {one!r}: expected one of {', '.join(get_args(Overlap))} for all categories, or such as "
                '"person=nested", each category once'
            )
        found[name] = policy
    return found.get("", found) or "highest"
