"""The page on adding a dataset: its specs are valid, and make the records that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from pipelines.mapping.mapper import mapper
from pipelines.sources import Slice, matches, reader
from pipelines.specs import dataset_spec, file_options
from ubert.schema.checks import covered
from ubert.schema.licence import CLASSES
from ubert.schema.record import Misplaced, Record, Reject
from ubert.schema.specs.mapping import (
    Arguments,
    Events,
    Mapping,
    Mentions,
    Offsets,
    Relations,
    Scheme,
    TokenRelations,
)
from ubert.schema.specs.rules import Clean

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-dataset.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXPECTED = [(name, content) for kind, name, content in BLOCKS if kind == "json" and "." not in name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page: data/<dataset>/..., and datasets/<name>.yaml, which a second block continues."""
    folder = tmp_path_factory.mktemp("page")
    for _, name, content in BLOCKS:
        path = folder / "datasets" / name if name.endswith(".yaml") else folder / "data" / name
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(content)
    return folder


def shown(row: Record | Reject) -> dict[str, Any]:
    """A record or a reject as the page shows it."""
    if isinstance(row, Reject):
        return {"rejected": row.reason}
    words = [covered(row, span) for span in row.spans]
    kinds = [row.categories[span.category or 0].name for span in row.spans]
    parts = {
        "labels": [row.categories[label].name for label in row.labels],
        "spans": [list(both) for both in zip(words, kinds, strict=True)],
        "relations": [[words[r.head], row.categories[r.category].name, words[r.tail]] for r in row.relations],
    }
    value = {} if row.value is None else {"value": row.value}
    return {"text": row.text, **value, **{key: part for key, part in parts.items() if part}}


def test_the_page_has_the_examples_that_it_speaks_of() -> None:
    assert [name for name, _ in EXPECTED] == ["shop", "shop_stars", "archive", "deals", "deals_people", "reports"]
    assert sum(kind == "yaml" for kind, _, _ in BLOCKS) == len(EXPECTED)


@pytest.mark.parametrize(("name", "expected"), EXPECTED, ids=[name for name, _ in EXPECTED])
def test_a_spec_makes_of_its_data_what_the_page_says(folder: Path, name: str, expected: str) -> None:
    spec = dataset_spec(name, folder)
    source, form = folder / "data" / spec.folder, reader(spec.format)
    (entry,) = spec.files
    misplaced: list[Misplaced] = []
    to_record, rows = mapper(spec, entry.split, misplaced.append), []
    for path in matches(source, entry.path):
        piece = Slice(str(source), path, 0, (source / path).stat().st_size, 1, entry.encoding, "0" * 64)
        rows += [
            row if isinstance(row, Reject) else to_record(piece, row)
            for row in form.read(piece, file_options(spec, entry))
        ]
    assert [shown(row) for row in rows] == [json.loads(line) for line in expected.splitlines()]
    assert [one.mismatch.words for one in misplaced] == (["Charles", "Ada"] if name == "archive" else [])


@pytest.mark.parametrize(
    "model", [Mapping, Mentions, Relations, TokenRelations, Events, Arguments, Offsets, Clean]
)
def test_every_word_of_map_is_in_the_table(model: type[BaseModel]) -> None:
    table = "".join(line for line in PAGE.splitlines() if line.startswith("| "))
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in table
        for value in get_args(field.annotation) if model is Offsets else ():
            assert not isinstance(value, str) or re.search(rf"\b{value}\b", PAGE)


@pytest.mark.parametrize("word", [*get_args(Scheme), *CLASSES, "dataset", "extends", "error_budget", "--specs"])
def test_words_that_are_not_of_map_are_on_the_page(word: str) -> None:
    assert word in PAGE
