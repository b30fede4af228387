"""JSON: rows chosen by a list in another file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import RawRow, Slice, reader
from pipelines.sources.places import reject_place
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


def read(folder: Path, listing: bytes, **options: Any) -> list[str]:
    """Locators of the rows; reasons of the rejects."""
    content = b'{"1": {"q": "a"}, "2": {"q": "b"}, "3": {"q": "c"}, "4": {"q": 2}}'
    (folder / "x.json").write_bytes(content)
    (folder / "ids.json").write_bytes(listing)
    form = reader("json")
    chosen = form.Options(rows=["{id}"], **options)
    assert form.companions(folder, "x.json", chosen) == ["ids.json"]
    piece = Slice(str(folder), "x.json", 0, len(content), 1, "utf-8", "0" * 64)
    return [row.locator if isinstance(row, RawRow) else row.reason for row in form.read(piece, chosen)]


def by_column(folder: Path, content: bytes, **options: Any) -> list[RawRow | Reject]:
    (folder / "x.json").write_bytes(content)
    form = reader("json")
    piece = Slice(str(folder), "x.json", 0, len(content), 1, "utf-8", "0" * 64)
    return list(form.read(piece, form.Options(by_column=True, **options)))


@pytest.mark.parametrize(
    "content", [b'{"m": ["a", "b"], "n": [1, null]}', b'{"m": {"7": "a", "9": "b"}, "n": {"9": null, "7": 1}}']
)
def test_columns_become_rows(tmp_path: Path, content: bytes) -> None:
    found = by_column(tmp_path, content)
    assert [row.content for row in found if isinstance(row, RawRow)] == [{"m": "a", "n": 1}, {"m": "b", "n": None}]
    assert len({row.locator for row in found if isinstance(row, RawRow)}) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"m": ["a", "b"], "n": [1]}', "wrong type"),
        (b'{"m": {"7": "a"}, "n": {"8": 1}}', "wrong type"),
        (b'{"m": ["a"], "n": "b"}', "wrong type"),
        (b"{}", "wrong type"),
        (b'["a"]', "wrong type"),
        (b'{"m": {"7": "a", "7": "b"}, "n": {"7": 1}}', "repeated key"),
        (b'{"m": ["a"], "m": ["b"]}', "repeated key"),
        (b"{", "not JSON"),
    ],
)
def test_columns_with_different_rows_are_one_reject(tmp_path: Path, content: bytes, reason: str) -> None:
    assert [row.reason for row in by_column(tmp_path, content) if isinstance(row, Reject)] == [reason]


@pytest.mark.parametrize("listing", [b'{"1": "yes", "3": "no", "9": "no"}', b'["3", "1"]'])
def test_rows_that_a_file_lists_are_one_split_and_the_others_another(tmp_path: Path, listing: bytes) -> None:
    listed = {"key": "id", "in": "ids.json"}
    assert read(tmp_path, listing, only=listed) == ["x.json#1", "x.json#3"]
    assert read(tmp_path, listing, **{"except": listed}) == ["x.json#2", "x.json#4"]


def test_a_number_is_listed_as_json_writes_it(tmp_path: Path) -> None:
    assert read(tmp_path, b'[2, "a"]', only={"key": "q", "in": "ids.json"}) == ["x.json#1", "x.json#4"]


@pytest.mark.parametrize("choice", ["only", "except"])
def test_a_row_without_the_key_is_of_neither_split(tmp_path: Path, choice: str) -> None:
    assert read(tmp_path, b'["1"]', **{choice: {"key": "pid", "in": "ids.json"}}) == ["missing field"] * 4


@pytest.mark.parametrize("listing", [b"3", b"{", b'"1"'])
def test_a_file_that_lists_nothing_is_an_error(tmp_path: Path, listing: bytes) -> None:
    with pytest.raises(UserError, match=r"ids\.json"):
        read(tmp_path, listing, only={"key": "id", "in": "ids.json"})


def test_a_list_of_rows_lies_in_the_same_folder() -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        reader("json").Options(only={"key": "id", "in": "../ids.json"})


def test_rows_may_be_listed_by_one_file_and_not_by_another(tmp_path: Path) -> None:
    files = {"x.json": '[{"id": "1"}, {"id": "2"}, 3, {"id": "4"}]', "a.json": '["2"]', "b.json": '["1", "2"]'}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    form = reader("json")
    chosen = form.Options(only={"key": "id", "in": "b.json"}, **{"except": {"key": "id", "in": "a.json"}})
    assert form.companions(tmp_path, "x.json", chosen) == ["a.json", "b.json"]
    piece = Slice(str(tmp_path), "x.json", 0, len(files["x.json"]), 1, "utf-8", "0" * 64)
    row, reject = form.read(piece, chosen)
    assert row == RawRow(1, "x.json#0", {"id": "1"})
    assert isinstance(reject, Reject) and (reject.reason, reject.raw) == ("wrong type", "3")


TWICE = '{"text": "a", "text": "b", "n": {"x": 1}}'
WITHIN = '{"n": [{"m": [1, {"text": "a", "text": "b:"}]}]}'


@pytest.mark.parametrize(
    ("name", "content", "options", "where"),
    [
        ("json", f'[{{"text": "c"}}, {TWICE}]', {}, "#1: "),
        ("json", TWICE, {"rows": ["."]}, ""),
        ("json_stream", f'{{"text": "c"}}\n{TWICE}', {}, "#1: "),
        ("json", f"[{WITHIN}]", {}, "#0: "),
        ("jsonl", f'{{"text": "c"}}\n{TWICE}', {}, ""),
        ("jsonl", f'{{"text": "c"}}\n{WITHIN}', {}, ""),
        ("jsonl", WITHIN.replace("b:", "b: \\u003a"), {}, ""),
        ("squad", f'{{"data": [{{"paragraphs": [{{"qas": [{TWICE}]}}]}}]}}', {}, "#0.0.0: "),
    ],
)
def test_a_row_with_a_repeated_key_is_refused_with_all_its_values(
    tmp_path: Path, name: str, content: str, options: dict[str, Any], where: str
) -> None:
    (tmp_path / "x").write_text(content)
    form = reader(name)
    piece = Slice(str(tmp_path), "x", 0, len(content), 1, "utf-8", "0" * 64)
    [*others, reject] = form.read(piece, form.Options(**options))
    assert [row.content for row in others if isinstance(row, RawRow)] == [{"text": "c"}] * len(others)
    assert isinstance(reject, Reject) and reject.reason == "repeated key"
    assert reject.raw in (TWICE, WITHIN, content)
    assert reject.detail.startswith(f"{where}the row has 'text' more than once")


@pytest.mark.parametrize(
    ("content", "options", "places"),
    [
        ('[{}, 1, {"a": 1, "a": 2}]', {}, ["x#1", "x#2"]),
        ("[[1], [2, 3]]", {"columns": ["a"]}, ["x#1"]),
        ('[{"q": [{}, 2]}, {}]', {"rows": ["[].q[]"]}, ["x#0.q.1", "x#1"]),
        ('[{"id": "1"}, {}]', {"only": {"key": "id", "in": "ids"}}, ["x#1"]),
    ],
)
def test_the_place_of_a_reject_is_its_item(
    tmp_path: Path, content: str, options: dict[str, Any], places: list[str]
) -> None:
    (tmp_path / "x").write_text(content)
    (tmp_path / "ids").write_text('["1"]')
    form = reader("json")
    rows = form.read(Slice(str(tmp_path), "x", 0, len(content), 1, "utf-8", "0" * 64), form.Options(**options))
    found = [reject_place(row.path, row.line, row.detail)[0] for row in rows if isinstance(row, Reject)]
    assert found == places
