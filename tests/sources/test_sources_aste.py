"""Triplets are parsed as literals and never evaluated as code."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.sources import RawRow, Slice
from pipelines.sources.annotation_formats.aste import Options, read
from ubert.schema.record import Reject


def rows(folder: Path, content: bytes) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    return list(read(Slice(str(folder), "x", 0, len(content), 1, "utf-8", "0" * 64), Options()))


def test_triplets_are_word_numbers_and_a_sentiment(tmp_path: Path) -> None:
    found = rows(tmp_path, b"a b #### c .####[([0, 1], [3], 'POS'), ([3], [0], 'NEG')]\n \t\nd .####[]\n")
    assert found == [
        RawRow(
            1,
            "x:1",
            {
                "sentence": "a b #### c .",
                "triplets": [
                    {"aspect": [0, 1], "opinion": [3], "sentiment": "POS"},
                    {"aspect": [3], "opinion": [0], "sentiment": "NEG"},
                ],
            },
        ),
        RawRow(3, "x:3", {"sentence": "d .", "triplets": []}),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"a b",
        b"a####",
        b"a####__import__('os').getcwd()",
        b"a####[([0], [1])]",
        b"a####[([0], ['1'], 'POS')]",
        b"a####[([True], [1], 'POS')]",
        b"a####{'a': 1}",
        b"a####[([0], [1], 2)]",
        b"a####" + b"[" * 100_000,
        b"a####[([" + b"9" * 5000 + b"], [1], 'POS')]",
        b"\xff####[]",
    ],
)
def test_what_is_no_list_of_triplets_is_a_reject_and_the_rest_is_read(tmp_path: Path, line: bytes) -> None:
    bad, good = rows(tmp_path, line + b"\nb .####[]\n")
    assert isinstance(bad, Reject) and bad.line == 1
    assert isinstance(good, RawRow) and good.line == 2
