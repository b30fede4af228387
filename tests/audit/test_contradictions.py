"""The common form of annotations: it is equal for two records with the same annotations."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import record
from msgspec.structs import replace

from pipelines.audit.contradictions import annotation
from ubert.schema.record import Argument, Category, Event, Record, Span


def clusters(*groups: int | None) -> Record:
    """Mentions of "Ann", "she" and "Bob", by the cluster that each is of."""
    places = ((0, 3), (9, 12), (17, 20))
    spans = [Span(*place, group=group) for place, group in zip(places, groups, strict=True)]
    return record("c", 0, "coref", "Ann says she saw Bob.", [], spans=spans)


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ((0, 0, 1), (5, 5, 2), True),  # whatever their numbers are
        ((0, 0, 1), (0, 1, 1), False),
        ((0, 0, 1), (0, 1, 2), False),
        ((0, 0, 0), (0, 0, 1), False),
        ((0, 0, None), (0, None, None), False),
    ],
)
def test_clusters_are_what_they_hold(here: Any, there: Any, same: bool) -> None:
    assert (annotation(clusters(*here)) == annotation(clusters(*there))) == same


def test_arguments_are_distinguished_by_their_event() -> None:
    """By its trigger, and by what it is an argument of."""
    kinds = (Category("say", "event"), Category("see", "event"), Category("what", "role", event="say"))
    spans = [Span(4, 8), Span(13, 16), Span(0, 3)]

    def said(argument: Argument) -> dict[str, Any]:
        one = record("c", 0, "event", "Ann says she saw Bob.", [], spans=spans)
        one.categories, one.events = kinds, [Event(1, 1), Event(0, 0, [argument])]
        return annotation(one)

    every = [said(argument) for argument in (Argument(2, event=0), *(Argument(2, span=n) for n in range(3)))]
    assert all(here != there for i, here in enumerate(every) for there in every[:i])


def test_annotations_of_the_second_text_are_not_of_the_first() -> None:
    """Case and white space make no difference, before a mention or in it."""

    def said(text: str, pair: str, span: Span) -> dict[str, Any]:
        return annotation(record("c", 0, "ner", text, ["who"], pair=pair, spans=[span]))

    here = said("Ann Lee", "ann lee", Span(4, 7, 0))
    assert here == said("ANN  Lee", "x", Span(5, 8, 0)) == said(" ann lee", "x", Span(5, 8, 0))
    there = said("Ann Lee", "ann lee", Span(4, 7, 0, side="pair"))
    assert there != here and there == said("x", "ANN  LEE", Span(5, 8, 0, side="pair"))


def test_zero_says_something_and_the_same_again_says_nothing() -> None:
    """A value of 0, an empty target, and the first category or span."""

    def said(**changes: Any) -> dict[str, Any]:
        one = record("c", 0, "event", "Ann says she saw Bob.", [])
        return annotation(replace(one, categories=(Category("say", "event"), Category("see", "event")), **changes))

    first = Span(4, 8, 0)
    assert (said(), said(value=0.0), said(target="")) == ({}, {"value": [0.0]}, {"target": [""]})
    assert said(spans=[first]) != said(spans=[Span(4, 8)])
    assert said(spans=[first], events=[Event(0, 0)]) != said(spans=[first], events=[Event(0)])
    assert said(spans=[first, first], labels=[1, 1]) == said(spans=[first], labels=[1])
