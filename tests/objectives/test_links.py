"""Relations, events, clusters and discontinuous mentions: gold cells, and the decoding of imperfect scores."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
import pytest
from handmade import ENCODER
from linked import record

from ubert.model.tokenizer import load_tokenizer
from ubert.objectives import (
    Cells,
    ClusterPrediction,
    DiscontinuousPrediction,
    Overlaps,
    Prediction,
    RelationPrediction,
    Scored,
    SpanPrediction,
    objective,
    passes,
)
from ubert.objectives.tasks.ner import PARTS
from ubert.schema.record import Argument, Category, Event, Relation, Span

TOKENIZER = load_tokenizer(ENCODER)
TEXT = "a b c d e f"  # token i is character 2 * i
THING, KNOWS, LIKES = Category("thing", "entity"), Category("knows", "relation"), Category("likes", "relation")


def decode(
    task: str,
    categories: Sequence[Category],
    cells: Sequence[tuple[int, int, int, float]],
    overlap: Overlaps = "nested",
    text: str = TEXT,
) -> list[Prediction]:
    """Decode (table, first token, last token, logit) of each cell."""
    query = objective(task).query(task, "a task", text, None, tuple(categories))
    table, start, end = np.array([cell[:3] for cell in cells], np.int32).T
    score = np.array([cell[3] for cell in cells], np.float32)
    scored = Scored(np.zeros(len(query.categories), np.float32), Cells(table, start, end, score))
    return [*objective(task).decode(query, TOKENIZER.encode([text])[0], scored, threshold=0.0, overlap=overlap)]


def probability(logit: float) -> object:
    return pytest.approx(1 / (1 + exp(-logit)))


@pytest.mark.parametrize(
    ("task", "categories"),
    [("ner", [THING]), ("relation", [THING, KNOWS]), ("event", [Category("attack", "event")]), ("coref", [])],
)
def test_mentions_are_in_text_order_and_the_longer_is_first(task: str, categories: list[Category]) -> None:
    found = decode(task, categories, [(0, 2, 2, 3.0), (0, 0, 0, 1.0), (0, 0, 2, 0.5), (0, 0, 1, 2.0)])
    mentions = [part for p in found for part in (p.mentions if isinstance(p, ClusterPrediction) else (p,))]
    places = [(mention.start, mention.end) for mention in mentions if isinstance(mention, SpanPrediction)]
    assert places == [(0, 5), (0, 3), (0, 1), (4, 5)]


def test_relations_have_the_lower_score_of_their_cells_and_the_best_is_first() -> None:
    mentions = [(0, 0, 1, 3.0), (0, 2, 3, 2.0)]
    knows = [(1, 0, 2, 2.5), (1, 1, 3, 0.4)]
    likes = [(2, 2, 0, 1.0), (2, 3, 1, 1.5), (2, 0, 2, 0.0), (2, 1, 3, 2.0)]  # one is not above the threshold
    found = decode("relation", [THING, KNOWS, LIKES], [*mentions, *knows, *likes])
    relations = [p for p in found if isinstance(p, RelationPrediction)]
    assert [(p.category, p.head.text, p.tail.text, p.score) for p in relations] == [
        ("likes", "c d", "a b", probability(1.0)),
        ("knows", "a b", "c d", probability(0.4)),
    ]


@pytest.mark.parametrize(("last", "clusters"), [(3.0, [["a b", "d"], ["a"]]), (0.5, [["a b", "a", "d"]])])
def test_a_link_is_dropped_if_a_better_one_has_its_cells(last: float, clusters: list[list[str]]) -> None:
    """The only cell that links "a" with "d" is one of the two that link "a b" with "d". With equal scores, the
    link of the longer mentions comes first."""
    mentions = [(0, 0, 0, 1.0), (0, 0, 1, 1.0), (0, 3, 3, 1.0)]
    found = decode("coref", [], [*mentions, (1, 0, 3, 3.0), (1, 1, 3, last)])
    assert [[m.text for m in p.mentions] for p in found if isinstance(p, ClusterPrediction)] == clusters


@pytest.mark.parametrize(("link", "least"), [(1.0, 1.0), (2.5, 2.0)])
def test_a_mention_of_several_parts_has_the_lowest_of_all_scores(link: float, least: float) -> None:
    parts = [(0, 1, 1, 3.0), (0, 3, 3, 2.0), (1, 1, 3, link)]
    found = decode("ner", [THING, PARTS], [*parts, (0, 2, 2, 1.5), (0, 0, 0, 1.5)])
    before, several, after = found  # by its first part
    assert isinstance(before, SpanPrediction) and isinstance(after, SpanPrediction)
    assert (before.text, after.text) == ("a", "c")
    assert isinstance(several, DiscontinuousPrediction) and several.score == probability(least)
    assert [part.text for part in several.fragments] == ["b", "d"]


def test_triggers_of_different_types_never_compete() -> None:
    types = [Category("attack", "event"), Category("trial", "event")]
    cells = [(0, 1, 1, 2.0), (1, 1, 1, 1.0), (0, 1, 2, 1.5)]
    found = [p for p in decode("event", types, cells, "highest") if isinstance(p, SpanPrediction)]
    assert [(p.category, p.text) for p in found] == [("attack", "b"), ("trial", "b")]


def test_of_two_that_are_as_long_the_better_one_stays() -> None:
    [found] = decode("ner", [THING], [(0, 0, 1, 1.0), (0, 1, 2, 2.0), (0, 2, 2, 3.0)], "longest")
    assert isinstance(found, SpanPrediction) and found.text == "b c"


def test_the_longest_has_the_most_characters_whatever_its_number_of_tokens() -> None:
    cells = [(0, 0, 2, 2.0), (0, 2, 3, 1.0)]
    [found] = decode("ner", [THING], cells, "longest", "a b c people")
    assert isinstance(found, SpanPrediction) and found.text == "c people"


# gold cells --------------------------------------------------------------------------------------------------

BROKEN = "in\u200b an on"  # the tokenizer drops the third character
LOST = Span(2, 3, 0, group=0)


def test_mentions_of_a_cluster_are_linked_in_text_order() -> None:
    spans = [Span(4, 5, group=0), Span(0, 1, group=0), Span(2, 3, group=0), Span(0, 1, side="pair", group=0)]
    targets = objective("coref").targets(record("coref", TEXT, spans=spans), TOKENIZER.encode([TEXT])[0])
    assert sorted(targets.gold_cells.tolist()) == [
        [0, 0, 0],
        [0, 1, 1],
        [0, 2, 2],
        [1, 0, 1],
        [1, 0, 2],
        [1, 1, 2],
    ]
    assert [(link.head, link.tail) for link in targets.links] == [(1, 2), (2, 0)]
    assert targets.lost == [("in the pair", 3)]


def test_a_part_without_a_token_loses_the_links_to_it_alone() -> None:
    item = record("ner", BROKEN, (THING, PARTS), spans=[Span(0, 2, 0, group=0), LOST, Span(4, 6, 0, group=0)])
    targets = objective("ner").targets(item, TOKENIZER.encode([BROKEN])[0])
    assert [(link.head, link.tail, len(link.cells)) for link in targets.links] == [(0, 1, 0), (0, 2, 1), (1, 2, 0)]
    assert targets.lost == [("no token", 1)]


def test_a_relation_of_a_cluster_is_held_by_its_mentions_that_have_tokens() -> None:
    """Its own mention has none. Another cluster's mentions do not count."""
    spans = [Span(0, 2, 0, group=0), LOST, Span(4, 6, 0, group=1), Span(7, 9, 0)]
    item = record(
        "relation", BROKEN, (THING, KNOWS), spans=spans, relations=[Relation(1, 3, 1), Relation(3, 3, 1)]
    )
    encoding = TOKENIZER.encode([BROKEN])[0]
    found = [
        (link.head, link.tail, len(link.cells)) for link in objective("relation").targets(item, encoding).links
    ]
    assert found == [(1, 3, 1), (3, 3, 1)]


def test_events_and_arguments_without_a_token_are_lost() -> None:
    spans = [Span(0, 2), LOST, Span(4, 6)]
    roles = (Category("attack", "event"), Category("attacker", "role", event="attack"))
    events = [Event(0, 1, [Argument(1, span=0)]), Event(0, 0, [Argument(1, span=1), Argument(1, span=2)])]
    item = record("event", BROKEN, roles, spans=spans, events=events)
    (_, triggers), (_, arguments) = passes(item, TOKENIZER.encode([BROKEN])[0])
    assert (triggers.gold_cells.tolist(), triggers.lost) == ([[0, 0, 0]], [("no token", 1)])
    assert (arguments.gold_cells.tolist(), arguments.lost) == ([[0, 1, 1]], [("no token", 1)])
    assert [(link.head, link.tail, len(link.cells)) for link in arguments.links] == [(0, 1, 0), (0, 2, 1)]


def test_marked_spans_of_a_text_keep_their_numbers() -> None:
    item = record("text", BROKEN, spans=[Span(0, 2), LOST, Span(4, 9), Span(0, 2, side="pair")])
    targets = objective("text").targets(item, TOKENIZER.encode([BROKEN])[0])
    assert (targets.gold_cells.tolist(), targets.spans.tolist()) == ([[0, 0, 0], [0, 1, 2]], [0, 2])
