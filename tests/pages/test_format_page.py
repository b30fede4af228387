"""docs/formats.md equals the readers' own descriptions, and each is complete."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from pipelines.pages.format_page import PAGE, page, rows
from pipelines.sources import formats, reader
from pipelines.specs import json_schemas


def test_the_page_is_that_of_the_readers() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make schemas`"


@pytest.mark.parametrize("name", formats())
def test_each_format_has_a_short_example_of_which_rows_come(name: str) -> None:
    files = reader(name).EXAMPLE.files.values()
    assert rows(name) and max(len(text.splitlines()) for text in files) <= 7


@pytest.mark.parametrize("name", formats())
def test_each_option_has_a_description(name: str) -> None:
    def check(model: type[BaseModel]) -> None:
        for key, field in model.model_fields.items():
            assert field.description, f"{name}: {model.__name__}.{key}"

    check(reader(name).Options)


def test_options_of_each_format_are_typed_in_the_schema_and_its_references_lead_somewhere() -> None:
    schema = json_schemas()["dataset"]
    asked = [part["if"].get("properties", {}).get("format") for part in schema["allOf"]]
    assert [form["const"] for form in asked if form] == formats()

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            found = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return found + [each for value in node.values() for each in references(value)]
        return [each for item in node for each in references(item)] if isinstance(node, list) else []

    wanted = {reference.removeprefix("#/$defs/") for reference in references(schema)}
    assert wanted <= set(schema["$defs"])
