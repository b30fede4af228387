"""Metrics of numbers, choices, relations, events and clusters, compared with scorers and their definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score

from ubert.evaluation import metric
from ubert.evaluation.counts import Counts
from ubert.objectives import (
    ClusterPrediction,
    DiscontinuousPrediction,
    EventPrediction,
    LabelPrediction,
    Prediction,
    RelationPrediction,
    SpanPrediction,
    ValuePrediction,
)
from ubert.objectives.tasks.ner import PARTS
from ubert.schema.record import Argument, Category, Event, Record, Relation, Source, Span, Task

TEXT = "abcdefghijklmnopqrstuvwxyz"


def record(task: Task, categories: Sequence[Category] = (), **gold: object) -> Record:
    return Record("r", "c", "test", "en", task, task, TEXT, Source("f", 1, ""), None, tuple(categories), **gold)  # type: ignore[arg-type]


def measure(task: Task, pairs: Sequence[tuple[Record, Sequence[Prediction]]]) -> dict[str, float]:
    """Counted record by record, in both orders: a sum doesn't depend on it."""
    sums = []
    for order in (pairs, pairs[::-1]):
        counts: Counts = Counter()
        for one, predictions in order:
            counts.update(metric(task).count(one, predictions))
        sums.append(metric(task).summarise(counts))
    assert sums[0] == sums[1]
    return sums[0]


def mention(at: int, category: str = "mention") -> SpanPrediction:
    return SpanPrediction(at, at + 1, category, TEXT[at], 0.9)


def test_a_discontinuous_mention_is_right_with_all_its_fragments() -> None:
    categories = [Category("symptom", "entity"), PARTS]
    spans = [Span(0, 1, 0, group=0), Span(4, 5, 0, group=0), Span(9, 10, 0)]
    gold = record("ner", categories, spans=spans)

    def several(*places: int) -> DiscontinuousPrediction:
        return DiscontinuousPrediction("symptom", tuple(mention(at, "symptom") for at in places), 0.9)

    assert measure("ner", [(gold, [several(0, 4), mention(9, "symptom")])])["span_f1"] == 1.0
    for wrong in ([several(0, 4, 9)], [mention(0, "symptom"), mention(4, "symptom")], [several(0, 5)]):
        assert measure("ner", [(gold, wrong)])["span_f1"] == 0.0
    half = measure("ner", [(gold, [several(0, 4), several(0, 9)])])
    assert (half["span_precision"], half["span_recall"]) == (0.5, 0.5)


def test_a_fragment_is_joined_only_with_those_of_its_category() -> None:
    categories = [Category("symptom", "entity"), Category("place", "entity"), PARTS]
    spans = [Span(0, 1, 0, group=0), Span(4, 5, 0, group=0), Span(9, 10, 1, group=0)]
    whole = DiscontinuousPrediction("symptom", (mention(0, "symptom"), mention(4, "symptom")), 0.9)
    gold = record("ner", categories, spans=spans)
    assert measure("ner", [(gold, [whole, mention(9, "place")])])["span_f1"] == 1.0


def test_mentions_of_the_second_text_and_those_without_a_category_are_left_out() -> None:
    spans = [Span(0, 1, 0, group=0), Span(4, 5, 0, side="pair", group=0), Span(9, 10)]
    people = record("ner", [Category("person", "entity"), PARTS], spans=spans)
    assert measure("ner", [(people, [mention(0, "person")])])["span_f1"] == 1.0
    spans = [Span(0, 1, group=0), Span(4, 5, side="pair", group=0), Span(9, 10, group=0)]
    assert measure("coref", [(record("coref", spans=spans), clusters([{0, 9}]))])["conll_f1"] == 1.0


# numbers and choices -----------------------------------------------------------------------------------------

numbers = st.sampled_from([0.0, 0.5, 1.0, 2.5, 4.0])


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=20))
def test_correlations_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    found = measure("regression", [(record("regression", value=g), [ValuePrediction(p)]) for g, p in pairs])
    gold, predicted = zip(*pairs, strict=True)
    if len(set(gold)) == 1 or len(set(predicted)) == 1:
        assert found["pearson"] == found["spearman"] == 0
    else:
        assert found["pearson"] == pytest.approx(pearsonr(gold, predicted).statistic)
        assert found["spearman"] == pytest.approx(spearmanr(gold, predicted).statistic)
    assert found["rmse"] == pytest.approx((sum((g - p) ** 2 for g, p in pairs) / len(pairs)) ** 0.5)


def test_numbers_of_no_record_have_no_correlation() -> None:
    assert measure("regression", []) == {"pearson": 0.0, "spearman": 0.0, "rmse": 0.0}


def test_a_choice_is_right_or_wrong() -> None:
    items = [record("choice", [Category("x", "label"), Category("y", "label")], labels=[i % 2]) for i in range(4)]
    assert measure("choice", [(item, [LabelPrediction("x", 0.9)]) for item in items]) == {"accuracy": 0.5}


# relations and events ----------------------------------------------------------------------------------------

PERSON, PLACE = Category("person", "entity"), Category("place", "entity")
LIVES = Category("lives in", "relation")
places = st.sets(st.tuples(st.integers(0, 3), st.integers(4, 7)), max_size=6)


def related(pairs: set[tuple[int, int]], group: dict[int, int] | None = None) -> Record:
    spans = [Span(i, i + 1, 0 if i < 4 else 1, group=(group or {}).get(i)) for i in range(8)]
    relations = [Relation(head, tail, 2) for head, tail in sorted(pairs)]
    return record("relation", (PERSON, PLACE, LIVES), spans=spans, relations=relations)


def relation(head: int, tail: int, types: tuple[str, str] = ("person", "place")) -> RelationPrediction:
    return RelationPrediction("lives in", mention(head, types[0]), mention(tail, types[1]), 0.9)


@given(st.lists(st.tuples(places, places), min_size=1, max_size=6))
def test_relations_are_counted_as_in_scikit_learn(pairs: list[tuple[set[tuple[int, int]], ...]]) -> None:
    every = [(head, tail) for head in range(4) for tail in range(4, 8)]
    gold = [each in g for g, _ in pairs for each in every]
    predicted = [each in p for _, p in pairs for each in every]
    found = measure("relation", [(related(g), [relation(*each) for each in sorted(p)]) for g, p in pairs])
    assert found["relation_f1"] == pytest.approx(f1_score(gold, predicted, zero_division=0))
    assert found["span_f1"] == 0


@pytest.mark.parametrize(
    "wrong",
    [relation(1, 4), relation(4, 0), relation(0, 4, ("place", "place")), relation(0, 4, ("person", "person"))],
)
def test_a_relation_is_right_with_both_mentions_types_and_its_direction(wrong: RelationPrediction) -> None:
    assert measure("relation", [(related({(0, 4)}), [relation(0, 4)])])["relation_f1"] == 1
    assert measure("relation", [(related({(0, 4)}), [wrong])])["relation_f1"] == 0


def test_a_relation_of_clusters_is_right_by_any_of_their_mentions_and_counts_once() -> None:
    gold = related({(0, 4)}, group={0: 0, 1: 0})
    assert measure("relation", [(gold, [relation(1, 4)])])["relation_f1"] == 1
    assert measure("relation", [(gold, [relation(0, 4), relation(1, 4)])])["relation_precision"] == 1


def test_relations_and_their_mentions_are_counted_apart() -> None:
    """One of two relations is right, of three; of three mentions one has the wrong type, of eight."""
    found = [mention(0, "person"), mention(1, "person"), mention(4, "person"), relation(0, 4), relation(3, 7)]
    assert measure("relation", [(related({(0, 4), (1, 5), (2, 6)}), found)]) == {
        "relation_f1": pytest.approx(2 / 5),
        "relation_precision": 1 / 2,
        "relation_recall": pytest.approx(1 / 3),
        "span_f1": pytest.approx(4 / 11),
    }


ATTACK, ATTACKER = Category("attack", "event"), Category("attacker", "role", event="attack")


def attacked(by: set[int], trigger: int = 9) -> EventPrediction:
    return EventPrediction("attack", mention(trigger, "attack"), tuple(mention(i, "attacker") for i in sorted(by)))


@given(st.lists(st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))), min_size=1, max_size=6))
def test_arguments_are_counted_as_in_scikit_learn(pairs: list[tuple[set[int], set[int]]]) -> None:
    spans = [Span(i, i + 1) for i in range(10)]
    items = [
        record(
            "event",
            (ATTACK, ATTACKER),
            spans=spans,
            events=[Event(0, 9, [Argument(1, span=i) for i in sorted(gold)])],
        )
        for gold, _ in pairs
    ]
    found = measure("event", [(item, [attacked(p)]) for item, (_, p) in zip(items, pairs, strict=True)])
    gold = [i in g for g, _ in pairs for i in range(6)]
    predicted = [i in p for _, p in pairs for i in range(6)]
    assert found["argument_f1"] == pytest.approx(f1_score(gold, predicted, zero_division=0))
    assert found["trigger_f1"] == 1


def test_an_argument_at_another_trigger_is_wrong_and_one_may_be_an_event() -> None:
    spans = [Span(i, i + 1) for i in range(10)]
    events = [Event(0, 9, [Argument(1, event=1)]), Event(0, 8, [Argument(1, span=0)])]
    item = record("event", (ATTACK, ATTACKER), spans=spans, events=events)
    assert measure("event", [(item, [attacked({8}), attacked({0}, 8)])]) == {"trigger_f1": 1, "argument_f1": 1}
    assert measure("event", [(item, [attacked({0}), attacked({8}, 8)])]) == {"trigger_f1": 1, "argument_f1": 0}


def test_a_trigger_is_right_with_its_type_and_too_many_cost_precision() -> None:
    spans, events = [Span(0, 1), Span(9, 10)], [Event(0, 1, [Argument(1, span=0)])]
    item = record("event", (ATTACK, ATTACKER), spans=spans, events=events)
    assert measure("event", [(item, [attacked({0}), attacked(set(), 8)])]) == {
        "trigger_f1": pytest.approx(2 / 3),
        "argument_f1": 1,
    }
    trial = EventPrediction("trial", mention(9, "trial"), (mention(0, "attacker"),))
    assert measure("event", [(item, [trial])]) == {"trigger_f1": 0, "argument_f1": 0}


# clusters ----------------------------------------------------------------------------------------------------

Clusters = list[set[int]]


def clustered(clusters: Clusters) -> Record:
    return record("coref", spans=[Span(i, i + 1, group=n) for n, of in enumerate(clusters) for i in sorted(of)])


def clusters(found: Clusters) -> list[ClusterPrediction]:
    return [ClusterPrediction(tuple(map(mention, sorted(of)))) for of in found]


def test_the_example_of_the_papers() -> None:
    """Pradhan et al. 2014, "Scoring coreference partitions of predicted mentions", section 4 and figure 1."""
    key, response = [{0, 1, 2}, {3, 4, 5, 6}], [{0, 1}, {2, 3}, {5, 6, 7, 8}]
    found = measure("coref", [(clustered(key), clusters(response))])
    b_cubed = (0.5 * 5 / 12 * 2) / (0.5 + 5 / 12)
    ceaf = 2 * (1.3 / 2) * (1.3 / 3) / (1.3 / 2 + 1.3 / 3)
    assert found["muc_f1"] == pytest.approx(0.4)
    assert found["b_cubed_f1"] == pytest.approx(b_cubed)
    assert found["ceaf_f1"] == pytest.approx(ceaf)
    assert found["conll_f1"] == pytest.approx((0.4 + b_cubed + ceaf) / 3)


def test_mentions_of_no_cluster_are_entities_of_their_own() -> None:
    lonely = record("coref", spans=[Span(i, i + 1) for i in range(3)])
    found = measure("coref", [(lonely, clusters([{0}, {1}, {2}]))])
    assert (found["b_cubed_f1"], found["ceaf_f1"]) == (1, 1)


@st.composite
def partitions(draw: st.DrawFn) -> Clusters:
    """Some of nine mentions in up to four clusters."""
    groups = draw(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=9, max_size=9))
    return [of for n in range(4) if (of := {i for i, group in enumerate(groups) if group == n})]


@given(st.lists(st.tuples(partitions(), partitions()), min_size=1, max_size=3))
def test_coreference_is_as_its_definitions_say(texts: list[tuple[Clusters, Clusters]]) -> None:
    found = measure("coref", [(clustered(key), clusters(response)) for key, response in texts])
    for name, side in (("muc", muc), ("b_cubed", b_cubed), ("ceaf", ceaf)):
        recall, precision = (
            rate([side(k, r) for k, r in texts]),
            rate([side(r, k) for k, r in texts]),
        )
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0
        assert found[f"{name}_f1"] == pytest.approx(f1), name


def rate(parts: list[tuple[float, float]]) -> float:
    whole = sum(of for _, of in parts)
    return sum(part for part, _ in parts) / whole if whole else 0


def muc(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Vilain et al. 1995: of each key entity S, |S| - |p(S)| of |S| - 1; p(S): its parts by the response's,
    each mention that is in none a part of its own."""
    parts = [len([r for r in response if r & s]) + len(s - set().union(*response)) for s in key]
    return sum(len(s) - p for s, p in zip(key, parts, strict=True)), sum(len(s) - 1 for s in key)


def b_cubed(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Bagga and Baldwin 1998: of each key mention the share of its key entity that its response entity has."""
    shares = []
    for s in key:
        for m in s:
            of = next((r for r in response if m in r), set())
            shares.append(len(s & of) / len(s))
    return sum(shares), len(shares)


def ceaf(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Luo 2005 with phi_4: the best one-to-one alignment of entities, by trying all; of the number of entities."""
    few, many = sorted((key, response), key=len)
    best = max(
        sum(2 * len(a & b) / (len(a) + len(b)) for a, b in zip(few, chosen, strict=True))
        for chosen in permutations(many, len(few))
    )
    return best, len(key)
