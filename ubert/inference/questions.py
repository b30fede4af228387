"""Check the arguments of a prediction and make a query for each text, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

from ubert.inference.candidates import (
    NOTHING,
    Events,
    Names,
    Relations,
    candidates,
    check_overlap,
    check_string,
    short,
)
from ubert.objectives import Categories, Overlaps, Query, objective
from ubert.schema.errors import UserError

Item = TypeVar("Item")

INSTRUCTIONS = {
    "classification": "text classification",
    "multilabel": "multi-label classification",
    "pair": "relation between two texts",
    "choice": "multiple choice",
    "regression": "a number of a text",
    "ner": "named entity recognition",
    "relation": "relation extraction",
    "event": "event extraction",
    "coref": "coreference resolution",
    "qa": "question answering",
    "seq2seq": "write a text",
}
"""General instruction of each task; a corpus has its own."""

NAMED = ("classification", "multilabel", "pair", "choice", "regression", "ner", "qa")
"""Tasks whose categories are names alone. Each text may have its own."""


def questions(
    texts: Sequence[str],
    *,
    task: str,
    categories: Names = (),
    relations: Relations = NOTHING,
    events: Events = NOTHING,
    pairs: Sequence[str] | None = None,
    instruction: str | None = None,
    threshold: float | None = None,
    overlap: Overlaps = "highest",
    discontinuous: bool = False,
    instructions: Mapping[str, str] = INSTRUCTIONS,
) -> list[Query]:
    """Make a query for each text; see `ubert.inference.predictor.Predictor.predict` for the arguments.

    Args:
        instructions: task -> instruction if none is given.

    Raises:
        UserError: an argument is wrong.
    """
    texts = listed("texts", texts)
    names: list[Any] = listed("categories", categories)
    pairs = None if pairs is None else listed("pairs", pairs)
    objective(task)
    check_texts(texts, pairs, instruction)
    if task == "pair":
        _check_second(texts, pairs)
    if any(pairs or ()) and objective(task).kind not in ("label", "value"):  # no corpus of these tasks has one
        raise UserError(
            f"task {task} finds mentions only in the text; append the second text to it, or leave it out"
        )
    check_threshold(threshold)
    asked = instruction or instructions.get(task, task)
    if task in NAMED and not (texts or names):  # a list for each of no texts
        return []
    if _nested(names):
        of_texts = sets = _own_candidates(task, names, len(texts), relations, events, discontinuous)
    else:
        sets = [candidates(task, names, relations, events, discontinuous)]
        of_texts = sets * len(texts)
    queries = [
        objective(task).query(task, asked, text, pairs[i] if pairs is not None else None, wanted)
        for i, (text, wanted) in enumerate(zip(texts, of_texts, strict=True))
    ]
    # A task may add tables, and ask for others in a second pass.
    known = [category for wanted in sets for category in (*wanted, *objective(task).tables(wanted))]
    check_overlap(task, overlap, known)
    return queries


def check_threshold(threshold: float | None) -> None:
    """Check a threshold.

    Raises:
        UserError: it is not a number, not a probability, or is 0 or 1, whose logits are infinite.
    """
    if threshold is not None and not (isinstance(threshold, Real) and 0 < threshold < 1):
        raise UserError(f"threshold is {threshold!r}, expected a probability between 0 and 1")


def listed(name: str, given: Iterable[Item]) -> list[Item]:
    """Return the strings of an iterable as a list.

    Raises:
        UserError: `given` is one string, or not iterable.
    """
    if isinstance(given, str):
        raise UserError(f"{name} is one string ({short(given)}); expected a list of strings")
    try:
        return list(given)
    except TypeError:
        raise UserError(f"{name} is {given!r}; expected a list of strings") from None


def check_texts(texts: Sequence[str], pairs: Sequence[str] | None, instruction: str | None) -> None:
    """Check texts, second texts and the instruction.

    Raises:
        UserError: a text is empty, a string is not UTF-8, or the number of second texts is wrong.
    """
    for i, text in enumerate(texts):
        check_string(f"text {i + 1} of {len(texts)}", text)
        if not text.strip():
            raise UserError(f"text {i + 1} of {len(texts)} is empty; leave it out")
    if pairs is not None and len(pairs) != len(texts):
        raise UserError(f"{len(pairs)} second texts for {len(texts)} texts; give one for each")
    for i, pair in enumerate(pairs or ()):
        check_string(f"second text {i + 1} of {len(texts)}", pair)
    check_string("instruction", "" if instruction is None else instruction)


def _nested(names: Sequence[Any]) -> bool:
    """Whether each text has a list of its own."""
    first = names[0] if names else ""
    return isinstance(first, Iterable) and not isinstance(first, (str, bytes, Mapping))


def _own_candidates(
    task: str, lists: Sequence[Any], texts: int, relations: Relations, events: Events, discontinuous: bool
) -> list[Categories]:
    """Build the candidate categories of each text from its own list.

    Raises:
        UserError: the task has none, or the number of lists or one of them is wrong.
    """
    if task not in NAMED:
        raise UserError(f"task {task} asks all texts for the same; categories can't be a list for each text")
    if len(lists) != texts:
        raise UserError(f"{len(lists)} lists of categories for {texts} texts; give one for each, or one for all")
    found = []
    for number, names in enumerate(lists, 1):
        where = f"text {number} of {texts}"
        names = listed(f"categories of {where}", names)
        try:
            found.append(candidates(task, names, relations, events, discontinuous))
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    return found


def _check_second(texts: Sequence[str], pairs: Sequence[str] | None) -> None:
    """Check that each text of task pair has a second text.

    Raises:
        UserError: there are none, or one is empty.
    """
    if pairs is None and texts:
        raise UserError("task pair needs a second text for each text; give them as `pair` (pairs=[...])")
    for text, pair in zip(texts, pairs or (), strict=True):
        if not pair.strip():
            raise UserError(f"the second text of {short(text)} is empty; task pair needs one for each text")
