"""Duplicates, leaks and contradictions: each has one row, in any order, and test records are never dropped."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from near_copies import PARITY, PLACES, WORDS, changed, record, sentence
from worlds import put_corpus

from pipelines.audit.contradictions import annotation
from pipelines.audit.duplicates import duplicates
from pipelines.audit.minhash import ROWS, band_schema, rows_of_a_band, signatures
from pipelines.audit.shingles import jaccard, shingles
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.arrow import records_to_batch
from ubert.schema.errors import UserError
from ubert.schema.record import Argument, Category, Event, Relation, Span, Split, content_hash

CHINESE = [chr(code) for code in range(0x4E00, 0x4E00 + 500)]

pytestmark = pytest.mark.usefixtures("local_ray")


def found(root: Path, view: str = "duplicates") -> list[dict[str, Any]]:
    return sql(root, f"SELECT * FROM {view}").to_pylist()


def matches(root: Path) -> dict[str, tuple[str, str]]:
    return {row["record_id"]: (row["keeper_id"], row["kind"]) for row in found(root)}


def test_shingles_are_pairs_of_tokens_with_both_ends() -> None:
    assert shingles("A b.", None) == {" a", "a b", "b .", ". "}
    assert shingles("a?!b", "c") == {" a", "a ?!", "?! b", "b \x1f", "\x1f c", "c "}


def test_the_same_text_asked_the_same_is_a_duplicate(tmp_path: Path) -> None:
    put_corpus(tmp_path, "b", [record("b", 1, "The  CAT sat."), record("b", 2, "Another thing entirely.")])
    put_corpus(tmp_path, "a", [record("a", 7, "the cat sat.", labels=[1])])
    manifest = duplicates(root=tmp_path)
    assert found(tmp_path) == [
        {
            "record_id": "b/train/1", "corpus": "b", "split": "train",
            "keeper_id": "a/train/7", "keeper_corpus": "a", "keeper_split": "train",
            "kind": "exact", "similarity": 1.0,
        }
    ]  # fmt: skip
    assert (manifest.counts["records"], manifest.counts["texts"], manifest.counts["exact"]) == (3, 2, 1)


def test_a_text_of_which_something_else_is_asked_is_no_duplicate(tmp_path: Path) -> None:
    questions: list[dict[str, Any]] = [
        {},
        {"task": "ner", "labels": [], "categories": PLACES},
        {"categories": [*PARITY, Category("prime", "label")]},
        {"categories": [Category("even", "label"), Category("uneven", "label")]},
        {"pair": "And a second text."},
    ]
    put_corpus(tmp_path, "a", [record("a", n, "The cat sat.", **asked) for n, asked in enumerate(questions)])
    duplicates(root=tmp_path)
    assert found(tmp_path) == []


def test_two_scores_of_one_text_are_no_duplicates(tmp_path: Path) -> None:
    scale = [Category("0", "value"), Category("1", "value")]
    asked = ["how positive", "how calm", "How positive"]
    records = [
        record("a", i, "The cat sat.", task="regression", labels=[], value=0.5, categories=scale, instruction=one)
        for i, one in enumerate(asked)
    ]
    put_corpus(tmp_path, "a", records)
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"a/train/2": ("a/train/0", "exact")}


def test_two_questions_on_one_page_are_no_duplicates(tmp_path: Path) -> None:
    page, ask = "The cat sat on the mat.", {"task": "qa", "labels": []}
    questions = ["Who sat?", "Where did it sit?", "who sat?"]
    records = [
        record("a", number, page, categories=[Category(question, "question")], **ask)
        for number, question in enumerate(questions)
    ]
    put_corpus(tmp_path, "a", records)
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"a/train/2": ("a/train/0", "exact")}


def test_categories_in_another_order_and_case_ask_the_same(tmp_path: Path) -> None:
    put_corpus(tmp_path, "a", [record("a", 1, "The cat sat.", labels=[1])])
    turned = [Category("Odd", "label"), Category("even", "label")]
    put_corpus(tmp_path, "b", [record("b", 1, "The cat sat.", labels=[0], categories=turned)])
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"b/train/1": ("a/train/1", "exact")}
    assert found(tmp_path, "contradictions") == []


def test_evaluation_splits_keep_their_records(tmp_path: Path) -> None:
    text = "The cat sat."
    put_corpus(tmp_path, "a", [record("a", 1, text), record("a", 2, text, split="validation")])
    put_corpus(tmp_path, "z", [record("z", 9, text, split="test"), record("z", 3, text)])
    duplicates(root=tmp_path)
    keeper = ("z/test/9", "exact")
    assert matches(tmp_path) == {"a/validation/2": keeper, "a/train/1": keeper, "z/train/3": keeper}


@pytest.mark.parametrize("words", [WORDS, CHINESE])
def test_near_texts_are_found_in_any_script(words: list[str], tmp_path: Path) -> None:
    between = " " if words is WORDS else ""
    draw = random.Random(0)
    texts = [sentence(draw, words) for _ in range(50)]
    one_changed, many_changed = list(texts[0]), list(texts[1])
    one_changed[12] = words[-1]
    many_changed[5::6] = words[-5:]
    records = [record("a", n, between.join(text)) for n, text in enumerate([*texts, one_changed, many_changed])]
    put_corpus(tmp_path, "a", records)
    duplicates(root=tmp_path)
    [row] = found(tmp_path)
    assert (row["record_id"], row["keeper_id"], row["kind"]) == ("a/train/50", "a/train/0", "near")
    similarity = jaccard(shingles(records[0].text, None), shingles(records[50].text, None))
    assert row["similarity"] == pytest.approx(similarity) == 29 / 33


def test_every_duplicate_is_near_to_its_own_keeper_and_keepers_are_none(tmp_path: Path) -> None:
    """A chain, each text near to the one before it: the ends are not alike, so not all of it may fall."""
    text = sentence(random.Random(1), size=40)
    chain = [text]
    for step in range(12):
        chain.append(changed(chain[-1], 3 * step + 1))
    records = [record("a", number, " ".join(words)) for number, words in enumerate(chain)]
    put_corpus(tmp_path, "a", records)
    duplicates(root=tmp_path)
    rows, sets = found(tmp_path), {one.record_id: shingles(one.text, None) for one in records}
    fallen = {row["record_id"] for row in rows}
    assert 0 < len(fallen) < len(records) - 1
    for row in rows:
        assert row["keeper_id"] not in fallen
        assert row["similarity"] == pytest.approx(jaccard(sets[row["record_id"]], sets[row["keeper_id"]]))
        assert row["similarity"] >= 0.8
    kept = [sets[one.record_id] for one in records if one.record_id not in fallen]
    assert all(jaccard(one, other) < 0.8 for i, one in enumerate(kept) for other in kept[:i])


def test_copies_of_a_near_duplicate_go_to_its_keeper(tmp_path: Path) -> None:
    text = sentence(random.Random(2))
    copy = " ".join(changed(text, 9))
    put_corpus(tmp_path, "a", [record("a", 1, " ".join(text)), record("a", 2, copy), record("a", 3, copy)])
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"a/train/2": ("a/train/1", "near"), "a/train/3": ("a/train/1", "near")}


def test_the_threshold_is_the_one_asked_for(tmp_path: Path) -> None:
    text = sentence(random.Random(3))
    put_corpus(tmp_path, "a", [record("a", 1, " ".join(text)), record("a", 2, " ".join(changed(text, 9)))])
    assert duplicates(root=tmp_path, near=0.9).counts["near"] == 0
    assert duplicates(root=tmp_path, near=0.85).counts["near"] == 1
    with pytest.raises(UserError, match=r"--near 1\.5: expected a similarity from 0\.3 to 1"):
        duplicates(root=tmp_path, near=1.5)


def test_hundreds_that_are_alike_leave_one(tmp_path: Path) -> None:
    """More than are compared with one another; what is not compared is counted."""
    text = sentence(random.Random(4), size=60)
    records = [record("a", number, " ".join([*text[:30], f"n{number}", *text[30:]])) for number in range(300)]
    put_corpus(tmp_path, "a", records)
    manifest = duplicates(root=tmp_path)
    assert {keeper for keeper, _ in matches(tmp_path).values()} == {"a/train/0"}
    assert manifest.counts["near"] == 299
    assert manifest.counts["left_out"] > 0


def test_evidence_does_not_depend_on_order_or_files(tmp_path: Path) -> None:
    """The same records, in other files and another order, by workers that end in any order."""
    draw = random.Random(5)
    texts = [sentence(draw) for _ in range(120)]
    texts += [changed(text, draw.randrange(30)) for text in texts[:40]] + texts[40:60]
    records = [
        record(("a", "b")[n % 2], n, " ".join(text), split=("train", "test")[n % 7 == 0], labels=[n // 100])
        for n, text in enumerate(texts)
    ]
    tables = []
    for way in ("forwards", "shuffled"):
        if way == "shuffled":
            draw.shuffle(records)
        root = tmp_path / way
        for name in ("a", "b") if way == "forwards" else ("b", "a"):
            put_corpus(root, name, [one for one in records if one.corpus == name])
            directory, manifest = Store(root).current("corpora", name)
            table = pq.read_table(directory / "part-0.parquet")
            size = 1000 if way == "forwards" else 17
            parts = [f"part-{i}.parquet" for i in range(-(-len(table) // size))]
            for i, part in enumerate(parts):
                pq.write_table(table.slice(i * size, size), directory / part)
            Store(root).publish("corpora", manifest.model_copy(update={"parts": parts}))
        duplicates(["b", "a"], root=root)
        directory = Store(root).current("audits", "duplicates")[0]
        tables.append([pq.read_table(path) for path in sorted(directory.glob("*.parquet"))])
    assert all(one.equals(other) for one, other in zip(*tables, strict=True))
    assert len(tables[0]) == 3
    assert all(len(table) > 0 for table in tables[0])


def test_what_was_found_already_is_left_as_it_is(tmp_path: Path) -> None:
    put_corpus(tmp_path, "a", [record("a", 1, "The cat sat."), record("a", 2, "The cat sat.")])
    first = duplicates(root=tmp_path)
    path = Store(tmp_path).current("audits", "duplicates")[0] / "matches.parquet"
    before = path.stat().st_mtime_ns
    assert duplicates(root=tmp_path) == first
    assert path.stat().st_mtime_ns == before
    put_corpus(tmp_path, "a", [record("a", 1, "The cat sat."), record("a", 3, "A dog sat.")])
    assert duplicates(root=tmp_path).fingerprint != first.fingerprint
    assert found(tmp_path) == []


def test_a_store_without_corpora_and_an_unknown_name_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no corpus in the store; run `ubert ingest` first"):
        duplicates(root=tmp_path)
    with pytest.raises(UserError, match="ubert ingest none"):
        duplicates(["none"], root=tmp_path)


def test_a_leak_is_found_whatever_is_asked(tmp_path: Path) -> None:
    near = sentence(random.Random(6))
    put_corpus(
        tmp_path,
        "a",
        [
            record("a", 1, "The cat sat."),
            record("a", 2, " ".join(near)),
            record("a", 3, "Nothing of the kind."),
            record("a", 4, "A dog lay.", split="validation"),
        ],
    )
    names = {"task": "ner", "labels": [], "categories": PLACES}
    put_corpus(
        tmp_path,
        "b",
        [
            record("b", 1, "the cat  sat.", split="test", **names),
            record("b", 2, " ".join(changed(near, 4)), split="validation", **names),
            record("b", 3, "A dog lay.", split="test", **names),
            record("b", 4, "A dog lay.", split="train", **names),
        ],
    )
    duplicates(root=tmp_path)
    rows = [(row["record_id"], row["evaluation_id"], row["kind"]) for row in found(tmp_path, "leaks")]
    assert rows == [
        ("a/validation/4", "b/test/3", "exact"),
        ("a/train/1", "b/test/1", "exact"),
        ("a/train/2", "b/validation/2", "near"),
        ("b/train/4", "b/test/3", "exact"),
        ("b/train/4", "a/validation/4", "exact"),
    ]
    assert matches(tmp_path) == {"b/train/4": ("b/test/3", "exact")}


RIVER = "The Vltava flows through Prague."
SPANS = [Span(4, 10, 1), Span(25, 31, 0)]


CONTRADICTIONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"labels": [0]}, {"labels": [1]}, "labels"),
    ({"task": "regression", "labels": [], "categories": (), "value": 1.0}, {"value": 2.0}, "value"),
    ({"task": "seq2seq", "labels": [], "categories": (), "target": "x"}, {"target": "y"}, "target"),
    ({"task": "ner", "labels": [], "categories": PLACES, "spans": SPANS}, {"spans": SPANS[:1]}, "spans"),
    (
        {"task": "ner", "labels": [], "categories": PLACES, "spans": SPANS},
        {"spans": [Span(4, 10, 0), SPANS[1]]},
        "spans",
    ),
    (
        {"task": "ner", "labels": [], "categories": PLACES, "spans": SPANS},
        {"spans": [Span(0, 10, 1), SPANS[1]]},
        "spans",
    ),
    (
        {
            "task": "relation",
            "labels": [],
            "categories": PLACES,
            "spans": SPANS,
            "relations": [Relation(0, 1, 2)],
        },
        {"relations": [Relation(1, 0, 2)]},
        "relations",
    ),
    (
        {
            "task": "event",
            "labels": [],
            "categories": PLACES,
            "spans": SPANS,
            "events": [Event(0, 0, [Argument(1, span=1)])],
        },
        {"events": [Event(0, 0, [])]},
        "events",
    ),
    (
        {
            "task": "relation",
            "labels": [],
            "categories": PLACES,
            "spans": SPANS,
            "relations": [Relation(0, 1, 2)],
        },
        {"spans": SPANS[:1], "relations": []},
        "spans, relations",
    ),
]


def test_the_same_text_with_other_annotations_is_a_contradiction(tmp_path: Path) -> None:
    here, there = [], []
    for n, (one, other, _) in enumerate(CONTRADICTIONS):
        text = " ".join([RIVER, *sentence(random.Random(n))])
        here += [record("a", 2 * n, text, **one), record("a", 2 * n + 1, text, **one)]
        there.append(record("b", n, text, **{**one, **other}))
    put_corpus(tmp_path, "a", here)
    put_corpus(tmp_path, "b", there)
    manifest = duplicates(root=tmp_path)
    rows = {row["record_id"]: row for row in found(tmp_path, "contradictions")}
    assert {name: (row["keeper_id"], row["differs"]) for name, row in rows.items()} == {
        f"b/train/{n}": (f"a/train/{2 * n}", differs) for n, (_, _, differs) in enumerate(CONTRADICTIONS)
    }
    for row in rows.values():
        assert json.loads(row["annotation"]) != json.loads(row["keeper_annotation"])
    assert manifest.counts["contradictions"] == len(CONTRADICTIONS)


def test_case_space_and_order_make_no_contradiction(tmp_path: Path) -> None:
    there = record(
        "a", 1, RIVER, task="relation", labels=[], categories=PLACES, spans=SPANS, relations=[Relation(0, 1, 2)]
    )
    turned = [PLACES[2], PLACES[1], PLACES[0]]
    spans = [Span(27, 33, 2), Span(5, 11, 1)]
    text = "THE  Vltava flows  through Prague."
    here = record(
        "b", 1, text, task="relation", labels=[], categories=turned, spans=spans, relations=[Relation(1, 0, 0)]
    )
    assert annotation(here) == annotation(there)
    put_corpus(tmp_path, "a", [there])
    put_corpus(tmp_path, "b", [here])
    assert duplicates(root=tmp_path).counts["contradictions"] == 0
    assert len(found(tmp_path)) == 1


texts_ = st.lists(st.sampled_from([*WORDS[:6], "東", "京", "!", "É"]), min_size=1, max_size=8).map(" ".join)


@settings(max_examples=15)
@given(texts=st.lists(texts_, min_size=1, max_size=12), copies=st.integers(1, 3), seed=st.randoms())
def test_of_repeated_texts_one_each_is_kept(
    texts: list[str], copies: int, seed: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    records = [
        record("a", number, text, split=seed.choice(["train", "test", "validation"]))
        for number, text in enumerate(texts * copies)
    ]
    put_corpus(root, "a", records)
    manifest = duplicates(root=root, near=1)
    fallen = matches(root)
    kept = [one for one in records if one.record_id not in fallen]
    contents = {content_hash(one.text, None) for one in records}
    exact = [one for one, (_, kind) in fallen.items() if kind == "exact"]
    assert len(kept) == len({content_hash(one.text, None) for one in kept})
    assert all(
        jaccard(shingles(a.text, None), shingles(b.text, None)) < 1 for a in kept for b in kept if a is not b
    )
    assert manifest.counts["texts"] == len(contents)
    assert len(kept) + manifest.counts["exact"] + manifest.counts["near"] == len(records)
    assert len(exact) == manifest.counts["exact"]
    ranks = {one.record_id: ["test", "validation", "train"].index(one.split) for one in records}
    assert all(ranks[keeper] <= ranks[one] for one, (keeper, _) in fallen.items())


@pytest.mark.parametrize("near", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_let_at_most_one_near_pair_in_a_hundred_slip(near: float) -> None:
    rows = rows_of_a_band(near)
    bands = len(band_schema(near)) - 1
    assert rows * bands <= ROWS
    assert 1 - (1 - near**rows) ** bands >= 0.99


def test_signatures_of_pairs_at_the_threshold_share_a_band(tmp_path: Path) -> None:
    draw = random.Random(7)
    texts = [sentence(draw, size=39) for _ in range(400)]
    copies = [changed(changed(text, 10), 25) for text in texts]  # 36 of 44 shingles: 0.818
    records = [record("a", n, " ".join(words)) for n, words in enumerate([*texts, *copies])]
    pq.write_table(pa.Table.from_batches([records_to_batch(records)]), tmp_path / "part.parquet")
    bands = signatures(tmp_path / "part.parquet", 0.8).drop_columns("content_hash").to_pylist()
    assert len(bands) == len(records)
    shared = [
        any(one[band] == other[band] for band in one) for one, other in zip(bands[:400], bands[400:], strict=True)
    ]
    others = [any(one[band] == other[band] for band in one) for one, other in itertools.pairwise(bands)]
    assert sum(shared) >= 396
    assert sum(others) <= 4


def test_prompts_differ_by_kinds_and_ends_of_categories_and_not_by_case_or_instruction(tmp_path: Path) -> None:
    asked = [
        Category("at", "relation", head="city", tail="river"),
        Category("at", "relation", head="river", tail="city"),
        Category("at", "relation", head="city"),
        Category("at", "relation", head="river"),
        Category("at", "relation"),
        Category("at", "entity"),
        Category("at", "role", event="flood"),
        Category("at", "role", event="drought"),
        Category("At", "relation", head="City", tail="River"),
        Category("at", "role", event="Flood"),
    ]
    records = [
        record("a", i, RIVER, task="relation", labels=[], categories=[one], instruction=f"instruction {i}")
        for i, one in enumerate(asked)
    ]
    put_corpus(tmp_path, "a", records)
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"a/train/8": ("a/train/0", "exact"), "a/train/9": ("a/train/6", "exact")}


def test_without_categories_another_instruction_asks_something_else(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"task": "seq2seq", "labels": [], "categories": (), "target": "x"}
    instructions = ["shorten", "translate", "Shorten"]
    records = [record("a", i, RIVER, instruction=one, **asked) for i, one in enumerate(instructions)]
    put_corpus(tmp_path, "a", records)
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"a/train/2": ("a/train/0", "exact")}


def test_a_text_with_another_pair_is_another_text(tmp_path: Path) -> None:
    pairs = ["Why did it sit there?", "Which of them was it?", None]
    put_corpus(tmp_path, "a", [record("a", i, "The cat sat.", pair=pair) for i, pair in enumerate(pairs)])
    counts = duplicates(root=tmp_path).counts
    assert (counts["records"], counts["texts"], counts["exact"], counts["near"]) == (3, 3, 0, 0)


def test_the_least_threshold_is_accepted(tmp_path: Path) -> None:
    text = sentence(random.Random(3))
    put_corpus(tmp_path, "a", [record("a", 1, " ".join(text)), record("a", 2, " ".join(changed(text, 9)))])
    assert duplicates(root=tmp_path, near=0.3).counts["near"] == 1
    with pytest.raises(UserError, match=r"--near 0\.29: expected a similarity from 0\.3 to 1"):
        duplicates(root=tmp_path, near=0.29)


def test_comparisons_that_are_skipped_are_counted_for_each_band(tmp_path: Path) -> None:
    """Texts of the same shingles share all bands. Each is compared with the first 64 of those before it."""
    put_corpus(tmp_path, "a", [record("a", number, "a b " * (number + 2)) for number in range(67)])
    counts = duplicates(root=tmp_path).counts
    skipped = (66 - 1 - 64) + (67 - 1 - 64)
    bands = len(band_schema(0.8)) - 1
    assert (counts["near"], counts["candidates"]) == (66, 67 * 66 // 2 - skipped)
    assert counts["left_out"] == bands * skipped


def test_a_leak_names_the_nearest_record_of_each_split(tmp_path: Path) -> None:
    text = sentence(random.Random(8), size=40)
    near = changed(text, 10)
    far = changed(near, 25)
    put_corpus(tmp_path, "a", [record("a", 1, " ".join(text))])
    tested: list[tuple[Split, list[str]]] = [("test", far), ("test", near), ("validation", far)]
    records = [record("b", i, " ".join(words), split=split) for i, (split, words) in enumerate(tested)]
    put_corpus(tmp_path, "c", [record("c", 9, " ".join(near), split="test")])
    put_corpus(tmp_path, "b", records)
    duplicates(root=tmp_path)
    own = shingles(" ".join(text), None)
    to_near, to_far = (jaccard(own, shingles(" ".join(words), None)) for words in (near, far))
    assert 0.8 < to_far < to_near
    rows = found(tmp_path, "leaks")
    assert [(row["record_id"], row["evaluation_id"], row["kind"], row["similarity"]) for row in rows] == [
        ("b/validation/2", "b/test/0", "exact", 1.0),
        ("b/validation/2", "c/test/9", "near", pytest.approx(to_near)),
        ("a/train/1", "b/test/1", "near", pytest.approx(to_near)),
        ("a/train/1", "c/test/9", "near", pytest.approx(to_near)),
        ("a/train/1", "b/validation/2", "near", pytest.approx(to_far)),
    ]


def test_a_contradiction_has_both_annotations(tmp_path: Path) -> None:
    put_corpus(tmp_path, "a", [record("a", 1, RIVER, split="test"), record("a", 2, RIVER, labels=[1])])
    duplicates(root=tmp_path)
    assert found(tmp_path, "contradictions") == [
        {
            "record_id": "a/train/2", "corpus": "a", "split": "train",
            "keeper_id": "a/test/1", "keeper_corpus": "a", "keeper_split": "test",
            "task": "classification", "differs": "labels",
            "annotation": '{"labels": ["odd"]}', "keeper_annotation": '{"labels": ["even"]}',
        }
    ]  # fmt: skip


def test_texts_of_just_the_threshold_are_near(tmp_path: Path) -> None:
    """Four of five shingles are shared."""
    texts = ["east west east west", "east west east west west"]
    assert jaccard(*(shingles(text, None) for text in texts)) == 0.8
    put_corpus(tmp_path, "a", [record("a", i, text) for i, text in enumerate(texts)])
    duplicates(root=tmp_path)
    assert matches(tmp_path) == {"a/train/1": ("a/train/0", "near")}
