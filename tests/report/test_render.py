"""Tables in a terminal and in files: no value is lost, and no control character reaches the terminal."""

from __future__ import annotations

import csv
import io
import json
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from linked import record, span

from pipelines import cli
from pipelines.cli.shared import print_rows
from pipelines.report.described import colour, described
from pipelines.report.render import csv_lines, show, table
from pipelines.store.sandbox import sql
from ubert.schema.record import Category

PRINTERS = {"table": table, "csv": csv_lines, "json": partial(show, as_json=True, wide=False)}
STEERING = "a\x1b[31mb\u202ec\x9bd"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(name: str, rows: pa.Table, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    PRINTERS[name](rows)
    return out.getvalue()


def test_columns_of_one_name_are_all_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.Table.from_arrays([pa.array([value]) for value in (1, 2, 3, 4)], ["a", "a", "a_1", "b"])
    csv_lines(rows)
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [["a", "a", "a_1", "b"], ["1", "2", "3", "4"]]
    PRINTERS["json"](rows)
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "a_1": 2, "a_1_1": 3, "b": 4}]


def test_csv_has_json_for_lists_and_structs_and_hexadecimal_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    csv_lines(pa.table({"bytes": [b"\xab\x01"], "spans": [[{"a": None, "b": "it's"}]], "text": ["x"]}))
    [_, row] = csv.reader(io.StringIO(capsys.readouterr().out))
    assert row == ["ab01", '[{"a": null, "b": "it\'s"}]', "x"]


def test_what_json_has_no_number_for_is_a_string(capsys: pytest.CaptureFixture[str]) -> None:
    inner = [{"x": [float("nan"), float("inf"), -float("inf"), 1.5]}]
    numbers = [Decimal("1.50"), Decimal("12345678901234567890123456789.0123456789")]
    PRINTERS["json"](pa.table({"inner": inner * 2, "number": numbers}))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    first, second = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert first["inner"] == {"x": ["NaN", "Infinity", "-Infinity", 1.5]}
    assert (first["number"], second["number"]) == (1.5, "12345678901234567890123456789.0123456789")


def test_values_beyond_arrow_and_python_are_as_duckdb_spells_them(tmp_path: Path) -> None:
    statement = (
        "SELECT 340282366920938463463374607431768211455::UHUGEINT, 'infinity'::DATE, '5877642-06-25 (BC)'::DATE"
    )
    [row] = sql(tmp_path, statement).to_pylist()
    assert [*row.values()] == ["340282366920938463463374607431768211455", "infinity", "5877642-06-25 (BC)"]


@pytest.mark.parametrize("name", PRINTERS)
def test_a_terminal_is_not_steered_and_a_file_has_what_is_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({STEERING: [STEERING]})
    shown = printed(name, rows, monkeypatch, terminal=True)
    assert not {"\u202e", "\x9b"} & {*shown} and "\x1b[31m" not in shown
    if name != "table":
        kept = printed(name, rows, monkeypatch, terminal=False)
        assert "\u202e" in kept and "\x9b" in kept


def test_predictions_do_not_steer_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for out, kept in ((Terminal(), False), (io.StringIO(), True)):
        monkeypatch.setattr(sys, "stdout", out)
        print_rows([[{"text": STEERING}]])
        assert ("\u202e" in out.getvalue()) is kept


@pytest.mark.parametrize("argument", ["SELECT '\udcff'", "\udcff"])
def test_arguments_that_are_not_utf_8_give_one_clear_error(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ubert", "sql", argument])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "argument 2: " in (said := capsys.readouterr().err) and "is not UTF-8" in said


def test_an_error_does_not_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["ubert", "rejects", STEERING, "--root", str(tmp_path)])
    with pytest.raises(SystemExit):
        cli.main()
    assert not {"\x1b", "\u202e", "\x9b"} & {*capsys.readouterr().err}


def test_a_record_does_not_steer_a_terminal_and_its_mentions_stay_marked() -> None:
    text = f"one\r\n{STEERING} two"
    name = Category(STEERING, "entity")
    shown = described(record("ner", text, (name,), spans=[span(text, "one", 0), span(text, "two", 0)]))
    assert not {"\x1b", "\u202e", "\x9b", "\r"} & {*shown.plain}
    marked = [shown.plain[at.start : at.end] for at in shown.spans if at.style == colour(0)]
    assert marked[:2] == ["one", "two"]


def test_a_record_shows_the_text_to_write() -> None:
    assert (
        "target       Ada left.\n" in described(record("seq2seq", "Ada left the house.", target="Ada left.")).plain
    )
