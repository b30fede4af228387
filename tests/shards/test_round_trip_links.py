"""Relations, events, clusters, choices and numbers: perfect scores decode to the record's annotations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from handmade import ENCODER
from hypothesis import given, settings
from hypothesis import strategies as st
from linked import ATTACK, EVENTS, KNOWS, LIVES, PERSON, PLACE, ROLES, TEXT, TRIAL, attacks, record, span

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice
from ubert.evaluation.round_trip import decoded, round_trip
from ubert.model.tokenizer import load_tokenizer
from ubert.objectives import (
    ClusterPrediction,
    DiscontinuousPrediction,
    EventPrediction,
    LabelPrediction,
    Prediction,
    RelationPrediction,
    SpanPrediction,
    ValuePrediction,
    objective,
    passes,
)
from ubert.objectives.tasks import coref, ner, relation
from ubert.objectives.tasks.event import NO_EVENT
from ubert.objectives.tasks.ner import PARTS
from ubert.schema.record import Argument, Category, Event, Record, Relation, Span
from ubert.schema.specs.dataset import DatasetSpec

TOKENIZER = load_tokenizer(ENCODER)


def trip(item: Record) -> Counter[str]:
    """Without the zeros."""
    return +round_trip(item, TOKENIZER.encode([item.text])[0])


def perfect(item: Record) -> list[object]:
    return list(decoded(item, TOKENIZER.encode([item.text])[0]))


def test_one_of_the_records_own_candidates() -> None:
    candidates = tuple(Category(name, "label") for name in ("a bank", "a library", "a mall"))
    item = record("choice", "Where do you borrow books?", candidates, labels=[1])
    [chosen] = perfect(item)
    assert isinstance(chosen, LabelPrediction) and chosen.category == "a library"


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (0.12, 0), (0.13, 0.25), (0.625, 0.5), (1.0, 1), (7.0, 1)]
)
def test_a_number_comes_back_as_its_nearest_bucket(value: float, bucket: float) -> None:
    buckets = tuple(Category(f"{i / 4:g}", "value") for i in range(5))
    item = record("regression", "a text", buckets, value=value)
    [found] = perfect(item)
    assert isinstance(found, ValuePrediction) and found.value == pytest.approx(bucket, abs=1e-6)
    assert trip(item)["rounded"] == (value != bucket)


def test_the_expected_value_lies_between_buckets_that_score_alike() -> None:
    from ubert.objectives import Cells, Scored

    buckets = tuple(Category(str(i), "value") for i in range(4))
    query = objective("regression").query("regression", "i", "text", None, buckets)
    none = np.empty(0, np.int32)
    scored = Scored(np.array([-30, 2, 2, -30], np.float32), Cells(none, none, none, none.astype(np.float32)))
    [found] = objective("regression").decode(
        query, TOKENIZER.encode(["text"])[0], scored, threshold=0.0, overlap="highest"
    )
    assert found == ValuePrediction(1.5)


def test_relations_have_a_direction_and_types() -> None:
    spans = [span(TEXT, "Ada", 0), span(TEXT, "New York", 1), span(TEXT, "Bob Ray", 0), span(TEXT, "York", 1, 1)]
    relations = [Relation(0, 1, 2), Relation(2, 3, 2), Relation(2, 0, 3)]
    item = record("relation", TEXT, (PERSON, PLACE, LIVES, KNOWS), spans=spans, relations=relations)
    assert trip(item) == {"records": 1, "exact": 1, "annotations": 7}
    found = {(p.category, p.head.text, p.tail.text) for p in perfect(item) if isinstance(p, RelationPrediction)}
    assert found == {("lives in", "Ada", "New York"), ("lives in", "Bob Ray", "York"), ("knows", "Bob Ray", "Ada")}


def test_mentions_that_share_a_boundary_are_distinguished() -> None:
    """The link of New York and Ada shares its last cell with York and Ada, its first with New and Ada."""
    spans = [span(TEXT, "New York", 1), span(TEXT, "York", 1), span(TEXT, "New", 1), span(TEXT, "Ada", 0, 1)]
    item = record("relation", TEXT, (PERSON, PLACE, KNOWS), spans=spans, relations=[Relation(0, 3, 2)])
    assert trip(item)["exact"] == 1


def test_mentions_without_types_share_a_table() -> None:
    spans = [span(TEXT, "Ada"), span(TEXT, "New York")]
    item = record("relation", TEXT, (KNOWS,), spans=spans, relations=[Relation(1, 0, 0), Relation(0, 0, 0)])
    assert trip(item) == {"records": 1, "exact": 1, "annotations": 4}
    assert {p.category for p in perfect(item) if isinstance(p, SpanPrediction)} == {"entity"}


def test_a_relation_of_clusters_holds_between_any_of_their_mentions() -> None:
    spans = [span(TEXT, "Ada", 0, group=0), span(TEXT, "Ada", 0, 1, group=0), span(TEXT, "New York", 1)]
    item = record("relation", TEXT, (PERSON, PLACE, LIVES), spans=spans, relations=[Relation(0, 2, 2)])
    assert trip(item)["exact"] == 1
    assert len([p for p in perfect(item) if isinstance(p, RelationPrediction)]) == 2


def test_a_relation_over_more_than_a_window_is_lost_and_says_so() -> None:
    text = "Ada " + "word " * 1000 + "Oslo"
    spans = [span(text, "Ada", 0), span(text, "Oslo", 1)]
    item = record("relation", text, (PERSON, PLACE, LIVES), spans=spans, relations=[Relation(0, 1, 2)])
    assert trip(item) == {"records": 1, "annotations": 3, "in no one window": 1}


@pytest.mark.parametrize(("words", "held"), [(446, True), (447, False)])
def test_a_relation_of_a_text_s_ends_is_held_by_a_window_of_all_its_tokens(words: int, held: bool) -> None:
    """A window has 448 tokens."""
    text = "Ada " + "word " * words + "Oslo"
    spans = [span(text, "Ada", 0), span(text, "Oslo", 1)]
    item = record("relation", text, (PERSON, PLACE, LIVES), spans=spans, relations=[Relation(0, 1, 2)])
    assert trip(item) == {"records": 1, "annotations": 3, "exact" if held else "in no one window": 1}


def test_a_relation_comes_back_as_widened_as_the_worse_of_its_ends() -> None:
    spans = [Span(0, 2, 0), span(TEXT, "New York", 1)]  # "Ad" is a part of the token "ada"
    item = record("relation", TEXT, (PERSON, PLACE, LIVES), spans=spans, relations=[Relation(0, 1, 2)])
    assert trip(item) == {"records": 1, "annotations": 3, "widened": 2}


@pytest.mark.parametrize("wrong", ["missing", "reversed"])
def test_relations_that_are_wrong_for_no_reason_are_unexplained(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Another relation of the same mentions explains nothing."""
    spans = [span(TEXT, "Ada", 0), span(TEXT, "New York", 1)]
    relations = [Relation(0, 1, 2), Relation(0, 1, 3)]
    item = record("relation", TEXT, (PERSON, PLACE, LIVES, KNOWS), spans=spans, relations=relations)

    def decode(*given: object, **named: object) -> list[Prediction]:
        found: list[Prediction] = [*relation.decode(*given, **named)]  # type: ignore[arg-type]
        [lives] = [p for p in found if isinstance(p, RelationPrediction) and p.category == "lives in"]
        return [p for p in found if p != lives] if wrong == "missing" else [*found, turned(lives)]

    assert trip(item)["exact"] == 1
    monkeypatch.setattr(relation, "OBJECTIVE", replace(relation.OBJECTIVE, decode=decode))
    assert (trip(item)["unexplained"], trip(item)["shared cells"]) == (1, 0)


def turned(found: RelationPrediction) -> RelationPrediction:
    return replace(found, head=found.tail, tail=found.head)


def test_clusters_come_back() -> None:
    spans = [span(TEXT, "Ada", group=0), span(TEXT, "Ada", group=0, nth=1), span(TEXT, "Bob Ray", group=1)]
    spans += [span(TEXT, "Ray", group=2), span(TEXT, "Bob", group=1, nth=1)]
    item = record("coref", TEXT, spans=spans)
    assert trip(item) == {"records": 1, "exact": 1, "annotations": 3}
    clusters = [p for p in perfect(item) if isinstance(p, ClusterPrediction)]
    assert [[m.text for m in p.mentions] for p in clusters] == [["Ada", "Ada"], ["Bob Ray", "Bob"], ["Ray"]]


def test_a_cluster_that_no_window_connects_is_split() -> None:
    text = "Ada " + "word " * 1000 + "Ada"
    item = record("coref", text, spans=[span(text, "Ada", group=0), span(text, "Ada", nth=1, group=0)])
    assert trip(item) == {"records": 1, "annotations": 1, "in no one window": 1}


def test_triggers_of_the_same_words_keep_their_arguments_and_an_event_may_be_one() -> None:
    assert trip(attacks()) == {"records": 1, "exact": 1, "annotations": 9}
    found = [p for p in perfect(attacks()) if isinstance(p, EventPrediction)]
    assert [(p.category, [(a.category, a.text) for a in p.arguments]) for p in found] == [
        ("attack", [("attacker", "Ada"), ("target", "Bob")]),
        ("attack", [("attacker", "Bob"), ("target", "Ada")]),
        ("trial", [("defendant", "hit"), ("defendant", "Ada")]),
    ]


def test_the_second_question_names_its_trigger() -> None:
    (first, _), *others = passes(attacks(), TOKENIZER.encode([EVENTS])[0])
    assert [category.name for category in first.categories] == ["attack", "trial"]
    assert [(q.instruction, q.pair, [c.name for c in q.categories]) for q, _ in others] == [
        ("a task: attack", "Ada [hit] Bob", ["attacker", "target"]),
        ("a task: attack", "Bob [hit] Ada", ["attacker", "target"]),
        ("a task: trial", "trial", ["defendant"]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Ada hit Ada hit Ada.",
        "hit Ada and hit Ada and hit Ada",
        "word " * 40 + "hit " + "word " * 80 + "hit " + "word " * 40,
        "hit " * 50,
    ],
)
def test_no_two_triggers_are_asked_for_by_the_same_words(text: str) -> None:
    spans = [span(text, "hit", 0, i) for i in range(text.count("hit"))]
    events = [Event(0, i, [Argument(2, span=i)]) for i in range(len(spans))]
    item = record("event", text, (ATTACK, TRIAL, *ROLES), spans=spans, events=events)
    _, *others = passes(item, TOKENIZER.encode([text])[0])
    assert len({query.pair for query, _ in others}) == len(spans)
    assert trip(item) == {"records": 1, "exact": 1, "annotations": 2 * len(spans)}


def test_the_number_of_a_repetition_is_counted_from_one() -> None:
    text = "hit " * 50
    spans = [span(text, "hit", 0, i) for i in (0, 16, 17, 20)]
    events = [Event(0, i, []) for i in range(len(spans))]
    _, *others = passes(
        record("event", text, (ATTACK, *ROLES), spans=spans, events=events), TOKENIZER.encode([text])[0]
    )
    assert [str(query.pair).rpartition(" ")[2] for query, _ in others] == ["(1)", "(1)", "(2)", "(5)"]


def test_events_of_one_trigger_are_joined_and_one_without_a_trigger_has_no_target() -> None:
    item = attacks()
    item.events += [Event(0, 0, [Argument(2, span=5)]), Event(1, None, [Argument(4, span=3)])]
    assert trip(item) == {"records": 1, "annotations": 10, "joined": 1, "no target": 2}


def test_what_no_model_of_events_is_trained_on_is_counted() -> None:
    """An event without a trigger, its argument, the argument that it is, and a span of no event."""
    item = attacks()
    item.spans.append(span(EVENTS, "began"))
    item.events.append(Event(1, None, [Argument(4, span=3)]))
    item.events[0].arguments.append(Argument(2, event=3))
    assert trip(item) == {"records": 1, "annotations": 9, "no target": 3, "in no event": 1}
    _, (_, targets), *_ = passes(item, TOKENIZER.encode([EVENTS])[0])
    assert [(link.head, link.tail, len(link.cells)) for link in targets.links] == [(0, 3, 1), (0, 4, 1), (0, 0, 0)]


def test_a_span_that_is_part_of_no_event_is_lost() -> None:
    item = attacks()
    assert objective("event").targets(item, TOKENIZER.encode([EVENTS])[0]).lost == []
    item.spans.append(span(EVENTS, "began"))
    assert objective("event").targets(item, TOKENIZER.encode([EVENTS])[0]).lost == [(NO_EVENT, 7)]


def test_a_long_text_is_read_around_the_trigger() -> None:
    text = "Ada " + "word " * 600 + "hit Bob " + "word " * 600
    spans = [span(text, "hit", 0), span(text, "Ada"), span(text, "Bob")]
    events = [Event(0, 0, [Argument(2, span=1), Argument(3, span=2)])]
    item = record("event", text, (ATTACK, TRIAL, *ROLES), spans=spans, events=events)
    assert trip(item) == {"records": 1, "annotations": 3, "in no one window": 1}


def test_a_cluster_whose_only_link_has_the_cells_of_another_is_shared() -> None:
    text = "Ada Ada Ada"
    spans = [Span(4, 7, group=0), Span(0, 3, group=0), Span(0, 7, group=1), Span(4, 11, group=1)]
    item = record("coref", text, spans=spans)
    assert trip(item) == {"records": 1, "annotations": 2, "shared cells": 3}
    assert sorted(len(p.mentions) for p in perfect(item) if isinstance(p, ClusterPrediction)) == [1, 1, 2]


def test_clusters_with_a_mention_in_common_come_back_as_one() -> None:
    spans = [Span(0, 3, group=0), Span(4, 7, group=0), Span(0, 3, group=1), Span(8, 11, group=1)]
    item = record("coref", "Ada Bob Eva", spans=spans)
    assert trip(item) == {"records": 1, "annotations": 2, "same tokens as another": 2}


def test_mentions_of_a_cluster_may_begin_together() -> None:
    item = record("coref", "Ada Lovelace", spans=[Span(0, 3, group=0), Span(0, 12, group=0)])
    [cluster] = perfect(item)
    assert isinstance(cluster, ClusterPrediction)
    assert [(mention.start, mention.end) for mention in cluster.mentions] == [(0, 12), (0, 3)]


@pytest.mark.parametrize("wrong", ["none", "apart", "joined"])
def test_clusters_that_are_wrong_for_no_reason_are_unexplained(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    groups = [(0, 7, 0), (0, 3, 1), (4, 7, 1), (4, 11, 0), (12, 15, 2), (16, 19, 2)]
    item = record("coref", "Ada Bob Ada Eva Ida", spans=[Span(s, e, group=g) for s, e, g in groups])

    def decode(*given: object, **named: object) -> list[ClusterPrediction]:
        mentions = [m for cluster in coref.decode(*given, **named) for m in cluster.mentions]  # type: ignore[arg-type]
        return {
            "none": [],
            "apart": [ClusterPrediction((mention,)) for mention in mentions],
            "joined": [ClusterPrediction(tuple(mentions))],
        }[wrong]

    assert trip(item)["unexplained"] == 0
    monkeypatch.setattr(coref, "OBJECTIVE", replace(coref.OBJECTIVE, decode=decode))
    assert trip(item)["unexplained"] > 0


def test_discontinuous_mentions_come_back_and_may_share_a_fragment() -> None:
    text = "severe pain in the left and the right arm, and a rash"
    fragments = [("severe pain", 0), ("left", 0), ("arm", 0), ("severe pain", 1), ("right arm", 1)]
    spans = [span(text, words, 0, group=group) for words, group in fragments]
    spans += [span(text, "arm", 1), span(text, "rash", 0)]
    item = record("ner", text, (Category("symptom", "entity"), PLACE, PARTS), spans=spans)
    assert trip(item) == {"records": 1, "exact": 1, "annotations": 4}
    several = [p for p in perfect(item) if isinstance(p, DiscontinuousPrediction)]
    assert [[part.text for part in p.fragments] for p in several] == [
        ["severe pain", "left", "arm"],
        ["severe pain", "right arm"],
    ]


def test_a_spec_may_have_a_table_for_fragments() -> None:
    spec = DatasetSpec.model_validate(
        {
            **dict(name="n", description="d", task="ner", language="en", licence="MIT", instruction="i"),
            "format": "jsonl",
            "files": [{"split": "train", "path": "a"}],
            "map": {"text": "text", "spans": {"each": "mentions[]", "label": "type", "fragments": "at"}},
            "categories": {"entity": {"S": "symptom"}, "relation": [{"label": "parts", "name": PARTS.name}]},
        }
    )
    content = {"text": "left and right arm", "mentions": [{"type": "S", "at": [[0, 4], [15, 18]]}]}
    item = mapper(spec, "train")(Slice("folder", "a", 0, 100, 1, "utf-8", "5"), RawRow(1, "a:1", content))
    assert isinstance(item, Record) and trip(item) == {"records": 1, "exact": 1, "annotations": 1}
    assert [type(p) for p in perfect(item)] == [DiscontinuousPrediction]


def test_without_a_table_for_them_fragments_are_mentions() -> None:
    text = "left and right arm"
    spans = [span(text, "left", 0, group=0), span(text, "arm", 0, group=0), span(text, "right arm", 0)]
    assert trip(record("ner", text, (PLACE,), spans=spans)) == {"records": 1, "exact": 1, "annotations": 3}


@pytest.mark.parametrize("wrong", ["none", "apart"])
def test_fragments_that_are_wrong_for_no_reason_are_unexplained(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    item = fragments_of("Ada Bob Eva Ida", [(0, 3), (4, 7), (8, 11)], [(0, 0, 0), (1, 0, 0), (0, 0, 0)])

    def decode(*given: object, **named: object) -> list[Prediction]:
        found = ner.decode(*given, **named)  # type: ignore[arg-type]
        apart = [part for p in found if isinstance(p, DiscontinuousPrediction) for part in p.fragments]
        return {"none": [], "apart": [*apart]}[wrong]

    assert trip(item)["exact"] == 1
    monkeypatch.setattr(ner, "OBJECTIVE", replace(ner.OBJECTIVE, decode=decode))
    assert trip(item)["unexplained"] > 0


# any record --------------------------------------------------------------------------------------------------

WORDS = ["Ada", "hit", "Zürich", "東京", "😀", "by", "R2-D2"]
NUMBERS = st.integers(0, 30)


@st.composite
def said(draw: st.DrawFn, apart: bool) -> tuple[str, list[tuple[int, int]]]:
    """A text and places of mentions in it, each once; `apart`: no two overlap."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=12))
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    places = st.tuples(st.integers(0, len(words) - 1), st.integers(0, 2))
    found: dict[tuple[int, int], None] = {}
    taken: set[int] = set()
    for first, more in draw(st.lists(places, min_size=1, max_size=7)):
        last = min(first + more, len(words) - 1)
        covered = set(range(first, last + 1))
        if not apart or not covered & taken:
            taken |= covered
            found[starts[first], starts[last] + len(words[last])] = None
    return " ".join(words), list(found)


def relations_of(text: str, places: list[tuple[int, int]], numbers: list[tuple[int, int, int]]) -> Record:
    spans = [Span(start, end, i % 2) for i, (start, end) in enumerate(places)]
    n = len(spans)
    found = [Relation(a % n, b % n, 2 + c % 2) for a, b, c in numbers]
    fit = [r for r in found if r.category == 3 or (spans[r.head].category, spans[r.tail].category) == (0, 1)]
    return record("relation", text, (PERSON, PLACE, LIVES, KNOWS), spans=spans, relations=fit)


def clusters_of(text: str, places: list[tuple[int, int]], numbers: list[tuple[int, int, int]]) -> Record:
    groups = [a % 3 for a, _, _ in numbers] + list(range(100))
    spans = [Span(start, end, group=group) for (start, end), group in zip(places, groups, strict=False)]
    return record("coref", text, spans=spans)


def fragments_of(text: str, places: list[tuple[int, int]], numbers: list[tuple[int, int, int]]) -> Record:
    """Mentions of up to four fragments; a place is of one mention."""
    groups = [a % 3 for a, _, _ in numbers] + list(range(100))
    spans = [Span(start, end, group % 2, group=group) for (start, end), group in zip(places, groups, strict=False)]
    return record("ner", text, (PERSON, PLACE, PARTS), spans=spans)


def shared_fragments_of(text: str, places: list[tuple[int, int]], numbers: list[tuple[int, int, int]]) -> Record:
    """The same, where a place may be of several mentions."""
    spans = [Span(*places[a % len(places)], b % 2, group=2 * (c % 3) + b % 2) for a, b, c in numbers]
    return record("ner", text, (PERSON, PLACE, PARTS), spans=spans)


def events_of(text: str, places: list[tuple[int, int]], numbers: list[tuple[int, int, int]]) -> Record:
    n = len(places)
    events: list[Event] = []
    for a, b, c in numbers:
        roles = (2, 3) if c % 2 == 0 else (4,)
        nested = Argument(roles[-1], event=b % len(events)) if events and b % 3 == 0 else None
        events.append(Event(c % 2, a % n, [nested or Argument(roles[0], span=b % n)]))
    spans = [Span(start, end) for start, end in places]
    return record("event", text, (ATTACK, TRIAL, *ROLES), spans=spans, events=events)


@pytest.mark.parametrize("make", [relations_of, clusters_of, events_of, fragments_of])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_mentions_apart_come_back_whatever_joins_them(make: object, data: st.DataObject) -> None:
    text, places = data.draw(said(apart=True))
    item = make(text, places, data.draw(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=8)))  # type: ignore[operator]
    counts = trip(item)
    assert counts["exact"] == 1, counts


@pytest.mark.parametrize("make", [relations_of, clusters_of, events_of, fragments_of, shared_fragments_of])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_nested_mentions_come_back_or_say_why(make: object, data: st.DataObject) -> None:
    text, places = data.draw(said(apart=False))
    item = make(text, places, data.draw(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=8)))  # type: ignore[operator]
    assert trip(item)["unexplained"] == 0
