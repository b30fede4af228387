"""A record as pieces of text with marks: every mention is complete, every mark is closed, no text is lost."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipelines.report.facts import FEW, Part
from pipelines.report.records import BEFORE, Passage, shown
from pipelines.report.visible import fitted, shortened, visible
from ubert.schema.checks import covered
from ubert.schema.record import Argument, Category, Event, Record, Relation, Source, Span

BLANK = Record(
    record_id="a/train/1",
    corpus="a",
    split="train",
    language="en",
    task="ner",
    instruction="things",
    text="Ann met the queen of Spain.",
    source=Source("a.txt", 1, "00"),
    categories=tuple(Category(name, "entity") for name in ("person", "place", "title")),
)


def marked(passage: Passage) -> tuple[str, dict[int, str]]:
    """The text of a passage, and what the marks of each mention cover; each mark is closed, the last one first."""
    text, covers, opened = "", defaultdict[int, str](str), list[int]()
    for piece in passage.pieces:
        if piece.mark:
            opened.append(piece.mark.span)
        elif piece.closes:
            opened.pop()
        text += piece.words
        for span in opened:
            covers[span] += piece.words
    assert not opened
    return text, covers


@st.composite
def annotated(draw: st.DrawFn) -> Record:
    text = draw(st.text(min_size=1, max_size=30))
    ends = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).filter(lambda pair: pair[0] != pair[1])
    spans = [Span(min(pair), max(pair), draw(st.integers(0, 2))) for pair in draw(st.lists(ends, max_size=8))]
    return replace(BLANK, text=text, spans=spans)


@given(annotated())
def test_marks_cover_exactly_their_mentions_however_they_cross(record: Record) -> None:
    [passage] = shown(record).passages
    text, covers = marked(passage)
    assert text == visible(record.text)
    assert covers == {i: visible(covered(record, span)) for i, span in enumerate(record.spans)}
    labels = [piece.mark.span for piece in passage.pieces if piece.mark and piece.mark.label]
    assert sorted(labels) == list(range(len(record.spans)))


def test_inner_marks_lie_in_outer_ones() -> None:
    spans = [Span(12, 17, 2), Span(8, 26, 0), Span(21, 26, 1)]
    [passage] = shown(replace(BLANK, spans=spans)).passages
    order = [(piece.mark.span, piece.mark.height) if piece.mark else piece.words for piece in passage.pieces]
    assert [item for item in order if item] == [
        "Ann met ", (1, 1), "the ", (0, 0), "queen", " of ", (2, 0), "Spain", ".",
    ]  # fmt: skip


def test_fragments_of_a_mention_and_mentions_of_a_cluster_carry_its_number() -> None:
    fragments = [Span(0, 3, 0, group=7), Span(21, 26, 0, group=7), Span(8, 11, group=2)]
    [passage] = shown(replace(BLANK, spans=fragments)).passages
    assert [p.mark.label for p in passage.pieces if p.mark] == ["person #7", "#2", "person #7"]


def test_categories_differ_in_colour_or_line_and_are_in_the_legend() -> None:
    many = tuple(Category(f"c{i}", "entity") for i in range(28))
    record = shown(replace(BLANK, categories=many, spans=[Span(i % 20, i % 20 + 1, i) for i in range(28)]))
    assert len({(mark.colour, mark.style) for mark in record.legend}) == 28
    assert [mark.label for mark in record.legend] == [category.name for category in many]


def test_a_long_text_is_shown_where_its_mentions_are() -> None:
    text = "x" * 9000
    [start] = shown(replace(BLANK, text=text)).passages
    assert (start.before, start.after, len(marked(start)[0])) == (0, 9000 - FEW.characters, FEW.characters)
    spans = [Span(5000, 5010, 0), Span(5900, 7000, 1), Span(8000, 8001, 2)]
    [inside] = shown(replace(BLANK, text=text, spans=spans)).passages
    assert (inside.before, inside.elsewhere) == (5000 - BEFORE, 2)
    assert marked(inside)[1] == {0: "x" * 10}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"task": "classification", "labels": [1]}, [("label", ["place"], ["person", "title"])]),
        ({"task": "multilabel", "labels": []}, [("label", [], ["none", "person", "place", "title"])]),
        (
            {"task": "choice", "labels": [2]},
            [("option 1", [], ["person"]), ("option 2", [], ["place"]), ("option 3", ["title"], [])],
        ),
        ({"task": "regression", "value": 2.5}, [("value", ["2.5"], [])]),
        ({"task": "seq2seq", "target": "Anna\x00"}, [("target", [], ["Anna␀"])]),
        (
            {"task": "qa", "categories": (Category("Who?", "question"),), "spans": [Span(0, 3, 0)]},
            [("question", [], []), ("answer", ["Ann"], [])],
        ),
        (
            {"task": "qa", "categories": (Category("Who?", "question"),)},
            [("question", [], []), ("answer", [], ["none in the text"])],
        ),
        (
            {"spans": [Span(0, 3, 0), Span(21, 26, 1)], "relations": [Relation(0, 1, 2)]},
            [("relation", [], ["Ann", "Spain"])],
        ),
        (
            {
                "spans": [Span(4, 7, 0), Span(0, 3, 1)],
                "events": [Event(0, 0, [Argument(1, span=1), Argument(2, event=0)])],
            },
            [("event 0", [], ["met", "Ann", "event 0"])],
        ),
    ],
)  # fmt: skip
def test_what_is_known_of_a_record_is_shown(
    changes: dict[str, object], facts: list[tuple[str, list[str], list[str]]]
) -> None:
    said = shown(replace(BLANK, **changes)).facts  # type: ignore[arg-type]
    of_role = [
        (fact.name, *([part.words for part in fact.line if part.role == wanted] for wanted in ("chosen", "words")))
        for fact in said
    ]
    assert of_role == facts


def test_what_is_left_out_of_a_list_is_counted() -> None:
    spans = [Span(0, 3, 0), Span(21, 26, 1)]
    facts = shown(replace(BLANK, spans=spans, relations=[Relation(0, 1, 2)] * (FEW.items + 5))).facts
    assert facts[-1].parts == [Part("words", "and 5 more")]
    assert len(facts) == FEW.items + 1


def test_characters_that_steer_a_terminal_or_turn_a_line_are_named() -> None:
    assert visible("a\x00\x1b[31m\u202eb\u2066\x85\x7f\t\n") == "a␀␛[31m[U+202E]b[U+2066][U+0085]␡\t\n"
    assert visible("שלום \u200f 人") == "שלום \u200f 人"
    assert shortened("abcdef", 4) == "abcd… (+2)"
    assert (fitted("人人人人", 5), fitted("two\nlines", 20), fitted("abcdef", 4)) == ("人人…", "two lines", "abc…")


def test_an_event_is_a_frame_and_its_arguments_lead_to_what_they_name() -> None:
    spans = [Span(4, 7, 0), Span(0, 3, 1)]
    events = [Event(0, 0, [Argument(1, span=1)]), Event(0, 0, [Argument(2, event=0)])]
    record = shown(replace(BLANK, spans=spans, events=events))
    first, second = record.facts
    [(role, filler)] = second.arguments
    assert (role.words, filler.words, filler.anchor) == ("title", "event 0", first.anchor)
    assert {part.anchor for fact in record.facts for part in fact.line} - {""} <= record.anchors


def test_arcs_that_need_the_same_room_do_not_touch() -> None:
    spans = [Span(21, 26, 1), Span(0, 3, 0), Span(8, 17, 2)]
    relations = [Relation(1, 0, 0), Relation(1, 2, 0), Relation(2, 1, 1), Relation(2, 0, 2), Relation(0, 0, 0)]
    found = shown(replace(BLANK, spans=spans, relations=relations)).arcs
    assert found and [box.words for box in found.boxes] == ["Ann", "the queen", "Spain"]
    assert len(found.arcs) == len(relations)
    for one, other in combinations(found.arcs, 2):
        apart = one.reach[1] < other.reach[0] or other.reach[1] < one.reach[0]
        assert apart or one.height != other.height
    assert all(found.left <= arc.reach[0] and arc.reach[1] <= found.right for arc in found.arcs)
    assert shown(BLANK).arcs is None
