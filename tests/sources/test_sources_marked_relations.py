"""Sentences with two marked mentions: the marks are removed from the text and become offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.sources import RawRow, Slice
from pipelines.sources.annotation_formats.marked_relations import Options, read
from ubert.schema.record import Reject

GOOD = b'7\t"The <e1>screws</e1> of the <e2>old chair</e2>."\r\nComponent-Whole(e2,e1)\r\nComment: a <b>\r\n\r\n'


def rows(folder: Path, content: bytes) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    return list(read(Slice(str(folder), "x", 0, len(content), 1, "utf-8", "0" * 64), Options()))


def test_a_block_is_a_sentence_its_mentions_and_their_relation(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, GOOD)
    assert isinstance(row, RawRow)
    assert (row.line, row.locator) == (1, "x:1")
    assert row.content == {
        "id": "7",
        "marked": "The <e1>screws</e1> of the <e2>old chair</e2>.",
        "text": "The screws of the old chair.",
        "label": "Component-Whole(e2,e1)",
        "comment": "a <b>",
        "mentions": [{"id": "e1", "start": 4, "end": 10}, {"id": "e2", "start": 18, "end": 27}],
        "relations": [{"label": "Component-Whole", "head": "e2", "tail": "e1"}],
    }


def test_a_label_without_a_direction_is_no_relation(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, b'1\t"<e2>b</e2> <e1>a</e1>"\nOther\n')
    assert isinstance(row, RawRow)
    assert (row.content["label"], row.content["relations"], row.content["comment"]) == ("Other", [], "")
    assert [mention["start"] for mention in row.content["mentions"]] == [2, 0]


@pytest.mark.parametrize(
    "block",
    [
        b'1\t"a <e1>b</e1>"\nOther\nComment:\n',
        b'1\t"<e1>a</e1> <e1>a</e1> <e2>b</e2>"\nOther\n',
        b'1\t"</e1>a<e1> <e2>b</e2>"\nOther\n',
        b'1\t"<e1></e1> <e2>b</e2>"\nOther\n',
        b"1\t<e1>a</e1> <e2>b</e2>\nOther\n",
        b'1\t"<e1>a</e1> <e2>b</e2>"\n',
        b'1\t"<e1>a</e1> <e2>b</e2>"\nPart(e1,e3)\n',
        b'1\t"<e1>a</e1> <e2>b</e2>"\nOther\nno comment\n',
        b'1\t"<e1>a</e1> <e2>b</e2>"\nOther\nComment:\n2\n',
        b'1\t"<e1>a</e1> <e2>\xff</e2>"\nOther\n',
    ],
)
def test_a_broken_block_is_a_reject_and_the_rest_is_read(tmp_path: Path, block: bytes) -> None:
    bad, good = rows(tmp_path, block + b"\n" + GOOD)
    assert isinstance(bad, Reject) and bad.line == 1 and "1\t" in bad.raw
    assert isinstance(good, RawRow) and good.content["id"] == "7"
