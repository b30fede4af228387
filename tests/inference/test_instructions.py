"""The default instruction of a prediction is the one of the training, if there was only one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from handmade import ner
from msgspec.structs import replace
from tiny_run import make_encoder

import ubert
from pipelines.training.short_run import shards_of
from ubert.inference.questions import INSTRUCTIONS
from ubert.schema.errors import UserError
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop

RECORDS = [replace(ner(i), instruction="who went by train") for i in range(12)]


def trained(folder: Path, records: list[Record]) -> Path:
    encoder = str(make_encoder(folder / "encoder"))
    shards = shards_of(records, encoder, folder / "shards")
    recipe = Recipe(name="run", mixture="probe", encoder=encoder, table_size=8, steps=2)
    return loop.train(recipe, shards=shards, run=folder / "run", worker=loop.Worker(progress=False))


def test_the_instruction_of_the_training_is_the_default(tmp_path: Path) -> None:
    predictor = ubert.load(trained(tmp_path, RECORDS))
    assert predictor.instructions == {**INSTRUCTIONS, "ner": "who went by train"}
    asked = {"task": "ner", "categories": ["person", "place"], "threshold": 1e-6, "overlap": "nested"}
    default, same, general = (
        predictor.predict([RECORDS[0].text], instruction=instruction, **asked)
        for instruction in (None, "who went by train", INSTRUCTIONS["ner"])
    )
    assert default == same != general


def test_several_instructions_of_a_task_leave_the_general_one(tmp_path: Path) -> None:
    mixed = [replace(one, instruction=f"who went by train, {i % 2}") for i, one in enumerate(RECORDS)]
    assert ubert.load(trained(tmp_path, mixed)).instructions == INSTRUCTIONS


@pytest.mark.parametrize("damage", [["ner"], {"ner": 1}])
def test_instructions_are_text(tmp_path: Path, damage: object) -> None:
    directory = trained(tmp_path, RECORDS)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    assert config["instructions"] == {"ner": "who went by train"}
    (directory / "config.json").write_text(json.dumps({**config, "instructions": damage}), encoding="utf-8")
    with pytest.raises(UserError, match="instructions"):
        ubert.load(directory, verify=False)
