"""Derived columns of a corpus, and the conversion of rows back to records."""

from __future__ import annotations

from handmade import record
from msgspec.structs import replace

from ubert.schema.arrow import batch_to_records, mismatches_to_batch, records_to_batch, rejects_to_batch
from ubert.schema.record import (
    LONGEST_RAW,
    Argument,
    Category,
    Event,
    Mismatch,
    Misplaced,
    Record,
    Reject,
    Relation,
    Source,
    Span,
)

KINDS = (
    Category("person", "entity"),
    Category("lives in", "relation", "person", "place"),
    Category("attacker", "role", event="attack"),
)
WHOLE = Record(
    record_id="c/train/1",
    corpus="c",
    split="train",
    language="en",
    task="event",
    instruction="one",
    text="Ann left",
    source=Source("a", 3, "1" * 64),
    pair="",
    categories=KINDS,
    labels=[1, 0],
    value=0.5,
    target="t",
    spans=[Span(0, 3, 0, group=1, kb_id="Q1"), Span(0, 1, None, "pair")],
    relations=[Relation(0, 1, 2)],
    events=[Event(2), Event(1, 0, [Argument(2, span=1), Argument(0, event=0)])],
)
BARE = Record("d/test/2", "d", "test", "de", "ner", "two", "Bob", Source("b", 4, "2" * 64), None, KINDS[:1])


def test_characters_are_those_of_both_texts() -> None:
    records = [
        record("c", 0, "ner", "Ann", ["who"]),
        record("c", 1, "pair", "Ann left", ["yes"], pair="She is gone"),
    ]
    assert records_to_batch(records)["characters"].to_pylist() == [3, 19]


def test_records_beside_others_come_back_with_all_their_fields() -> None:
    rows = [WHOLE, BARE, replace(BARE, record_id="d/test/3", categories=KINDS[:1]), replace(WHOLE, corpus="e")]
    found = list(batch_to_records(records_to_batch(rows)))
    assert found == rows
    assert found[1].categories is found[2].categories


def test_the_hash_of_a_text_is_kept_beside_that_of_its_pair() -> None:
    alone, both, blank = (replace(BARE, pair=pair) for pair in (None, "She left", ""))
    batch = records_to_batch([alone, both, blank])
    content = batch["content_hash"].to_pylist()
    assert len(set(content)) == 3
    assert batch["text_hash"].to_pylist() == [None, content[0], content[0]]


def test_a_rejected_row_is_cut_only_beyond_the_longest() -> None:
    rejects = [Reject("f", 1, "why", "how", "x" * size) for size in (LONGEST_RAW, LONGEST_RAW + 1)]
    raw = rejects_to_batch(rejects, "c", "train")["raw"].to_pylist()
    assert raw[0] == "x" * LONGEST_RAW and raw[1].startswith("x" * LONGEST_RAW + " [... 16,385 ")


def test_a_mismatch_keeps_its_place_and_escapes_half_of_a_surrogate_pair() -> None:
    mismatches = [
        Misplaced("f", 3, "f:3", Mismatch("mention", "a\ud800", "w", None, None, 0, None)),
        Misplaced("g", 4, "g#1", Mismatch("trigger", "b", "v", 5, "\udfffc", 2, 7)),
    ]
    names = ("corpus", "split", "path", "line", "locator", "kind", "mention", "words", "start", "there", "places")
    assert mismatches_to_batch(mismatches, "c", "test").to_pylist() == [
        dict(zip((*names, "found"), row, strict=True))
        for row in (
            ("c", "test", "f", 3, "f:3", "mention", "a\\ud800", "w", None, None, 0, None),
            ("c", "test", "g", 4, "g#1", "trigger", "b", "v", 5, "\\udfffc", 2, 7),
        )
    ]
