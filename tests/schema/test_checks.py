"""Which records are invalid: `problem` of ubert/schema/checks.py."""

from __future__ import annotations

from math import inf, nan, nextafter
from typing import Any

import pytest
from linked import PERSON, PLACE, attacks, record
from msgspec.structs import replace

from ubert.schema.checks import LARGEST_VALUE, covered, problem
from ubert.schema.record import Argument, Category, Event, Relation, Span

GOOD = replace(record("multilabel", "Ann left", (PERSON, PLACE)), pair="She")
TWO = [Span(0, 3), Span(4, 8)]
BROKEN = Category("\ud800", "entity")


def test_a_valid_record_has_no_problem() -> None:
    assert problem(attacks()) is None


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        (Argument(2), ("dangling event", "an argument needs either a span or an event")),
        (Argument(2, span=3, event=0), ("dangling event", "an argument needs either a span or an event")),
        (Argument(2, span=7), ("dangling event", "span 7 of an argument; there are 7 spans")),
        (Argument(2, span=-1), ("dangling event", "span -1 of an argument; there are 7 spans")),
        (Argument(2, event=1), ("dangling event", "event 1 of an argument; there are 1 events")),
        (Argument(2, event=-1), ("dangling event", "event -1 of an argument; there are 1 events")),
        (Argument(5, span=3), ("unknown category", "role 5; there are 5 categories")),
        (Argument(-1, span=3), ("unknown category", "role -1; there are 5 categories")),
    ],
)
def test_an_argument_is_one_mention_or_one_event_of_the_record(argument: Argument, found: tuple[str, str]) -> None:
    assert problem(replace(attacks(), events=[Event(0, 0, [argument])])) == found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text": "\n "}, "empty text"),
        ({"text": ""}, "empty text"),
        *(({field: "a\ud800"}, "lone surrogate") for field in ("text", "pair", "target", "record_id")),
        ({"categories": (PERSON, BROKEN)}, "lone surrogate"),
        ({"labels": [0, 1]}, None),
        ({"labels": [0, 2]}, "unknown category"),
        ({"labels": [-1]}, "unknown category"),
        *(
            ({"task": task, "labels": labels}, None if len(labels) == 1 else "wrong number of labels")
            for task in ("classification", "pair", "choice")
            for labels in ([], [1], [0, 1])
        ),
        *(({"task": "regression", "value": value}, None) for value in (-LARGEST_VALUE, 0.0, LARGEST_VALUE)),
        *(
            ({"task": "regression", "value": value}, "no value")
            for value in (None, nan, nextafter(LARGEST_VALUE, inf), nextafter(-LARGEST_VALUE, -inf))
        ),
        ({"task": "seq2seq"}, "no target"),
        ({"task": "seq2seq", "target": "a"}, None),
        ({"spans": [Span(0, 8, 1), Span(0, 3, None, "pair")]}, None),
        ({"spans": [Span(0, 9)]}, "span outside its text"),
        ({"spans": [Span(0, 8), Span(0, 4, None, "pair")]}, "span outside its text"),
        ({"pair": None, "spans": [Span(0, 1, None, "pair")]}, "span outside its text"),
        ({"spans": [Span(-1, 2)]}, "span outside its text"),
        ({"spans": [Span(2, 2)]}, "span outside its text"),
        ({"spans": [Span(0, 1, 2)]}, "unknown category"),
        ({"spans": [Span(0, 1, -1)]}, "unknown category"),
    ],
)
def test_a_record_needs_what_its_task_needs_within_its_bounds(changes: dict[str, Any], reason: str | None) -> None:
    found = problem(replace(GOOD, **changes))
    assert (found and found[0]) == reason


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        (Relation(1, 0, 1), None),
        *((Relation(*ends, 0), "dangling relation") for ends in ((2, 0), (0, 2), (-1, 0), (0, -1))),
        *((Relation(0, 1, category), "unknown category") for category in (2, -1)),
        (Event(1, 1), None),
        (Event(0, None, [Argument(0, event=0)]), None),
        *((Event(category), "unknown category") for category in (2, -1)),
        *((Event(0, trigger), "dangling event") for trigger in (2, -1)),
    ],
)
def test_links_join_what_the_record_has(link: Relation | Event, reason: str | None) -> None:
    kind = "relations" if isinstance(link, Relation) else "events"
    found = problem(replace(GOOD, spans=TWO, **{kind: [link]}))
    assert (found and found[0]) == reason


def test_categories_of_a_spec_are_not_checked_again() -> None:
    shared = (PERSON, BROKEN)
    assert problem(replace(GOOD, categories=shared), shared) is None


def test_a_span_covers_a_part_of_its_side() -> None:
    assert [covered(GOOD, Span(0, 3, None, side)) for side in ("text", "pair")] == ["Ann", "She"]  # type: ignore[arg-type]
