"""Blocks of a sentence and its spans; a sentence may have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.sources import RawRow, Slice
from pipelines.sources.annotation_formats.pipe_spans import Options, read
from ubert.schema.record import Reject


def rows(folder: Path, content: bytes) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    return list(read(Slice(str(folder), "x", 0, len(content), 1, "utf-8", "0" * 64), Options()))


def test_spans_are_words_of_their_sentence_and_may_be_none(tmp_path: Path) -> None:
    found = rows(tmp_path, b"a b c\n0,1 G#x|0,3 y\n\n\nd e\n\n\nf\n")
    assert found == [
        RawRow(
            1,
            "x:1",
            {
                "sentence": "a b c",
                "spans": [{"start": 0, "end": 1, "label": "G#x"}, {"start": 0, "end": 3, "label": "y"}],
            },
        ),
        RawRow(5, "x:5", {"sentence": "d e", "spans": []}),
        RawRow(8, "x:8", {"sentence": "f", "spans": []}),
    ]


@pytest.mark.parametrize(
    "block",
    [
        b"a\nb\n",
        b"a\n0,1 x\n0,1 x\n",
        b"a\n0,1\n",
        b"a\n0,1 x|\n",
        b"a\n-1,1 x\n",
        b"a\n0," + b"9" * 5000 + b" x\n",
    ],
)
def test_a_broken_block_is_a_reject_and_the_rest_is_read(tmp_path: Path, block: bytes) -> None:
    bad, good = rows(tmp_path, block + b"\nb\n0,1 y\n")
    assert isinstance(bad, Reject) and (bad.line, bad.reason) == (1, "not a sentence and spans")
    assert isinstance(good, RawRow) and good.content["spans"] == [{"start": 0, "end": 1, "label": "y"}]


def test_a_line_of_another_encoding_is_a_reject(tmp_path: Path) -> None:
    (bad,) = rows(tmp_path, b"a \xff\n0,1 x\n")
    assert isinstance(bad, Reject) and (bad.line, bad.reason) == (1, "wrong encoding")
