"""Licences: well-known ones are classified by their text, and any other needs its class in the spec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from worlds import World

from pipelines.specs import dataset_names, dataset_spec, specs_folder
from ubert.schema.errors import UserError
from ubert.schema.licence import CLASSES, licence_class, meets

DATA = Path(os.environ.get("UBERT_DATA", Path(__file__).parents[2] / "../shared/data"))


@pytest.mark.parametrize(
    ("licence", "kind"),
    [
        ("CC0-1.0", "public-domain"),
        ("CC0 1.0 Universal", "public-domain"),
        ("public domain", "public-domain"),
        ("MIT", "permissive"),
        ("The MIT License", "permissive"),
        ("Apache-2.0 (LICENSE of the repository)", "permissive"),
        ("BSD-3-Clause", "permissive"),
        ("cc by 4.0", "permissive"),
        ("Creative Commons Attribution 4.0 International License", "permissive"),
        ("CC-BY-SA-3.0", "share-alike"),
        ("Creative Commons Attribution-ShareAlike 4.0 International", "share-alike"),
        ("GPL-3.0-or-later", "share-alike"),
        ("CC BY-NC-SA 4.0", "non-commercial"),
        ("Creative Commons Attribution-NonCommercial 4.0", "non-commercial"),
        ("non-commercial use only", "non-commercial"),
        ("non-commercial research only", "research-only"),
        ("research use only", "research-only"),
        ("not stated (repository MIT)", "unstated"),
        ("unknown", "unstated"),
        ("MIT; texts withheld", None),
        ("repository MIT; corpus licence not stated", None),
        ("CC-BY-4.0 (annotations; texts by the licence of each article)", None),
        ("CC-BY-ND-4.0", None),
        ("our own", None),
        ("", None),
        *((licence, "public-domain") for licence in ("CC Zero", "PDDL-1.0", "The Unlicense", "0BSD", "PDM 1.0")),
        ("Creative Commons Zero v1.0 Universal", "public-domain"),
        *((licence, "permissive") for licence in ("ISC", "Zlib", "BSD", "2-Clause BSD License", "MIT (README)")),
        *((licence, "permissive") for licence in ("Apache License 2.0", "ODC-By 1.0", "CDLA-Permissive-2.0")),
        ("Artistic-2.0", "permissive"),
        *((licence, "share-alike") for licence in ("ODbL 1.0", "GNU GPL v3", "AGPL-3.0-only", "LGPL-2.1")),
        *((licence, "share-alike") for licence in ("GFDL-1.3", "MPL 2.0", "CDLA-Sharing-1.0")),
        ("Creative Commons Attribution-Share-Alike 3.0 Unported", "share-alike"),
        ("CC-BY-NC-4.0", "non-commercial"),
        ("CC-BY-NC-ND-4.0", "non-commercial"),
        ("Creative Commons Attribution-NonCommercial-NoDerivatives 4.0 International", "non-commercial"),
        ("Creative Commons Attribution Non-Commercial 2.0 Generic", "non-commercial"),
        ("Creative Commons Attribution-No Derivatives 4.0", None),
        *((licence, "research-only") for licence in ("academic research purposes", "Educational use only")),
        *((licence, "unstated") for licence in ("unspecified", "none", "No licence", "no license")),
    ],
)
def test_a_wording_is_classed_only_where_it_is_one_known_licence(licence: str, kind: str | None) -> None:
    assert licence_class(licence) == kind


def test_a_policy_is_a_word_a_class_or_a_licence() -> None:
    assert [kind for kind in CLASSES if meets("x", kind, ["commercial"])] == [
        "public-domain",
        "permissive",
        "share-alike",
    ]
    assert meets("our own", "unstated", ["our own"])
    assert not meets("our own", "unstated", ["our"])
    assert not meets("MIT", "permissive", [])


def test_a_licence_that_is_not_known_needs_its_class(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spec(licence="MIT; texts withheld")
    with pytest.raises(
        UserError, match=r"toy\.yaml: licence_class: .*'MIT; texts withheld'.* research-only, unstated"
    ):
        dataset_spec("toy", world.specs)
    world.spec(licence="MIT; texts withheld", licence_class="research-only")
    assert dataset_spec("toy", world.specs).licence_class == "research-only"
    world.spec(licence="MIT")
    assert dataset_spec("toy", world.specs).licence_class == "permissive"
    world.spec(licence="MIT", licence_class="free")
    with pytest.raises(UserError, match="licence_class"):
        dataset_spec("toy", world.specs)


def test_a_spec_with_a_licence_of_its_own_takes_no_class_from_the_one_it_extends(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spec(licence="MIT; texts withheld", licence_class="research-only")
    for name, own, kind in (("same", "", "research-only"), ("other", "licence: CC0-1.0\n", "public-domain")):
        (world.specs / "datasets" / f"{name}.yaml").write_text(f"name: {name}\nextends: toy\n{own}")
        assert dataset_spec(name, world.specs).licence_class == kind


@pytest.mark.usefixtures("local_ray")
def test_the_class_is_in_the_manifest_and_a_changed_one_makes_a_new_state(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spec(licence="MIT")
    world.source('{"text": "one", "label": 1}\n')
    first = world.ingest()
    world.spec(licence="MIT", licence_class="research-only")
    second = world.ingest()
    assert (first.licence_class, second.licence_class) == ("permissive", "research-only")
    assert first.fingerprint != second.fingerprint
    assert first.parts == second.parts


def test_every_spec_has_a_class() -> None:
    folder = specs_folder(None)
    assert all(dataset_spec(name, folder).licence_class in CLASSES for name in dataset_names(folder))


@pytest.mark.skipif(not DATA.is_dir(), reason="no mirror of real datasets")
def test_wordings_of_real_datasets_with_conditions_are_not_classed_by_themselves() -> None:
    """Where a publisher says several things, no pattern may pick the friendliest."""
    told = {}
    for path in sorted(DATA.glob("*/SOURCE.md")):
        [line, *_] = [
            line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("- Licence:")
        ]
        told[line.removeprefix("- Licence:").strip()] = licence_class(line.removeprefix("- Licence:"))
    assert len(told) >= 30
    for wording, kind in told.items():
        if ";" in wording and not wording.startswith("not stated"):
            assert kind is None, wording
        if wording.startswith("not stated"):
            assert kind == "unstated", wording
    assert {"permissive", "share-alike", "non-commercial", "public-domain"} <= set(told.values())
