"""Round trip: perfect scores made from the targets decode to the annotations; losses are listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from handmade import ENCODER, ner, question, record, sentiment
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.shards.rows import Window, windows
from ubert.encoder.ragged import Ids
from ubert.model.tokenizer import Encoding, Fit, load_tokenizer
from ubert.objectives import (
    Cells,
    Decode,
    LabelPrediction,
    Overlaps,
    Prediction,
    Query,
    Scored,
    SpanPrediction,
    merge,
    objective,
    passes,
)
from ubert.objectives.common import best_first, tokens_of
from ubert.objectives.spexbert import DECODE
from ubert.schema.errors import UserError
from ubert.schema.record import Category, Record, Span

TOKENIZER = load_tokenizer(ENCODER)
NAMES = ["person", "place", "firm"]


def scored(categories: int, anchors: Ids, cells: Ids, wrong: Sequence[tuple[int, int, int]] = ()) -> Scored:
    """Logit 1 for what is gold, -1 for the anchors that aren't and for the `wrong` cells."""
    anchor = np.full(categories, -1, np.float32)
    anchor[anchors] = 1
    every = np.concatenate([cells, np.array(wrong, np.int32).reshape(-1, 3)])
    score = np.where(np.arange(len(every)) < len(cells), 1, -1).astype(np.float32)
    return Scored(anchor, Cells(every[:, 0], every[:, 1], every[:, 2], score))


def encode(item: Record) -> Encoding:
    return TOKENIZER.encode([item.text])[0]


def query(item: Record) -> Query:
    return objective(item.task).query(item.task, item.instruction, item.text, item.pair, item.categories)


def round_trip(item: Record, most: int | None = None) -> list[Prediction]:
    """Targets to perfect scores to predictions; over windows of `most` tokens where given."""
    task, encoding = objective(item.task), encode(item)
    asked, targets = passes(item, encoding)[0]
    tokens = len(encoding.ids)
    whole = Window(0, tokens, targets.gold_anchors, targets.gold_cells)
    parts = windows(targets, tokens, most, asked) if most else [whole]
    scores = merge([(w.start, scored(len(asked.categories), w.gold_anchors, w.gold_cells)) for w in parts])
    return list(task.decode(asked, encoding, scores, threshold=0.0, overlap="nested"))


def mentions(item: Record) -> set[tuple[int, int, str]]:
    return {(s.start, s.end, item.categories[s.category].name) for s in item.spans if s.category is not None}


def found(predictions: Sequence[Prediction]) -> set[tuple[int, int, str]]:
    return {(p.start, p.end, p.category) for p in predictions if isinstance(p, SpanPrediction)}


@pytest.mark.parametrize("number", range(8))
def test_hand_made_records_come_back(number: int) -> None:
    assert round_trip(sentiment(number)) == [
        LabelPrediction(f"opinion number {number % 3}", pytest.approx(0.731, abs=1e-3))
    ]
    assert found(round_trip(ner(number))) == mentions(ner(number))
    assert found(round_trip(question(number))) == mentions(question(number))


def test_a_pair_and_several_labels_come_back() -> None:
    entailed = record("p", 0, "pair", "It rains.", ["no", "yes"], labels=[1], pair="The street is wet.")
    several = record("m", 0, "multilabel", "It rains.", NAMES, labels=[2, 0])
    none = record("m", 1, "multilabel", "It rains.", NAMES)
    categories = [[p.category for p in round_trip(item)] for item in (entailed, several, none)]
    assert categories == [["yes"], ["person", "firm"], []]


def test_nested_mentions_and_fragments_come_back() -> None:
    text = "left and right atrium of New York"
    spans = [Span(0, 4, 0, group=0), Span(15, 21, 0, group=0), Span(9, 21, 0), Span(25, 33, 1), Span(29, 33, 2)]
    item = record("n", 0, "ner", text, NAMES, spans=spans)
    assert found(round_trip(item)) == mentions(item)


def test_what_is_lost_has_its_reason() -> None:
    text = "ab\u200b New Yorkers"
    spans = [
        Span(2, 3, 0),  # a character that the tokeniser drops
        Span(4, 7, 0),
        Span(4, 7, 0),
        Span(0, 1, 1, side="pair"),
        Span(0, 2),
        Span(8, 10, 1),  # Yo of Yorkers
        Span(3, 7, 2),  # from the space on
    ]
    item = record("n", 0, "ner", text, NAMES, spans=spans, pair="x")
    targets = objective("ner").targets(item, encode(item))
    assert [(reason, span) for reason, span in targets.lost] == [
        ("no token", 0),
        ("same tokens as another", 2),
        ("in the pair", 3),
        ("no category", 4),
    ]
    fits = dict(zip(targets.spans.tolist(), targets.fits.tolist(), strict=True))
    assert fits == {1: Fit.EXACT, 5: Fit.WIDENED, 6: Fit.NARROWED}


def test_a_span_of_the_second_text_has_no_token_of_the_first() -> None:
    item = record("n", 0, "ner", "New York", NAMES, spans=[Span(0, 3, 0), Span(0, 3, 0, side="pair")], pair="New")
    found = tokens_of(item, encode(item))
    assert (found.last >= found.first).tolist() == [True, False]


def test_flat_keeps_the_better_of_two_that_overlap() -> None:
    item = record("n", 0, "ner", "New York City", NAMES)
    cells = Cells(*np.array([[0, 0, 1], [1, 1, 2], [2, 2, 2]], np.int32).T, np.array([1, 2, 0.5], np.float32))
    scores = Scored(np.zeros(3, np.float32), cells)
    decode = partial(objective("ner").decode, query(item), encode(item), scores)
    assert found(decode(threshold=0.0, overlap="highest")) == {(4, 13, "place")}
    assert len(decode(threshold=0.0, overlap="nested")) == 3
    above = decode(threshold=0.7, overlap="nested")
    assert found(above) == {(0, 8, "person"), (4, 13, "place")}
    assert found(decode(threshold=1.0, overlap="nested")) == {(4, 13, "place")}, "a score has to be above"


def test_of_cells_that_score_alike_the_longer_is_first_then_the_earlier() -> None:
    """One of a better score is before them; of one place, that of the first category."""
    wanted = [[1, 5, 5, 2], [0, 1, 4, 1], [0, 3, 6, 1], [1, 3, 6, 1], [1, 0, 1, 1], [0, 0, 0, 1], [0, 0, 3, 0]]
    for rows in (wanted, wanted[::-1]):
        category, start, end, score = np.array(rows, np.int32).T
        order = best_first(Cells(category, start, end, score.astype(np.float32)))
        assert [rows[i] for i in order.tolist()] == wanted


def test_each_category_has_its_policy() -> None:
    """person [0, 1] 2.0, [0, 3] 1.0, [3, 3] 1.5; place [0, 2] 0.5 and [2, 2] 3.0; firm [1, 2] 2.5."""
    item = record("n", 0, "ner", "a b c d", NAMES)
    places = [[0, 0, 1], [0, 0, 3], [0, 3, 3], [1, 0, 2], [1, 2, 2], [2, 1, 2]]
    score = np.array([2, 1, 1.5, 0.5, 3, 2.5], np.float32)
    scores = Scored(np.zeros(3, np.float32), Cells(*np.array(places, np.int32).T, score))

    def kept(overlap: Overlaps) -> set[tuple[int, int, str]]:
        predictions = objective("ner").decode(query(item), encode(item), scores, threshold=0.0, overlap=overlap)
        return {(start // 2, end // 2, name) for start, end, name in found(predictions)}

    every = {(s, e, NAMES[c]) for c, s, e in places}
    assert kept("nested") == every
    assert kept("highest") == {(2, 2, "place"), (0, 1, "person"), (3, 3, "person")}
    assert kept("longest") == {(0, 3, "person")}
    assert kept({"person": "longest"}) == {(0, 3, "person"), (2, 2, "place")}
    assert kept({"person": "nested", "place": "longest"}) == every - {(2, 2, "place")}


def test_tokens_of_one_character_are_one_mention() -> None:
    """This tokenizer splits a syllable of Hangul: the tokens of "한국 Ada" are of characters 0 0 0 1 1 1 3."""
    item = record("n", 0, "ner", "한국 Ada", NAMES)
    assert encode(item).starts.tolist() == [0, 0, 0, 1, 1, 1, 3]
    places = [[0, 0, 0], [0, 1, 2], [0, 0, 2], [0, 2, 5], [0, 3, 4], [0, 6, 6], [1, 1, 1]]
    score = np.array([1, 3, 2, 0.5, 1.5, 1, 2.5], np.float32)
    scores = Scored(np.zeros(3, np.float32), Cells(*np.array(places, np.int32).T, score))
    decode = partial(objective("ner").decode, query(item), encode(item), scores, threshold=0.0)
    alone = [(0, 1, "person"), (1, 2, "person"), (3, 6, "person")]
    assert sorted(_places(decode(overlap="highest"))) == alone
    assert sorted(_places(decode(overlap="nested"))) == sorted([*alone, (0, 2, "person"), (0, 1, "place")])
    [best, *_] = decode(overlap="highest")
    assert isinstance(best, SpanPrediction) and best.score == pytest.approx(1 / (1 + np.exp(-3)))


@pytest.mark.parametrize("overlap", ["highest", "longest", "nested"])
def test_mentions_neither_begin_nor_end_with_white_space(overlap: Overlaps) -> None:
    """Even if a model predicts tokens of only white space, as a byte-level tokenizer has."""
    text, starts, ends = "Ada  \n Berg\n\n", [0, 6, 7, 12, 13], [3, 6, 11, 12, 13]
    spaced = Encoding(np.arange(5, dtype=np.int32), np.array(starts, np.int32), np.array(ends, np.int32))
    asked = Query("ner", "find", text, None, (Category("person", "entity"),))
    cells = np.array([[0, 0, 1], [0, 1, 2], [0, 2, 2], [0, 3, 4]], np.int32)
    predicted = scored(1, np.empty(0, np.int32), cells)
    mentions = objective("ner").decode(asked, spaced, predicted, threshold=0.0, overlap=overlap)
    assert _places(mentions) == [(0, 3, "person"), (7, 11, "person")]
    assert [mention.text for mention in mentions if isinstance(mention, SpanPrediction)] == ["Ada", "Berg"]


def _places(predictions: Sequence[Prediction]) -> list[tuple[int, int, str]]:
    return [(one.start, one.end, one.category) for one in predictions if isinstance(one, SpanPrediction)]


def test_an_answer_must_beat_no_answer() -> None:
    item = question(1)
    cells = Cells(*np.array([[0, 0, 0], [0, 1, 2]], np.int32).T, np.array([0.1, 0.3], np.float32))
    decode = partial(objective("qa").decode, query(item), encode(item), threshold=0.0, overlap="highest")

    def answers(null: float) -> list[str]:
        scores = Scored(np.array([null], np.float32), cells)
        return [p.text for p in decode(scores) if isinstance(p, SpanPrediction)]

    assert (len(answers(-1.0)), len(answers(0.2)), len(answers(0.5))) == (2, 1, 0)
    assert answers(-1.0)[0] == answers(0.2)[0]  # best first
    low = cells._replace(score=cells.score - 1)
    [best] = decode(Scored(np.array([-2.0], np.float32), low))
    assert best.text == answers(-1.0)[0], "of answers that are all unlikely, only the best"


def test_answers_to_one_question_overlap_as_its_policy_says() -> None:
    """When? [2] 2.0, [3] 1.5, [2, 3] 1.0 and [5] 0.5; Where? [3] 0.7, below no answer, and [5] 3.0."""
    questions = (Category("When?", "question"), Category("Where?", "question"))
    text = "Born in May 1999 in Oslo."
    asked = objective("qa").query("qa", "a task", text, None, questions)
    places = [[0, 2, 2], [0, 3, 3], [0, 2, 3], [0, 5, 5], [1, 3, 3], [1, 5, 5]]
    cells = Cells(*np.array(places, np.int32).T, np.array([2, 1.5, 1, 0.5, 0.7, 3], np.float32))
    scores = Scored(np.array([-5, 1], np.float32), cells)

    def answers(overlap: Overlaps) -> list[str]:
        encoding = TOKENIZER.encode([text])[0]
        found = objective("qa").decode(asked, encoding, scores, threshold=0.0, overlap=overlap)
        return [p.text for p in found if isinstance(p, SpanPrediction)]

    assert answers("nested") == ["Oslo", "May", "1999", "May 1999", "Oslo"]
    assert answers("highest") == ["Oslo", "May", "1999", "Oslo"]
    assert answers("longest") == ["Oslo", "May 1999", "Oslo"]
    assert answers({"When?": "longest"}) == answers("longest")


def test_merged_windows_say_each_cell_once_and_the_lowest_anchor() -> None:
    one = scored(2, np.array([0]), np.array([[1, 2, 3]], np.int32))
    two = scored(2, np.array([], np.int32), np.array([[1, 0, 1], [0, 1, 1]], np.int32))
    merged = merge([(0, one), (2, two)])
    assert merged.anchor.tolist() == [-1, -1]
    assert np.stack(merged.cells[:3], axis=1).tolist() == [[0, 3, 3], [1, 2, 3]]


@pytest.mark.parametrize("logits", [(1.0, 3.0), (3.0, 1.0)])
def test_a_cell_of_two_windows_keeps_its_best_score(logits: tuple[float, float]) -> None:
    parts = []
    for first, logit in zip((0, 2), logits, strict=True):
        table, start, end = np.array([[0, 2, 3]], np.int32).T
        cells = Cells(table, start - first, end - first, np.array([logit], np.float32))
        parts.append((first, Scored(np.zeros(1, np.float32), cells)))
    assert [column.tolist() for column in merge(parts).cells] == [[0], [2], [3], [3.0]]


@pytest.mark.parametrize(
    "decode",
    [objective(task).decode for task in ("classification", "multilabel", "regression")]
    + [DECODE[task] for task in ("classification", "regression")],
)
def test_without_candidates_nothing_is_predicted(decode: Decode) -> None:
    item = record("r", 0, "classification", "a text", [])
    nothing = scored(0, np.empty(0, np.int32), np.empty((0, 3), np.int32))
    assert decode(query(item), encode(item), nothing, threshold=0.0, overlap="highest") == []


WORDS = st.lists(
    st.sampled_from(["Ada", "went", "to", "Zürich", "東京", "😀", "by", "R2-D2", "train"]), min_size=1
)


@st.composite
def tagged(draw: st.DrawFn) -> Record:
    """A text of words, with mentions of whole words (any nesting), each once."""
    words = draw(WORDS)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    places = st.tuples(st.integers(0, len(words) - 1), st.integers(0, 3), st.integers(0, len(NAMES) - 1))
    spans = {}
    for first, more, category in draw(st.lists(places, max_size=8)):
        last = min(first + more, len(words) - 1)
        spans[starts[first], starts[last] + len(words[last]), category] = None
    return record("n", 0, "ner", " ".join(words), NAMES, spans=[Span(*span) for span in spans])


@settings(max_examples=200, deadline=None)
@given(tagged())
def test_mentions_of_words_come_back(item: Record) -> None:
    assert found(round_trip(item)) == mentions(item)


@settings(max_examples=200, deadline=None)
@given(tagged(), st.integers(8, 40))
def test_mentions_come_back_over_windows(item: Record, most: int) -> None:
    """All of those that are no longer than the overlap of two windows."""
    encoding = encode(item)
    targets = objective("ner").targets(item, encoding)
    short = targets.gold_cells[:, 2] - targets.gold_cells[:, 1] < most // 4
    expected = {(s.start, s.end, NAMES[s.category or 0]) for s in (item.spans[i] for i in targets.spans[short])}
    assert expected <= found(round_trip(item, most)) <= mentions(item)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 200), st.integers(4, 64))
def test_windows_cover_the_text_and_overlap(tokens: int, most: int) -> None:
    item = question(1)
    targets = objective("qa").targets(item, encode(item))
    parts = windows(targets, tokens, most, query(item))
    assert parts[0].start == 0 and parts[-1].stop == tokens
    assert all(part.stop - part.start <= most for part in parts)
    assert all(following.start <= part.stop - most // 4 for part, following in pairwise(parts))


def test_a_window_holds_the_cells_that_begin_and_end_in_it() -> None:
    cells = np.array([[0, 11, 12], [0, 12, 12], [0, 14, 15], [0, 15, 16]], np.int32)
    targets = replace(objective("ner").targets(ner(0), encode(ner(0))), gold_cells=cells)
    assert [
        (part.start, part.stop, part.gold_cells.tolist()) for part in windows(targets, 28, 16, query(ner(0)))
    ] == [
        (0, 16, [[0, 11, 12], [0, 12, 12], [0, 14, 15]]),
        (12, 28, [[0, 0, 0], [0, 2, 3], [0, 3, 4]]),
    ]


def test_a_window_without_the_answer_says_so() -> None:
    item = question(1)
    targets = objective("qa").targets(item, encode(item))
    first = int(targets.gold_cells[0, 1])
    parts = windows(targets, len(encode(item).ids), 4, query(item))
    for part in parts:
        holds = part.start <= first and targets.gold_cells[0, 2] < part.stop
        assert len(part.gold_cells) == holds and len(part.gold_anchors) == (not holds)


def test_a_question_whose_answer_is_lost_is_not_called_unanswerable() -> None:
    item = record("q", 0, "qa", "ab\u200b cd", ["What?"], spans=[Span(2, 3, 0)])
    targets = objective("qa").targets(item, encode(item))
    assert not len(targets.gold_anchors) and not len(targets.gold_cells) and len(targets.lost) == 1


@pytest.mark.parametrize("task", ["_common", "no such task"])
def test_other_tasks_are_refused(task: str) -> None:
    with pytest.raises(UserError, match=r"there is no task .*; expected one of choice, classification"):
        objective(task)
