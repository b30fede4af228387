"""Errors name what is there, in the terms of the source and of YAML, never of Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from test_mapping import kept, refused, spec_of

from pipelines.mapping.refused import MOST_FIELDS, as_json, missing
from pipelines.sources import Slice
from pipelines.sources.parsing.text import Repeated, all_as_json, lines, text
from ubert.schema.errors import UserError
from ubert.schema.record import Reject
from ubert.schema.specs.dataset import Categories
from ubert.schema.yaml_file import Strict, load, read_yaml


@pytest.mark.parametrize(
    ("path", "row", "why"),
    [
        ("b", {"a": 1, "c": 2}, "it has a, c"),
        ("a.b", {"a": {"c": 1}}, "a has c"),
        ("a.b", {"a": {}}, "a has no fields"),
        ("a.b", {"a": None}, "a is null"),
        ("a.b.c", {"a": [1, True]}, "a is [1, true]"),
        ("a.1.b", {"a": [{}, {"c": 1}]}, "a.1 has c"),
        ("b", {f"k{i}": i for i in range(MOST_FIELDS)}, "k18, k19"),
        ("b", {f"k{i}": i for i in range(MOST_FIELDS + 2)}, "k18, k19 and 2 more"),
    ],
)
def test_a_missing_field_tells_those_there_are(path: str, row: Any, why: str) -> None:
    refusal = missing(path, row, path.split("."))
    assert refusal.detail.startswith(f"no {path!r} in the row: ") and refusal.detail.endswith(why)


@pytest.mark.parametrize("path", ["people[].nmae", "deep.nmae"])
def test_every_kind_of_path_tells_the_fields_of_the_place_where_it_ends(path: str) -> None:
    spec = spec_of("ner", {"text": "t", "spans": {"words": path, "as": "a"}}, {"entity": {"a": "a"}})
    row = {"t": "a", "people": [{"name": "a", "x": {"name": "b"}}], "deep": {"name": "a"}}
    assert refused(spec, row)[0] == "missing field"
    assert "name" in refused(spec, row)[1].partition(": ")[2]


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ({"each": "marks[]", "label": "knd"}, "no 'knd' in an item of marks[]: it has from, to, kind"),
        ({"each": "marks[]", "label": "/knd"}, "no '/knd' in the row: it has t, marks, layers"),
        ({"each": "marks[]", "label": "kind.x"}, "no 'kind.x' in an item of marks[]: kind is 'a'"),
        (
            {"each": "layers.{l}.m[]", "label": "knd"},
            "no 'knd' in an item of layers.{l}.m[]: it has from, to, kind",
        ),
        ({"each": "layers.one.mm[]", "label": "kind"}, "no 'layers.one.mm[]' in the row: layers.one has m"),
        (
            {"each": "layers.{l}.mm[]", "label": "kind"},
            "no 'layers.{l}.mm[]' in the row: an item of layers.{l} has m",
        ),
    ],
)
def test_a_wrong_key_of_an_item_is_looked_for_in_the_item(spans: dict[str, str], said: str) -> None:
    fields = {"text": "t", "spans": {"start": "from", "end": "to", **spans}}
    marks = [{"from": 0, "to": 1, "kind": "a"}]
    row = {"t": "a", "marks": marks, "layers": {"one": {"m": marks}}}
    reason, detail = refused(spec_of("ner", fields, {"entity": {"a": "a"}}), row)
    assert reason == "missing field" and detail.startswith(said)


def test_a_value_to_clean_is_looked_for_where_its_path_leads() -> None:
    spec = spec_of("text", {"text": "t", "clean": {"parts[].x": {"strip": True}}})
    said = "no 'parts[].x' in the row: an item of parts[] has y"
    assert refused(spec, {"t": "a", "parts": [{"y": "b"}]}) == ("missing field", said)


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ({"a": None, "b": True}, '{"a": null, "b": true} is not among'),
        (None, "l is null"),
        (False, "false is not among"),
        (["é"], "'é' is not among"),
    ],
)
def test_values_are_shown_as_json_writes_them(label: Any, shown: str) -> None:
    spec = spec_of("classification", {"text": "t", "label": "l"}, {"label": {"x": "x"}})
    assert shown in refused(spec, {"t": "a", "l": label})[1]


@pytest.mark.parametrize("name", ["Père Lambert", "Лев Толстой", "鲁迅"])
def test_a_rejected_row_keeps_its_letters(name: str) -> None:
    assert name in as_json({"author": name})
    assert name in all_as_json(Repeated([("author", name), ("author", name)]))
    half = as_json({"author": name, "note": "\ud800"})  # a lone surrogate can't be stored or printed
    assert half.isascii() and json.loads(half) == {"author": name, "note": "\ud800"}


def test_a_label_that_is_a_list_is_written_as_the_message_shows_it() -> None:
    spec = spec_of("classification", {"text": "t", "label": "l"}, {"label": {'{"rôle": "Père"}': "father"}})
    assert kept(spec, {"t": "a", "l": {"rôle": "Père"}}).labels == [0]
    assert '{"rôle": "Mère"} is not' in refused(spec, {"t": "a", "l": {"rôle": "Mère"}})[1]


class Words(Strict):
    words: list[str]
    names: dict[str, str] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        ("words: [no]", "quote it: YAML reads yes, no, on and off without quotes as true or false"),
        ("words: [1]", 'got 1; quote it: "1"'),
        ("words: [1.50]", "got 1.5; quote it as it is written"),
        ("words: [~]", "quote it: YAML reads null"),
        (
            "words: []\nnames: {no: x}",
            "names.false.[key]: Input should be a valid string, got false; quote it: YAML",
        ),
        ("words: []\nnames: {1: x}", 'names.1.[key]: Input should be a valid string, got 1; quote it: "1"'),
        ("words: []\nnames: {2001-01-01: x}", 'quote it: "2001-01-01"'),
        ("words: []\nnames: {null: x}", "quote it: YAML reads null"),
    ],
)
def test_what_yaml_takes_for_something_else_is_to_be_quoted(tmp_path: Path, content: str, cure: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        load(Words, path)
    assert cure in str(error.value)


def test_quoted_keys_and_values_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text('label: {"no": "1", "1": "yes"}')
    assert Categories.model_validate(read_yaml(path)).label == {"no": "1", "1": "yes"}


def test_bytes_that_are_half_a_surrogate_pair_say_so(tmp_path: Path) -> None:
    content = b"fine\nbroken " + "\ud83d\ude00".encode("utf-8", "surrogatepass") + b"\n"
    (tmp_path / "a").write_bytes(content)
    piece = Slice(str(tmp_path), "a", 0, len(content), 1, "utf-8", "0")
    fine, broken = lines(piece)
    assert fine == "fine" and isinstance(broken, Reject)
    said = "bytes 12 to 14 (ed a0 bd) are half of a surrogate pair, which UTF-8 does not have"
    assert said in broken.detail
    with pytest.raises(UserError, match=r"line 2: bytes 12 to 14 \(ed a0 bd\)"):
        text(piece)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("UTF-8", "bytes 1 to 3 (ed a0 bd)"),
        ("utf_8", "bytes 1 to 3 (ed a0 bd)"),
        ("UTF8", "bytes 1 to 3 (ed a0 bd)"),
        ("ascii", "byte 1 (0xed) is not ascii"),
    ],
)
def test_half_a_surrogate_pair_is_wrong_in_utf_8_by_any_of_its_names(
    tmp_path: Path, encoding: str, said: str
) -> None:
    (tmp_path / "a").write_bytes(b"a\xed\xa0\xbd\n")
    (broken,) = lines(Slice(str(tmp_path), "a", 0, 5, 1, encoding, "0"))
    assert isinstance(broken, Reject) and broken.detail.startswith(said)
