"""Contamination: n-grams that a training record shares with each evaluation split, in any script."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from near_copies import record
from worlds import put_corpus

from pipelines.audit.contamination import contamination
from pipelines.audit.ngrams import ngrams
from pipelines.audit.shingles import placed_words, shingles, words
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.record import normal_form

THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"
POEM = "床前明月光疑是地上霜举头望明月低头思故乡"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(
        tmp_path,
        "a",
        [
            record("a", 1, f"Before that, {THIRTEEN.upper()}, and so on."),
            record("a", 2, THIRTEEN.replace("seven", "SIEBEN")),
            record("a", 3, "Yes, indeed!"),
            record("a", 4, "Yes, indeed, one two."),
            record("a", 5, f"他说{POEM}。"),
            record("a", 6, "床前明月光,疑是地上霜,别的都不一样的一首诗"),
            record("a", 7, "?!"),
            record("a", 8, "..."),
        ],
    )
    put_corpus(
        tmp_path,
        "b",
        [
            record("b", 1, f"{THIRTEEN} fourteen fifteen", split="test"),
            record("b", 2, f"Zero {THIRTEEN} {POEM}", split="test"),
            record("b", 3, "yes INDEED", split="validation"),
            record("b", 4, "?!", split="validation"),
            record("b", 5, f"{THIRTEEN} in training"),
        ],
    )
    return tmp_path


@pytest.mark.usefixtures("local_ray")
def test_each_training_record_has_a_row_for_each_split_with_the_record_that_shares_most(root: Path) -> None:
    manifest = contamination(root=root)
    rows = sql(root, "SELECT * EXCLUDE (corpus, split) FROM contamination ORDER BY record_id").to_pylist()

    def row(record_id: str, evaluation: str, **more: Any) -> dict[str, Any]:
        corpus, split, _ = evaluation.split("/")
        other = {"evaluation_id": evaluation, "evaluation_corpus": corpus, "evaluation_split": split}
        return {"record_id": record_id, **other, **more}

    poem = " ".join(POEM[:13])
    shared = pytest.approx(8 / 22)  # of Zero, 13 words and 20 characters
    assert rows == [
        row("a/train/1", "b/test/1", ngrams=1, share=pytest.approx(1 / 3), records=2, ngram=THIRTEEN),
        row("a/train/3", "b/validation/3", ngrams=1, share=1.0, records=1, ngram="yes indeed"),
        row("a/train/5", "b/test/2", ngrams=8, share=shared, records=1, ngram=poem),
        row("b/train/5", "b/test/1", ngrams=1, share=pytest.approx(1 / 3), records=2, ngram=THIRTEEN),
    ]
    assert manifest.counts == {"evaluation_records": 4, "matches": 4, "contaminated_records": 4}


@pytest.mark.usefixtures("local_ray")
def test_corpora_splits_and_length_can_be_chosen(root: Path) -> None:
    def ids(**chosen: Any) -> list[str]:
        contamination(root=root, **chosen)
        rows = sql(root, "SELECT record_id FROM contamination ORDER BY record_id")
        return [str(one) for one in rows.column(0).to_pylist()]

    assert ids(names=["b"]) == ["b/train/5"]
    assert ids(against=["b/validation"]) == ["a/train/3"]
    assert ids(against=["b"], names=["a"], n=14) == ["a/train/3", "a/train/5"]
    assert ids(against=["b/test"], n=6) == [f"a/train/{i}" for i in (1, 2, 5, 6)] + ["b/train/5"]
    with pytest.raises(UserError, match=r"--against b/train: no such .*; there are b/test, b/validation"):
        contamination(root=root, against=["b/train"])


@pytest.mark.usefixtures("local_ray")
def test_what_was_found_already_is_left_as_it_is(root: Path) -> None:
    first = contamination(root=root)
    assert contamination(root=root) == first
    other = contamination(root=root, n=14)
    assert other.fingerprint != first.fingerprint
    assert contamination(root=root).fingerprint == first.fingerprint
    assert Store(root).current("audits", "contamination")[1].parameters["n"] == 13


def test_without_evaluation_splits_there_is_nothing_to_hold_against(tmp_path: Path) -> None:
    put_corpus(tmp_path, "a", [record("a", 1, "Yes.")])
    with pytest.raises(UserError, match="no evaluation split in the store"):
        contamination(root=tmp_path)


@given(text=st.text(max_size=60), pair=st.none() | st.text(max_size=20), n=st.integers(1, 8))
def test_a_text_has_one_ngram_at_each_place_or_is_one_itself(text: str, pair: str | None, n: int) -> None:
    found, grams = words(text, pair), ngrams(text, pair, n)
    if not set(found) - {"\x1f"}:
        assert grams == {}
    elif len(found) <= n:
        assert list(grams.values()) == [" ".join(found)]
    else:
        assert set(grams.values()) == {" ".join(found[i : i + n]) for i in range(len(found) - n + 1)}


@pytest.mark.usefixtures("local_ray")
def test_ngrams_run_into_the_pair_and_a_record_of_two_splits_counts_once(tmp_path: Path) -> None:
    """The evidence has the first n-gram of the record that shares the most, not the first of any record."""
    put_corpus(tmp_path, "a", [record("a", 1, "one two three four", pair="five six"), record("a", 2, "nine")])
    tested = [
        record("b", 1, "one two three", split="test"),
        record("b", 2, "x three four", split="test", pair="five six"),
        record("b", 3, "four", split="validation", pair="five six"),
    ]
    put_corpus(tmp_path, "b", tested)
    manifest = contamination(root=tmp_path, n=3)
    rows = sql(tmp_path, "SELECT record_id, evaluation_id, ngrams, share, records, ngram FROM contamination")
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("a/train/1", "b/test/2", 3, 0.75, 2, "three four |"),
        ("a/train/1", "b/validation/3", 2, 1.0, 1, "four | five"),
    ]
    assert manifest.counts == {"evaluation_records": 3, "matches": 2, "contaminated_records": 1}


def test_unknown_corpora_and_splits_are_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ubert ingest absent"):
        contamination(["a", "absent"], root=root)
    put_corpus(tmp_path / "trained", "a", [record("a", 1, "Yes.")])
    with pytest.raises(UserError, match="--against a: no such evaluation split in the store; there are none"):
        contamination(root=tmp_path / "trained", against=["a"])


@pytest.mark.parametrize(
    "letters",
    ["กข", "ກຂ", "ကခ", "កខ", "あい", "アイ", "ㇰㇱ", "㐀㐁", "一丁", "\U00020000\U00030000"],
)
def test_scripts_without_spaces_have_a_word_for_each_character(letters: str) -> None:
    assert words(f"AB{letters}c d", "e") == ["ab", *letters, "c", "d", "\x1f", "e"]


@pytest.mark.parametrize(
    "text", ["राम ने सीता को देखा", "தமிழ் மொழி", "שָׁלוֹם עוֹלָם", "مُحَمَّد رسول", "x\u0304 cafe\u0301"]
)
def test_accents_and_signs_of_vowels_are_parts_of_words(text: str) -> None:
    assert words(f"({text}).", None) == normal_form(text).split()
    assert [(word.start, word.normal) for word in placed_words(text)] == [
        (text.index(word), normal_form(word)) for word in text.split()
    ]
    assert shingles(text, None) == {" ".join(both) for both in pairwise(["", *normal_form(text).split(), ""])}
