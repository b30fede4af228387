"""Check the arguments of a prediction and make a query for each text, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

from ubert.inference.candidates import NOTHING, Events, Relations, candidates, check_overlap, check_string, short
from ubert.objectives import Overlaps, Query, objective
from ubert.schema.errors import UserError

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


def questions(
    texts: Sequence[str],
    *,
    task: str,
    categories: Sequence[str] = (),
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
    texts, categories = listed("texts", texts), listed("categories", categories)
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
    wanted = candidates(task, categories, relations, events, discontinuous)
    queries = [
        objective(task).query(task, asked, text, pairs[i] if pairs is not None else None, wanted)
        for i, text in enumerate(texts)
    ]
    tables = objective(task).tables(wanted)  # a task may add some, and ask for others in a second pass
    check_overlap(task, overlap, (*wanted, *tables))
    return queries


def check_threshold(threshold: float | None) -> None:
    """Check a threshold.

    Raises:
        UserError: it is not a number, not a probability, or is 0 or 1, whose logits are infinite.
    """
    if threshold is not None and not (isinstance(threshold, Real) and 0 < threshold < 1):
        raise UserError(f"threshold is {threshold!r}, expected a probability between 0 and 1")


def listed(name: str, given: Iterable[str]) -> list[str]:
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
