"""Read the categories of each row, or its question, which replace those of the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.models.inputs import Input
from ubert.inference.candidates import NOTHING, candidates, check_string, short
from ubert.inference.questions import NAMED
from ubert.schema.errors import UserError

if TYPE_CHECKING:
    from pipelines.models.predict import Ask


def with_own_categories(inputs: Iterable[Input], ask: Ask) -> Iterator[Input]:
    """Yield the inputs with the `categories` of their rows or, for qa, the `question`.

    Raises:
        UserError: a row's own are wrong, or the task takes none from a row. Or neither row nor `ask` has any.
    """
    task = ask["task"]
    for one in inputs:
        own = _own(one.where, one.row, task)
        if own is None and not ask.get("categories") and task in NAMED:
            field = "question" if task == "qa" else "categories"
            raise UserError(
                f"{one.where}: no {field} given; add the field {field!r} to the row, or give --{field}"
            )
        yield one._replace(categories=own)


def arguments(inputs: Sequence[Input], ask: Ask) -> dict[str, Any]:
    """Return the arguments of a prediction, with a list of categories for each input if one has its own."""
    if all(one.categories is None for one in inputs):
        return {**ask}
    shared, overlap = ask.get("categories", ()), ask.get("overlap", "highest")
    lists = [shared if one.categories is None else one.categories for one in inputs]
    if isinstance(overlap, Mapping):  # only texts of other chunks may have the category of a policy
        overlap = {name: policy for name, policy in overlap.items() if any(name in names for names in lists)}
    return {**ask, "categories": lists, "overlap": overlap}


def _own(where: str, row: Mapping[str, Any], task: str) -> list[str] | None:
    names, question = row.get("categories"), row.get("question") if task == "qa" else None
    if names is None and question is None:
        return None
    if task not in NAMED:
        raise UserError(
            f"{where}: task {task} asks all texts for the same, so a row can't have its own categories; rename "
            "the field 'categories'"
        )
    if question is not None:
        if names is not None:
            raise UserError(f"{where}: has both 'question' and 'categories'; leave out one of them")
        check_string(f"{where}: question", question)
        if not question.strip():
            raise UserError(f"{where}: question is empty; write one, or leave it out")
        names = [question]
    if not isinstance(names, list) or not names:
        raise UserError(
            f"{where}: categories is {short(str(names))}, expected a list of strings that is not empty; correct "
            "it, or rename the field"
        )
    try:
        candidates(task, names, NOTHING, {})
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return names
