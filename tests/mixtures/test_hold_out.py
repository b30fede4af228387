"""What a mixture holds out: every record with such a text, and every corpus of the same texts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from near_copies import WORDS, changed, record, sentence
from test_guard import mixture
from worlds import put_corpus

from pipelines.audit.held_out import NEAR, Texts
from pipelines.audit.shingles import jaccard, shingles
from pipelines.mixtures.mix import composition, mix
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError

TESTED = sentence(random.Random(0))
PREMISE = "No cat sleeps here."  # of as few words as are compared


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`exam` is held out; `lessons` has some of its texts, as they are, nearly, and as second texts."""
    put_corpus(
        tmp_path,
        "exam",
        [
            record("exam", 1, " ".join(TESTED), split="test"),
            record("exam", 2, "The cat sat.", split="train"),
            record("exam", 3, PREMISE, split="validation", pair="a dog"),
        ],
        dataset="exams",
        twins=["orals"],
    )
    put_corpus(
        tmp_path,
        "lessons",
        [
            record("lessons", 1, "the  CAT sat."),
            record("lessons", 2, " ".join(changed(TESTED, 7))),
            record("lessons", 3, "A text of its own.", pair=PREMISE),
            record("lessons", 4, "Another text of its own.", pair="a dog"),
            record("lessons", 5, "Something else."),
        ],
    )
    return tmp_path


def test_texts_of_a_held_out_corpus_are_not_drawn(root: Path) -> None:
    manifest = mix(mixture("lessons", hold_out=["exam"]), root=root)
    [source] = manifest.sources
    assert (source.available, source.dropped_held_out, source.records) == (5, 3, 2)
    assert list(manifest.held_out) == ["exam"]
    rows = sql(root, "SELECT record_id, kept_id, reason, kind FROM dropped ORDER BY record_id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("lessons/train/1", "exam/train/2", "held out", "exact"),
        ("lessons/train/2", "exam/test/1", "held out", "near"),
        ("lessons/train/3", "exam/validation/3", "held out", "exact"),
    ]
    assert composition(manifest).column("held out").to_pylist() == [3, 3]


def test_a_mixture_is_drawn_anew_when_what_it_holds_out_changes(root: Path) -> None:
    before = mix(mixture("lessons", hold_out=["exam"]), root=root)
    put_corpus(root, "exam", [record("exam", 9, "Something else.")])
    after = mix(mixture("lessons", hold_out=["exam"]), root=root)
    assert (before.fingerprint == after.fingerprint, after.sources[0].dropped_held_out) == (False, 1)


@pytest.mark.parametrize("more", [{"dataset": "orals"}, {"twins": ["exams"]}, {"twins": ["exam"]}])
def test_a_twin_is_held_out_too(root: Path, more: dict[str, Any]) -> None:
    put_corpus(root, "other", [record("other", 1, "A third text.")], **more)
    put_corpus(root, "pupil", [record("pupil", 1, "a third TEXT."), record("pupil", 2, "My own.")])
    assert mix(mixture("pupil", hold_out=["ex*"]), root=root).sources[0].dropped_held_out == 1
    with pytest.raises(UserError, match="hold_out covers its own sources other"):
        mix(mixture("lessons", "other", hold_out=["exam"]), root=root)


def test_a_record_is_dropped_once_though_it_leaks_too(root: Path) -> None:
    exam = [record("exam", 1, "Something else.", split="test"), record("exam", 2, "The cat sat.")]
    put_corpus(root, "exam", exam)
    manifest = mix(mixture("lessons", hold_out=["exam"]), root=root)
    [source] = manifest.sources
    assert (source.available, source.dropped_held_out, source.dropped_leaks, source.records) == (5, 2, 0, 3)
    assert {row["reason"] for row in sql(root, "SELECT reason FROM dropped").to_pylist()} == {"held out"}


def test_a_leak_that_is_held_out_is_not_refused(root: Path) -> None:
    put_corpus(root, "exam", [record("exam", 1, "Something else.", split="test")])
    assert mix(mixture("lessons", hold_out=["exam"], leaks="refuse"), root=root).sources[0].dropped_held_out == 1
    put_corpus(root, "quiz", [record("quiz", 1, "Another text of its own.", split="test")])
    with pytest.raises(UserError, match="1 records are in an evaluation split too, such as lessons/train/4"):
        mix(mixture("lessons", hold_out=["exam"], leaks="refuse"), root=root)


def test_pairs_of_three_words_are_not_compared(root: Path) -> None:
    put_corpus(root, "exam", [record("exam", 1, "A first text.", pair="a black dog", split="test")])
    put_corpus(root, "lessons", [record("lessons", n, f"Text {n}.", pair="a black dog") for n in range(2)])
    assert mix(mixture("lessons", hold_out=["exam"]), root=root).sources[0].dropped_held_out == 0


def test_a_twin_is_named_by_its_corpus_or_by_its_dataset(root: Path) -> None:
    put_corpus(root, "orals", [record("orals", 1, "A third text.")])
    put_corpus(root, "spoken", [record("spoken", 1, "A fourth text.")], dataset="orals")
    put_corpus(root, "written", [record("written", 1, "A fifth text.")], dataset="papers", twins=["essays"])
    assert list(mix(mixture("lessons", hold_out=["exam"]), root=root).held_out) == ["exam", "orals", "spoken"]


def test_a_name_without_a_corpus_is_refused(root: Path) -> None:
    with pytest.raises(UserError, match=r"hold_out: oral\* is not a corpus of .*; ingest it"):
        mix(mixture("lessons", hold_out=["oral*"]), root=root)
    with pytest.raises(UserError, match=r"hold_out: oral\* is not a corpus"):
        mix(mixture("lessons", hold_out=["exam", "oral*"]), root=root)


def test_what_is_held_out_is_dropped_whatever_else_is_allowed(root: Path) -> None:
    manifest = mix(mixture("lessons", hold_out=["exam"], leaks="allow", duplicates="keep"), root=root)
    assert manifest.sources[0].records == 2


texts = st.lists(st.sampled_from(WORDS[:6]), min_size=1, max_size=40).map(" ".join)


def indexed(held: list[str]) -> Texts:
    """An index of these texts. The id of a record is its number."""
    rows = [
        {"record_id": str(i), "corpus": "c", "split": "test", "text": t, "pair": None} for i, t in enumerate(held)
    ]
    schema = pa.schema([(name, pa.string()) for name in rows[0]])
    with duckdb.connect(":memory:") as connection:
        connection.register("records", pa.Table.from_pylist(rows, schema=schema))
        return Texts(connection)


@settings(deadline=None)
@given(st.lists(texts, min_size=1, max_size=8), st.lists(texts, min_size=1, max_size=8))
def test_the_join_finds_what_comparing_all_with_all_finds(held: list[str], asked: list[str]) -> None:
    index = indexed(held)
    for text in asked:
        best = max(jaccard(shingles(text, None), shingles(other, None)) for other in held)
        found = index.find(text, None)
        assert (found is not None) == (best >= NEAR)
        if found:
            other = held[int(found.record_id)]
            assert jaccard(shingles(text, None), shingles(other, None)) == best


def test_the_first_of_the_nearest_texts_is_named() -> None:
    words = WORDS[:40]
    held = [" ".join(text) for text in (changed(changed(words, 10), 25), changed(words, 20), changed(words, 30))]
    index, text = indexed(held), " ".join(words)
    assert index.find(text, None) == ("1", "c", "test", "near")
    assert index.find("A text of its own.", held[2].upper()) == ("2", "c", "test", "exact")
    assert index.find(text, held[0]) == ("0", "c", "test", "exact")
    assert index.find("A text of its own.", "Another text of its own.") is None


def test_an_equal_text_is_nearer_than_one_of_the_same_shingles() -> None:
    held = ["Hello,world is here.", "Hello, world is here."]
    assert indexed(held).find("hello, WORLD is here.", None) == ("1", "c", "test", "exact")


def test_another_text_of_the_same_or_nearly_the_same_shingles_is_near() -> None:
    assert indexed(["a b a b"]).find("a b a b a b", None) == ("0", "c", "test", "near")
    assert indexed(["a b a b"]).find("a b a b b", None) == ("0", "c", "test", "near"), "of just the threshold"
