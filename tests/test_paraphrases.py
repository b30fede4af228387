"""The project's paraphrases: each says another name in other words, and no two names of one corpus the same."""

from __future__ import annotations

from functools import cache

import pytest

from pipelines.specs import dataset_names, dataset_spec, paraphrases, specs_folder

FOLDER = specs_folder(None)
PARAPHRASES = paraphrases(FOLDER)


@cache
def names_of(corpus: str) -> frozenset[str]:
    """Names of a corpus's categories, as its spec says them."""
    categories = dataset_spec(corpus, FOLDER).categories
    return frozenset(category.name for category in categories.all()) if categories else frozenset()


def test_each_key_is_said_by_some_spec() -> None:
    corpora = dataset_names(FOLDER)
    said = {dataset_spec(corpus, FOLDER).instruction for corpus in corpora}.union(*map(names_of, corpora))
    assert set(PARAPHRASES) <= said


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
    for name in names_of(corpus):
        for wording in (name, *PARAPHRASES.get(name, ())):
            named.setdefault(wording.casefold(), set()).add(name)
    assert not {wording: names for wording, names in named.items() if len(names) > 1}
