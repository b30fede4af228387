"""Paths of specs: where they begin, and which values they reach."""

from __future__ import annotations

import pytest

from pipelines.mapping.clean import cleaner
from pipelines.mapping.paths import Scope, value, values
from pipelines.mapping.refused import RefusedError
from ubert.schema.specs.rules import Clean

ROW = {"of": {"the": "row"}, "people": [{"name": "Ann", "of": {"the": "item"}}, {"name": "Bob"}]}


def found(path: str, item: object) -> list[object]:
    return [scope.item for scope in values(path)(Scope(item, ROW, {}))]


@pytest.mark.parametrize("path", ["people[]", "people[].name", "of", "of.the", "of{key}"])
def test_a_path_with_a_slash_begins_at_the_row_and_any_other_at_the_item(path: str) -> None:
    of_row = found(path, ROW)
    assert of_row and found(f"/{path}", ROW["people"][0]) == of_row
    assert value("of.the")(Scope(ROW["people"][0], ROW, {})) == "item"
    assert value("/of.the")(Scope(ROW["people"][0], ROW, {})) == "row"


@pytest.mark.parametrize(("path", "name"), [("people.1.name", "Bob"), ("people?.2?", None), ("people?.x?", None)])
def test_a_number_is_a_position_of_a_list(path: str, name: str | None) -> None:
    assert value(path)(Scope(ROW, ROW, {})) == name


def test_a_position_that_a_list_lacks_is_reported() -> None:
    with pytest.raises(RefusedError, match="people is ") as error:
        value("people.2.name")(Scope(ROW, ROW, {}))
    assert error.value.reason == "missing field"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("none?.name", None),
        ("of?.the", "row"),
        ("people[].of?.the", ["item"]),
        ("people[].none?", []),
        ("people[].name", ["Ann", "Bob"]),
    ],
)
def test_a_step_that_is_optional_may_lead_to_nothing(path: str, there: object) -> None:
    assert value(path)(Scope(ROW, ROW, {})) == there


@pytest.mark.parametrize("path", ["none?[]", "none?.people[]", "of.none?.people[]"])
def test_a_list_behind_an_optional_step_may_be_missing(path: str) -> None:
    assert found(path, ROW) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("of?.none", "missing field"),
        ("none.name?", "missing field"),
        ("people[].none.name?", "missing field"),
        ("people[].of", "missing field"),
        ("of[].the", "wrong type"),
        ("of.{k}.{l}", "wrong type"),
    ],
)
def test_any_other_step_may_not(path: str, reason: str) -> None:
    with pytest.raises(RefusedError) as error:
        found(path, ROW)
    assert error.value.reason == reason


def test_a_name_in_braces_is_of_a_key_on_the_way_or_of_a_field_of_the_row() -> None:
    row = {"lang": "de", "names": {"de": "Wien", "en": "Vienna"}, "n": 1}
    assert value("names.{lang}")(Scope(row, row, {})) == "Wien"
    assert value("names.{lang}")(Scope(row, row, {"lang": "en"})) == "Vienna"
    assert value("{lang}")(Scope(row["names"], row, {})) == "de"
    assert value("{part}.{lang}")(Scope(row, row, {"part": "names", "lang": "en"})) == "Vienna"
    for path in ("{n}", "{none}", "names.{n}"):
        with pytest.raises(RefusedError, match="no earlier path names a key"):
            value(path)(Scope(row, row, {}))


def test_keys_on_the_way_keep_their_names() -> None:
    row = {"o": {"a": {"b": [1, 2]}, "c": [[3]]}}
    scopes = values("o.{x}.{y}[]")(Scope(row, row, {"z": "d"}))
    assert [(scope.item, scope.named) for scope in scopes] == [
        (1, {"z": "d", "x": "a", "y": "b"}),
        (2, {"z": "d", "x": "a", "y": "b"}),
        (3, {"z": "d", "x": "c", "y": "0"}),
    ]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ('"a.b"', 1),
        ('/"a.b"', 1),
        ('"is it?"', 2),
        ('"none.b"?', None),
        ('"the ""x.y"""."[0]"', 3),
        ('"l.m"[]."n.o"', [4, 5]),
        ('of{key}."n.o"', 6),
        ('a"b', 7),
    ],
)
def test_a_key_in_double_quotes_is_meant_literally(path: str, there: object) -> None:
    row = {"a.b": 1, "is it?": 2, 'the "x.y"': {"[0]": 3}, "l.m": [{"n.o": 4}, {"n.o": 5}], 'a"b': 7}
    row |= {"a": {"b": 0}, "of": {"k": {"n.o": 6}}, "key": "k"}
    assert value(path)(Scope(row, row, {})) == there


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "data.text",
            "no 'data.text' in the row: it has the key 'data.text'; write it in double quotes: '\"data.text\"'",
        ),
        ("/data.list[].x", "it has the key 'data.list'; write it in double quotes: '/\"data.list\"[].x'"),
        ("in.data.text", "in has the key 'data.text'; write it in double quotes: 'in.\"data.text\"'"),
        (
            "items[].is it?",
            "an item of items[] has the key 'is it?'; write it in double quotes: 'items[].\"is it?\"'",
        ),
        ("is it?", "it has the key 'is it?'; write it in double quotes: '\"is it?\"'"),
        ("is it?.x", "it has the key 'is it?'; write it in double quotes: '\"is it?\".x'"),
        ("data.te", "it has data.text, data.list, is it?, in, items"),
    ],
)
def test_a_key_that_needs_double_quotes_is_named(path: str, message: str) -> None:
    row = {
        "data.text": "a",
        "data.list": [{"x": 1}],
        "is it?": 1,
        "in": {"data.text": 1},
        "items": [{"is it?": 1}],
    }
    clean = cleaner({path: Clean(strip=True)})
    for get in (value(path), lambda scope: [*values(path)(scope)], lambda scope: clean(scope.row)):
        with pytest.raises(RefusedError) as error:
            get(Scope(row, row, {}))
        assert (error.value.reason, message in error.value.detail) == ("missing field", True)
