"""Paths of specs: where they begin, and what they lead to."""

from __future__ import annotations

import pytest

from pipelines.mapping.paths import Scope, value, values
from pipelines.mapping.refused import RefusedError

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


def test_a_position_that_a_list_lacks_is_told() -> None:
    with pytest.raises(RefusedError, match="people is ") as error:
        value("people.2.name")(Scope(ROW, ROW, {}))
    assert error.value.reason == "missing field"
