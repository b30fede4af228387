"""What makes a record with links invalid: `problem` of ubert/schema/checks.py."""

from __future__ import annotations

import pytest
from linked import attacks
from msgspec.structs import replace

from ubert.schema.checks import problem
from ubert.schema.record import Argument, Event


def test_a_valid_record_has_no_problem() -> None:
    assert problem(attacks()) is None


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        (Argument(2), ("dangling event", "an argument needs either a span or an event")),
        (Argument(2, span=3, event=0), ("dangling event", "an argument needs either a span or an event")),
        (Argument(2, span=7), ("dangling event", "argument span 7 of 7 spans")),
        (Argument(2, span=-1), ("dangling event", "argument span -1 of 7 spans")),
        (Argument(2, event=1), ("dangling event", "argument event 1 of 1 events")),
        (Argument(5, span=3), ("unknown category", "role 5 of 5 categories")),
    ],
)
def test_an_argument_is_one_mention_or_one_event_of_the_record(argument: Argument, found: tuple[str, str]) -> None:
    assert problem(replace(attacks(), events=[Event(0, 0, [argument])])) == found
