"""Checkpoints changed after they were written: one clear error, before the file takes memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_checkpoint import ENCODER, write_checkpoint

import ubert
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training.checkpoints.checkpoint import STATE, State, write_state

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the hash of each file."""
    folder = write_checkpoint(tmp_path_factory.mktemp("whole") / "checkpoint")
    recipe = Recipe(name="tiny", mixture="tiny", encoder=ENCODER, steps=1)
    tokenizer = load_tokenizer(ENCODER).hash
    (folder / "tokenizer_config.json").write_text("{}")
    return write_state(
        folder, State(step=0, tokens=0, seconds=0, loss=None, recipe=recipe, shards="0", tokenizer=tokenizer)
    )


def setting(*keys: str, value: object) -> Change:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        inner = config
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        (folder / "config.json").write_text(json.dumps(config))

    return change


def flipped(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-100] ^= 64
    (folder / "model.safetensors").write_bytes(data)


def with_bytes_behind(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"xx")


def cut(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def written(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text)


ALTERED: dict[str, Change] = {
    "bit": flipped,
    "behind": with_bytes_behind,
    "tokenizer_config": written("tokenizer_config.json", "["),
    "special": written("special.json", '{"cls": 5, "sep": 5, "pad": 5, "marker": 5, "types": true}'),
    "table": setting("shape", "max_tokens", value=20),
    "state": written(STATE, "{}"),
}
BROKEN: dict[str, Change] = {
    "list": written("config.json", "[]"),
    "not JSON": written("config.json", "{"),
    "no encoder": setting("encoder", value=None),
    "cut tokenizer": cut("tokenizer.json"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "special list": written("special.json", "[]"),
    "special ids": written("special.json", '{"cls": -1, "sep": 5, "pad": 5, "marker": 5, "types": true}'),
    "cut weights": cut("model.safetensors"),
    "vast table": setting("shape", "table_size", value=10**9),
    "table of text": setting("shape", "table_size", value="16"),
    "negative table": setting("shape", "table_size", value=-5),
    "negative text": setting("shape", "max_tokens", value=-1),
    "no categories": setting("shape", "categories_per_piece", value=0),
    "layout": setting("shape", "layout", value="nothing"),
    "vast lora": setting("shape", "lora", value=10**9),
    "fewer layers": setting("encoder", "num_hidden_layers", value=1),
    "more layers": setting("encoder", "num_hidden_layers", value=3),
    "negative layers": setting("encoder", "num_hidden_layers", value=-5),
    "very many layers": setting("encoder", "num_hidden_layers", value=10**6),
    "vast width": setting("encoder", "hidden_size", value=10**7),
    "negative width": setting("encoder", "hidden_size", value=-32),
    "vast vocabulary": setting("encoder", "vocab_size", value=10**10),
    "vast positions": setting("encoder", "max_position_embeddings", value=10**9),
    "no heads": setting("encoder", "num_attention_heads", value=0),
}


def altered(whole: Path, tmp_path: Path, change: Change) -> Path:
    folder = shutil.copytree(whole, tmp_path / "altered")
    change(folder)
    return folder


@pytest.mark.parametrize("name", ALTERED)
def test_a_file_that_is_not_what_was_written_is_refused(name: str, whole: Path, tmp_path: Path) -> None:
    folder = altered(whole, tmp_path, ALTERED[name])
    with pytest.raises(
        UserError, match=r"changed since it was written .*`--no-verify`, or verify=False in Python$"
    ):
        ubert.load(folder)


def test_it_loads_where_it_is_trusted_or_has_no_hashes(whole: Path, tmp_path: Path) -> None:
    folder = altered(whole, tmp_path, flipped)
    assert ubert.load(folder, verify=False).predict(["Ada"], task="ner", categories=["person"])
    (folder / STATE).unlink()
    assert ubert.load(folder).predict(["Ada"], task="ner", categories=["person"])


def test_thresholds_may_be_fitted_and_the_optimizer_may_be_left_out(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "checkpoint")
    state = State.model_validate_json((folder / STATE).read_text())
    for name in ("optimizer.safetensors", "thresholds.json"):
        (folder / name).write_text("{}")
    write_state(folder, state)
    (folder / "optimizer.safetensors").unlink()
    (folder / "thresholds.json").write_text("{ }")
    assert ubert.load(folder).thresholds == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_checkpoint_gives_one_clear_error_even_where_it_is_trusted(
    name: str, whole: Path, tmp_path: Path
) -> None:
    folder = altered(whole, tmp_path, BROKEN[name])
    for verify in (True, False):
        with pytest.raises(UserError) as error:
            ubert.load(folder, verify=verify)
        assert str(folder) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["x" * 300, "../../tmp", "a/../..", "\0", ""])
def test_a_name_that_no_checkpoint_has_gives_one_clear_error(name: str) -> None:
    with pytest.raises(UserError):
        ubert.load(name or "./nothing")


def test_what_is_no_list_of_texts_gives_one_clear_error(whole: Path) -> None:
    predictor = ubert.load(whole)
    for texts in (None, 1, [None], "Ada"):
        with pytest.raises(UserError):
            predictor.predict(texts, task="ner", categories=["person"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="task pair needs a second text"):
        predictor.predict(["Is it?"], task="pair", categories=["yes", "no"])
