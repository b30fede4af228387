"""Hostile YAML in every file that users write: one clear error with the file's name, no code run, no hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.specs import dataset_spec, mixture, paraphrases, recipe
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.schema.yaml_file import load

ALIAS = "aliases are not supported"
BOMB = ["a: &a [x, x, x, x, x, x, x, x, x]"]
BOMB += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefghij", "bcdefghijk", strict=False)]
CONTENTS: dict[str, tuple[str | bytes, str]] = {
    "bomb": ("\n".join(BOMB), f"alias \\*a: {ALIAS}"),
    "alias of itself": ("name: &a [*a]", ALIAS),
    "merge": ("base: &b {a: 1}\nname: {<<: *b}", ALIAS),
    "call": ("name: !!python/object/apply:os.system ['touch called']", "could not determine a constructor"),
    "new object": ("name: !!python/object/new:os.system ['touch called']", "could not determine a constructor"),
    "module": ("name: !!python/module:subprocess", "could not determine a constructor"),
    "class": ("!!python/object:ubert.schema.errors.UserError {}", "could not determine a constructor"),
    "include": ("name: !include /etc/hostname", "could not determine a constructor"),
    "nested lists": ("[\n" * 2_000, "not valid YAML"),
    "nested maps": ("{a: " * 2_000, "not valid YAML"),
    "nested blocks": ("- " * 2_000, "not valid YAML"),
    "nested keys": ("? " * 2_000, "not valid YAML"),
    "long number": ("name: " + "9" * 100_000, "YAML"),
    "long sum": ("name: " + "9:" * 5_000 + "9", ""),  # base 60
    "bytes": (b"name: \xff\xfe", ""),
    "NUL": ("name: a\0b", "not valid YAML"),
    "half a pair": ('name: "\\ud800"', ""),
    "no such date": ("name: 2026-02-31", ""),
    "two documents": ("name: a\n---\nname: b", "not valid YAML"),
    "one word": ("name", ""),
    "nothing": ("", ""),
}
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {  # where each kind of file lies, and who reads it
    "dataset": ("datasets/toy.yaml", lambda specs: dataset_spec("toy", specs)),
    "mixture": ("mixtures/toy.yaml", lambda specs: mixture("toy", specs)),
    "recipe": ("recipes/toy.yaml", lambda specs: recipe("toy", specs)),
    "recipe by path": ("toy.yaml", lambda specs: recipe(str(specs / "toy.yaml"), specs)),
    "recipe of ubert.training": ("toy.yaml", lambda specs: load(Recipe, specs / "toy.yaml")),
    "paraphrases": ("paraphrases.yaml", paraphrases),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_hostile_yaml_gives_one_clear_error(
    reader: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (name, read), (text, said) = READERS[reader], CONTENTS[content]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UserError, match=said or None) as error:
        read(tmp_path)
    assert all(line.startswith(str(path)) for line in str(error.value).splitlines()), error.value
    assert len(str(error.value)) < 2000
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]
