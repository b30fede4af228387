"""Replay: a share of another mixture in addition to a recipe's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from handmade import ner, sentiment
from worlds import put_corpus

from pipelines.mixtures.mix import mix
from pipelines.mixtures.replay import trained_on
from ubert.schema.errors import UserError
from ubert.schema.manifest import MixtureManifest
from ubert.schema.specs.recipe import Recipe


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(tmp_path, "new", [sentiment(i, corpus="new") for i in range(40)])
    put_corpus(tmp_path, "old", [ner(i, i, corpus="old") for i in range(30)])
    put_corpus(tmp_path, "older", [ner(i, i + 40, corpus="older") for i in range(30)])
    write(tmp_path, "mine", {"sources": [{"corpus": "new"}]})
    write(tmp_path, "base", {"sources": [{"corpus": "old", "weight": 3}, {"corpus": "older"}, {"corpus": "new"}]})
    return tmp_path


def write(root: Path, name: str, content: dict[str, Any]) -> None:
    path = root / "specs" / "mixtures" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"name": name, **content}))


def drawn(root: Path, **replay: Any) -> MixtureManifest:
    recipe = Recipe(name="r", mixture="mine", steps=1, replay=replay or None)  # type: ignore[arg-type]
    mixture = trained_on(recipe, root=root, specs=root / "specs")
    assert mixture.name == recipe.shards
    return mix(mixture, root=root)


def test_a_share_of_the_draws_is_replayed_by_its_own_proportions(root: Path) -> None:
    manifest = drawn(root, mixture="base", share=0.2)
    assert {source.corpus: source.draws for source in manifest.sources} == {"new": 40, "old": 8, "older": 2}


def test_a_mixture_within_the_replayed_one_keeps_its_policy_and_weight(root: Path) -> None:
    put_corpus(root, "large", [ner(i, i + 70, corpus="large") for i in range(90)])
    inside = {"name": "inside", "policy": "equal", "sources": [{"corpus": "large"}, {"corpus": "older"}]}
    empty = {"name": "empty", "sources": [{"corpus": "new"}]}
    sources = [{"mixture": inside, "weight": 2}, {"corpus": "old"}, {"mixture": empty}]
    write(root, "base", {"policy": "equal", "sources": sources})
    manifest = drawn(root, mixture="base", share=0.6)
    draws = {source.corpus: source.draws for source in manifest.sources}
    assert draws == {"new": 40, "large": 20, "older": 20, "old": 20}


def test_without_replay_the_mixture_is_the_recipes(root: Path) -> None:
    assert [source.draws for source in drawn(root).sources] == [40]


def test_the_rules_are_those_of_the_recipes_own_mixture(root: Path) -> None:
    put_corpus(root, "exam", [ner(99, 20, corpus="exam")])
    rules = {
        "seed": 3,
        "leaks": "allow",
        "duplicates": "keep",
        "hold_out": ["exam"],
        "licences": ["CC0-1.0"],
    }
    write(root, "mine", {"sources": [{"corpus": "new"}], **rules})
    write(root, "base", {"sources": [{"corpus": "old"}], "seed": 9, "licences": ["permissive"]})
    replay = {"mixture": "base", "share": 0.25}
    recipe = Recipe(name="r", mixture="mine", steps=1, replay=replay)  # type: ignore[arg-type]
    mixture = trained_on(recipe, root=root, specs=root / "specs")
    assert mixture.model_dump(include={*rules}) == rules
    assert (mixture.size, [source.weight for source in mixture.sources]) == (53, [0.75, 0.25])


def test_what_the_replayed_mixture_holds_out_is_not_learnt_again(root: Path) -> None:
    put_corpus(root, "exam", [ner(0, 0, corpus="exam")])  # the text of the first record of `old`
    put_corpus(root, "test", [sentiment(99, corpus="test")])
    write(root, "base", {"sources": [{"corpus": "old"}], "hold_out": ["exam", "te*"]})
    manifest = drawn(root, mixture="base", share=0.2)
    assert [*manifest.held_out] == ["exam", "test"]
    assert {source.corpus: source.dropped_held_out for source in manifest.sources} == {"new": 0, "old": 1}
    write(root, "mine", {"sources": [{"corpus": "exam", "max_copies": 40}], "size": 40, "hold_out": ["test"]})
    assert [*drawn(root, mixture="base", share=0.2).held_out] == ["test"]


def test_a_pattern_still_holds_out_what_the_recipe_does_not_draw_from(root: Path) -> None:
    put_corpus(root, "exam_a", [sentiment(99, corpus="exam_a")])
    put_corpus(root, "exam_b", [ner(0, 0, corpus="exam_b")])  # the text of the first record of `old`
    write(root, "mine", {"sources": [{"corpus": "exam_a", "max_copies": 40}], "size": 40})
    write(root, "base", {"sources": [{"corpus": "old"}], "hold_out": ["exam_*"]})
    manifest = drawn(root, mixture="base", share=0.2)
    assert [*manifest.held_out] == ["exam_b"]
    assert {source.corpus: source.dropped_held_out for source in manifest.sources} == {"exam_a": 0, "old": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("base", {"sources": [{"corpus": "old"}], "phases": [{"share": 1.0}]}, "mixture base has `phases`"),
        ("mine", {"sources": [{"corpus": "new"}], "phases": [{"share": 1.0}]}, "mixture mine has `phases`"),
        ("base", {"sources": [{"corpus": "new"}]}, "mixture mine draws from all of base; remove"),
    ],
)
def test_what_cannot_be_replayed_is_refused(root: Path, name: str, content: dict[str, Any], message: str) -> None:
    write(root, name, content)
    with pytest.raises(UserError, match=message):
        drawn(root, mixture="base", share=0.2)
