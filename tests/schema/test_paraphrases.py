"""The project's paraphrases: each differs from its name, and no two names of a corpus share one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from pipelines.specs import dataset_names, dataset_spec, paraphrases, specs_folder
from ubert.schema.errors import UserError

FOLDER = specs_folder(None)
PARAPHRASES = paraphrases(FOLDER)


@cache
def said_by(corpus: str) -> tuple[str, frozenset[str]]:
    """A corpus's instruction, and the names of its categories."""
    spec = dataset_spec(corpus, FOLDER)
    return spec.instruction, frozenset(category.name for category in spec.categories.all())


def test_each_key_is_used_by_some_spec() -> None:
    said = [said_by(corpus) for corpus in dataset_names(FOLDER)]
    assert set(PARAPHRASES) <= {name for instruction, names in said for name in (instruction, *names)}


def test_each_key_has_two_to_five_other_wordings() -> None:
    wrong = {
        key: others
        for key, others in PARAPHRASES.items()
        if not 2 <= len({other.casefold() for other in others} - {key.casefold()}) == len(others) <= 5
        or any(other != " ".join(other.split()) or not other for other in others)
    }
    assert not wrong


@pytest.mark.parametrize("corpus", dataset_names(FOLDER))
def test_no_wording_names_two_categories_of_a_corpus(corpus: str) -> None:
    named: dict[str, set[str]] = {}
    _, names = said_by(corpus)
    for name in names:
        for wording in (name, *PARAPHRASES.get(name, ())):
            named.setdefault(wording.casefold(), set()).add(name)
    assert not {wording: of for wording, of in named.items() if len(of) > 1}


def test_paraphrases_are_lists_of_names_and_need_not_be_there(tmp_path: Path) -> None:
    assert paraphrases(tmp_path) == {}
    for content, said in (("good: [fine, 1]", r"good\.1: "), ("good: fine", "good: ")):
        (tmp_path / "paraphrases.yaml").write_text(content)
        with pytest.raises(UserError, match=rf"paraphrases\.yaml: {said}"):
            paraphrases(tmp_path)
