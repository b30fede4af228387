"""What the rows of a corpus derive from its records."""

from __future__ import annotations

from handmade import record

from ubert.schema.arrow import records_to_batch


def test_characters_are_those_of_both_texts() -> None:
    records = [
        record("c", 0, "ner", "Ann", ["who"]),
        record("c", 1, "pair", "Ann left", ["yes"], pair="She is gone"),
    ]
    assert records_to_batch(records)["characters"].to_pylist() == [3, 19]
