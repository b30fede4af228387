"""Metrics equal those of common packages, and counts can be added."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.metrics import precision_score, recall_score
from seqeval.scheme import IOB2
from sklearn.metrics import accuracy_score, f1_score

from ubert.evaluation import MAIN, SMALLER_IS_BETTER, measured, metric
from ubert.evaluation.counts import Counts
from ubert.evaluation.qa import normal
from ubert.inference.thresholds import MEASURES
from ubert.objectives import (
    LabelPrediction,
    Prediction,
    SpanPrediction,
    TextPrediction,
    ValuePrediction,
    objectives,
)
from ubert.schema.errors import UserError
from ubert.schema.record import Category, Record, Source, Span, Task

LABELS = ("tea", "coffee", "water", "milk")
TYPES = ("person", "place")


def record(task: Task, text: str = "a text", categories: Sequence[Category] = (), **gold: object) -> Record:
    return Record("r", "c", "test", "en", task, task, text, Source("f", 1, ""), None, tuple(categories), **gold)  # type: ignore[arg-type]


def measure(task: Task, pairs: Sequence[tuple[Record, Sequence[Prediction]]]) -> dict[str, float]:
    return metric(task).summarise(total(task, pairs))


def total(task: Task, pairs: Sequence[tuple[Record, Sequence[Prediction]]]) -> Counts:
    counts: Counts = Counter()
    for one, predictions in pairs:
        counts.update(metric(task).count(one, predictions))
    return counts


def labelled(task: Task, gold: Sequence[int], predicted: Sequence[int]) -> tuple[Record, list[LabelPrediction]]:
    categories = [Category(name, "label") for name in LABELS]
    return record(task, categories=categories, labels=list(gold)), [
        LabelPrediction(LABELS[label], 0.9) for label in predicted
    ]


label = st.integers(0, len(LABELS) - 1)


@pytest.mark.parametrize("task", ["classification", "pair"])
@given(st.lists(st.tuples(label, label), min_size=1, max_size=30))
def test_classification_is_as_in_scikit_learn(task: Task, pairs: list[tuple[int, int]]) -> None:
    gold, predicted = zip(*pairs, strict=True)
    measured = measure(task, [labelled(task, [g], [p]) for g, p in pairs])
    assert measured == {
        "accuracy": pytest.approx(accuracy_score(gold, predicted)),
        "macro_f1": pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0)),
    }


@given(st.lists(st.tuples(st.sets(label), st.sets(label)), min_size=1, max_size=30))
def test_multilabel_is_as_in_scikit_learn(pairs: list[tuple[set[int], set[int]]]) -> None:
    gold = [[int(i in one) for i in range(len(LABELS))] for one, _ in pairs]
    predicted = [[int(i in one) for i in range(len(LABELS))] for _, one in pairs]
    measured = measure("multilabel", [labelled("multilabel", sorted(g), sorted(p)) for g, p in pairs])
    seen = sorted({i for g, p in pairs for i in g | p})
    macro = f1_score(gold, predicted, average="macro", labels=seen, zero_division=0) if seen else 0.0
    assert measured == {
        "micro_f1": pytest.approx(f1_score(gold, predicted, average="micro", zero_division=0)),
        "macro_f1": pytest.approx(macro),
        "accuracy": pytest.approx(accuracy_score(gold, predicted)),
    }


def test_categories_are_distinguished_by_name_where_records_order_them_differently() -> None:
    right = record("classification", categories=[Category("no", "label"), Category("yes", "label")], labels=[1])
    swapped = record("classification", categories=[Category("yes", "label"), Category("no", "label")], labels=[0])
    yes = [LabelPrediction("yes", 1.0)]
    assert measure("classification", [(right, yes), (swapped, yes)]) == {"accuracy": 1.0, "macro_f1": 1.0}


Tags = list[str]
tag_rows = st.lists(
    st.sampled_from(["O", "O", *(f"B-{name}" for name in TYPES)]), min_size=1, max_size=12
).flatmap(lambda tags: st.tuples(st.just(tags), st.lists(st.booleans(), min_size=len(tags), max_size=len(tags))))


def tags_of(drawn: tuple[Tags, list[bool]]) -> Tags:
    """Return a valid IOB2 row: an O after a mention becomes an I of it if the drawn flag is set."""
    tags: Tags = []
    for tag, goes_on in zip(*drawn, strict=True):
        before = tags[-1] if tags else "O"
        tags.append(f"I-{before[2:]}" if tag == "O" and goes_on and before != "O" else tag)
    return tags


def mentions(tags: Tags) -> list[tuple[int, int, int]]:
    """(start, end, category) of each mention, where token i is characters [2i, 2i + 1)."""
    found = []
    for i, tag in enumerate(tags):
        if tag.startswith("B-"):
            last = i
            while last + 1 < len(tags) and tags[last + 1].startswith("I-"):
                last += 1
            found.append((2 * i, 2 * last + 1, TYPES.index(tag[2:])))
    return found


def tagged(gold: Tags, predicted: Tags) -> tuple[Record, list[SpanPrediction]]:
    text = "x " * max(len(gold), len(predicted))
    spans = [Span(start, end, category) for start, end, category in mentions(gold)]
    answers = [SpanPrediction(s, e, TYPES[c], text[s:e], 0.9) for s, e, c in mentions(predicted)]
    return record("ner", text, [Category(name, "entity") for name in TYPES], spans=spans), answers


@given(st.lists(st.tuples(tag_rows, tag_rows), min_size=1, max_size=8))
def test_mentions_are_as_in_seqeval(rows: list[tuple[tuple[Tags, list[bool]], tuple[Tags, list[bool]]]]) -> None:
    gold, predicted = [], []
    for left, right in rows:
        one, other = tags_of(left), tags_of(right)
        size = max(len(one), len(other))
        gold.append(one + ["O"] * (size - len(one)))
        predicted.append(other + ["O"] * (size - len(other)))
    ours = measure("ner", [tagged(g, p) for g, p in zip(gold, predicted, strict=True)])
    strict = {"mode": "strict", "scheme": IOB2, "zero_division": 0}
    assert ours == {
        "span_f1": pytest.approx(seqeval_f1(gold, predicted, **strict)),
        "span_precision": pytest.approx(precision_score(gold, predicted, **strict)),
        "span_recall": pytest.approx(recall_score(gold, predicted, **strict)),
    }


def test_a_mention_is_right_only_with_both_boundaries_and_its_category() -> None:
    text = "Anna Maria Berg"
    gold = record("ner", text, [Category(name, "entity") for name in TYPES], spans=[Span(0, 10, 0)])
    for wrong in ((0, 4, "person"), (5, 10, "person"), (0, 10, "place")):
        predicted = [SpanPrediction(wrong[0], wrong[1], wrong[2], text[wrong[0] : wrong[1]], 0.9)]
        assert measure("ner", [(gold, predicted)])["span_f1"] == 0.0


def squad_normalise(answer: str) -> str:
    """The official definition, step by step: lower case, punctuation out, articles out, white space."""
    lower = answer.lower()
    bare = "".join(char for char in lower if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def squad_f1(given: str, gold: str) -> float:
    given_words, gold_words = squad_normalise(given).split(), squad_normalise(gold).split()
    same = sum((Counter(given_words) & Counter(gold_words)).values())
    if not given_words or not gold_words:
        return float(given_words == gold_words)
    if same == 0:
        return 0.0
    precision, recall = same / len(given_words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


words = st.lists(st.sampled_from(["the", "An", "red", "Fox,", "fox", "a.", "--", "U.S.", "Übel"]), max_size=5)


def asked(golds: Sequence[str], given: str | None) -> tuple[Record, list[SpanPrediction]]:
    text = "\n".join(["x", *golds, given or ""])
    spans, at = [], 2
    for gold in golds:
        spans.append(Span(at, at + len(gold), 0))
        at += len(gold) + 1
    found = [] if given is None else [SpanPrediction(at, at + len(given), "which?", given, 0.9)]
    return record("qa", text, [Category("which?", "question")], spans=spans), found


@given(st.lists(words.filter(bool), max_size=3), st.none() | words.filter(bool))
def test_answers_are_as_in_squad(golds: list[list[str]], given: list[str] | None) -> None:
    gold = [" ".join(answer) for answer in golds]
    answer = None if given is None else " ".join(given)
    ours = measure("qa", [asked(gold, answer)])
    wanted = [one for one in gold if squad_normalise(one)] or [""]
    assert ours == {
        "exact_match": max(float(squad_normalise(one) == squad_normalise(answer or "")) for one in wanted),
        "qa_f1": pytest.approx(max(squad_f1(answer or "", one) for one in wanted)),
    }


def test_a_question_without_an_answer_is_right_only_when_left_unanswered() -> None:
    assert measure("qa", [asked([], None)]) == {"exact_match": 1.0, "qa_f1": 1.0}
    assert measure("qa", [asked([], "red fox")]) == {"exact_match": 0.0, "qa_f1": 0.0}
    assert measure("qa", [asked(["red fox"], None)]) == {"exact_match": 0.0, "qa_f1": 0.0}


@pytest.mark.parametrize(
    ("gold", "given", "exact", "f1"),
    [
        ("東京都", "東京", 0, 0.8),
        ("「東京都」", "東京都。", 1, 1),
        ("BERT模型", "bert", 0, 0.5),
        ("1999年", "1998年", 0, 0.5),
        ("上海", "北京", 0, 0),
    ],
)
def test_answers_without_spaces_are_compared_by_characters(gold: str, given: str, exact: float, f1: float) -> None:
    for language in ("zh-Hans", "ja"):
        one, found = asked([gold], given)
        ours = measure("qa", [(replace(one, language=language), found)])
        assert ours == {"exact_match": exact, "qa_f1": pytest.approx(f1)}


def test_the_best_scored_answer_counts() -> None:
    one, _ = asked(["red fox"], None)
    answers = [SpanPrediction(0, 1, "which?", "x", 0.2), SpanPrediction(2, 9, "which?", "red fox", 0.8)]
    assert measure("qa", [(one, answers)])["exact_match"] == 1.0


def test_each_question_of_a_record_is_counted_with_its_own_answers() -> None:
    """Two answers are right. The third question has none, but is answered, and surely."""
    questions = [Category(name, "question") for name in ("who?", "where?", "when?")]
    one = record("qa", "Ada in Oslo", questions, spans=[Span(0, 3, 0), Span(7, 11, 1)])
    given = [("who?", "Ada", 0.6), ("where?", "Oslo", 0.5), ("when?", "in", 0.9)]
    answers = [SpanPrediction(0, len(text), name, text, score) for name, text, score in given]
    share = pytest.approx(2 / 3)
    assert measure("qa", [(one, answers)]) == {"exact_match": share, "qa_f1": share}


@given(st.text(alphabet="aAtThHeE .,-é", max_size=20))
def test_normalisation_of_answers(answer: str) -> None:
    assert normal(answer) == squad_normalise(answer)


@given(st.lists(st.tuples(label, label), min_size=2, max_size=20), st.data())
def test_counts_add_in_any_order_and_grouping(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    rows = [labelled("classification", [g], [p]) for g, p in pairs]
    cut = data.draw(st.integers(0, len(rows)))
    shuffled = data.draw(st.permutations(rows))
    together = total("classification", rows)
    assert total("classification", shuffled[:cut]) + total("classification", shuffled[cut:]) == together


@given(st.lists(st.tuples(words.filter(bool), words.filter(bool)), min_size=2, max_size=20), st.data())
def test_answers_add_to_the_same_digits_in_any_order(
    rows: list[tuple[list[str], list[str]]], data: st.DataObject
) -> None:
    questions = [asked([" ".join(gold)], " ".join(given)) for gold, given in rows]
    assert measure("qa", data.draw(st.permutations(questions))) == measure("qa", questions)


@pytest.mark.parametrize("task", measured())
def test_nothing_measured_is_zero_not_an_error(task: str) -> None:
    assert set(metric(task).summarise(Counter()).values()) == {0.0}


def test_every_task_that_is_predicted_is_measured() -> None:
    assert set(objectives()) <= set(measured())


def test_a_task_without_metrics_says_so() -> None:
    with pytest.raises(
        UserError, match="task 'translation' has no metric; expected one of choice, classification"
    ):
        metric("translation")


def test_the_main_metric_of_a_task_is_measured_and_its_threshold_is_fitted_to_it() -> None:
    assert set(MAIN) == set(measured())
    assert all(name in metric(task).summarise(Counter()) for task, name in MAIN.items())
    assert all(MAIN[task] in names for task, names in MEASURES.items())
    assert all(name in metric(task).summarise(Counter()) for task, names in MEASURES.items() for name in names)


def test_errors_and_no_other_metrics_are_better_if_they_are_smaller() -> None:
    numbers = [(record("regression", value=float(i)), float(i)) for i in range(3)]
    cases: dict[Task, list[list[tuple[Record, Sequence[Prediction]]]]] = {
        "regression": [[(one, [ValuePrediction(sign * value)]) for one, value in numbers] for sign in (1, -1)],
        "text": [[(record("text"), [TextPrediction(nats, 2)])] for nats in (1.0, 5.0)],
        "classification": [[labelled("classification", [0], [guess])] for guess in (0, 1)],
    }
    for task, (right, wrong) in cases.items():
        good, bad = measure(task, right), measure(task, wrong)
        assert {name for name in good if good[name] < bad[name]} == SMALLER_IS_BETTER & set(good)
