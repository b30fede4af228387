"""Check the names that a user passes, and turn them into candidate categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import get_args

from ubert.objectives import Overlap, Overlaps, objective
from ubert.objectives.tasks.ner import PARTS
from ubert.schema.checks import is_utf8
from ubert.schema.errors import UserError
from ubert.schema.record import Category

Names = Sequence[str] | Sequence[Sequence[str]]  # of all texts, or a list for each text
Relations = Mapping[str, tuple[str, str] | None]
Events = Mapping[str, Sequence[str]]
MOST_NAMES = 20  # categories that a message lists
NOTHING: Mapping[str, tuple[str, str]] = MappingProxyType({})


def candidates(
    task: str, categories: Sequence[str], relations: Relations, events: Events, discontinuous: bool = False
) -> tuple[Category, ...]:
    """Build the candidate categories of a task, in order.

    Args:
        categories: labels, entity types, questions or numbers, depending on the task.
        relations: a relation's name -> the entity types of its head and tail, None for any. The types become
            candidates too.
        events: an event type's name -> its roles.
        discontinuous: mentions may have several fragments.

    Raises:
        UserError: none is given, or they belong to another task or have the wrong form. Or the task takes none.
            Or one of them is empty, given twice, not a UTF-8 string, or not a number.
    """
    if not objective(task).tabular:
        raise UserError(
            f"task {task} has no categories to predict; generate text with `ubert generate` (generate(...) in "
            "Python), or measure the prediction of masked words with `ubert evaluate`"
        )
    kind = objective(task).kind
    for option, given, wanted in (
        ("categories", categories, task not in ("event", "coref")),
        ("relations", relations, task == "relation"),
        ("events", events, task == "event"),
        ("discontinuous", discontinuous, task == "ner"),
    ):
        if given and not wanted:
            raise UserError(f"task {task} takes no {option}; leave them out")
    if task == "coref":
        return ()
    _check_links(relations, events)
    events = {event: tuple(roles) for event, roles in events.items()}  # an iterator can be read only once
    types = [name for ends in relations.values() for name in ends or ()]
    _check("category", categories)
    _check("relation", relations)
    _check("event", events)
    for name in types:
        check_string("entity type of a relation", name)
        if not name.strip():
            raise UserError("an entity type of a relation is empty; give it a name in natural words")
    for event, roles in events.items():
        _check(f"role of {event!r}", roles)
    if task == "regression":
        _check_numbers(categories)
    found = (
        *(Category(name, kind) for name in dict.fromkeys((*categories, *types))),
        *(Category(name, "relation", *(ends or ())) for name, ends in relations.items()),
        *(Category(name, "event") for name in events),
        *(Category(role, "role", event=event) for event, roles in events.items() for role in roles),
        *([PARTS] if discontinuous else []),
    )
    needed, argument, example = _NEEDED.get(task, (kind, "categories", '["person", "place"]'))
    if not any(category.kind == needed for category in found):
        raise UserError(f"no {needed} given; task {task} needs at least one in `{argument}`, such as {example}")
    return found


def check_overlap(task: str, overlap: Overlaps, categories: Sequence[Category]) -> None:
    """Check overlap policies.

    Args:
        categories: those of all passes.

    Raises:
        UserError: a policy is unknown, or names a category that is not a candidate.
    """
    if task == "coref" and isinstance(overlap, Mapping) and overlap:
        raise UserError(f"overlap of {min(overlap)!r}: mentions of coreference always nest; leave it out")
    policies = overlap if isinstance(overlap, Mapping) else {"": overlap}
    names = {category.name for category in categories}
    for name, policy in policies.items():
        if policy not in get_args(Overlap):
            raise UserError(f"overlap {policy!r}: expected one of {', '.join(get_args(Overlap))}")
        if isinstance(overlap, Mapping) and name not in names:
            more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
            there = ", ".join(sorted(names)[:MOST_NAMES]) + more
            raise UserError(f"overlap of {name!r}: not one of the categories ({there})")


# The kind that a task needs, and an argument with it, in the common notation of Python and JSON.
_NEEDED = {
    "relation": ("relation", "relations", '{"lives in": ["person", "place"]}'),
    "event": ("event", "events", '{"attack": ["attacker", "target"]}'),
    "qa": ("question", "categories", '["Who wrote it?"]'),
    "regression": ("value", "categories", '["0", "1", "2", "3", "4", "5"]'),
}


def check_string(what: str, given: object) -> None:
    """Check a string that a model reads.

    Raises:
        UserError: it is not a string, or can't be encoded as UTF-8.
    """
    if not isinstance(given, str):
        raise UserError(f"{what} is {given!r}, expected a string")
    if not is_utf8(given):
        raise UserError(
            f"{what} holds a character that is half of a surrogate pair, or a byte that was not UTF-8 "
            f"({short(given)}); convert it to UTF-8"
        )


def short(text: str) -> str:
    """Quote a text for an error message, truncated to about 60 characters."""
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")


def _check(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        check_string(f"{what} {i + 1}", name)
        if not name.strip():
            raise UserError(f"{what} {i + 1} is empty; give it a name in natural words")
        if name in seen:
            raise UserError(f"{what} {name!r} is given twice; give each once")
        seen.add(name)


def _check_links(relations: Relations, events: Events) -> None:
    """Check the types at run time: callers may be untyped, and a string is also a sequence of strings."""
    if not isinstance(relations, Mapping) or not all(
        ends is None or (isinstance(ends, Sequence) and not isinstance(ends, str) and len(ends) == 2)
        for ends in relations.values()
    ):
        raise UserError(
            f"relations is {relations!r}; expected the entity types of the head and tail of each, or None for "
            'any, such as {"lives in": ("person", "place"), "knows": None}'
        )
    if not isinstance(events, Mapping) or not all(
        isinstance(roles, Iterable) and not isinstance(roles, str) for roles in events.values()
    ):
        raise UserError(f'events is {events!r}; expected the roles of each, such as {{"attack": ["attacker"]}}')


def _check_numbers(categories: Iterable[str]) -> None:
    for name in categories:
        try:
            finite = math.isfinite(float(name))
        except ValueError:
            finite = False
        if not finite:
            raise UserError(f"category {name!r} is not a number; task regression chooses among numbers")
