"""CoNLL-2012 documents: brackets are mentions, and mentions with the same number form a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources import RawRow, Slice
from pipelines.sources.annotation_formats.conll2012 import Options, read
from ubert.schema.record import Reject

BEGIN, END = b"#begin document (a); part 000\n", b"#end document\n"


def rows(folder: Path, content: bytes) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    return list(read(Slice(str(folder), "x", 0, len(content), 1, "utf-8", "0" * 64), Options()))


def document(*marks: str) -> bytes:
    tokens = [f"a 0 {i} w{i} - {mark}\n" if mark else "\n" for i, mark in enumerate(marks)]
    return BEGIN + "".join(tokens).encode() + END


def test_a_document_is_its_sentences_and_clusters(tmp_path: Path) -> None:
    first, second = rows(tmp_path, document("(0)", "-", "", "(1|(0)", "1)", "", "") + b"\n" + document("-"))
    assert first == RawRow(
        1,
        "x:1",
        {
            "document": "(a); part 000",
            "sentences": [["w0", "w1"], ["w3", "w4"]],
            "clusters": {"0": [[0, 1], [2, 3]], "1": [[2, 4]]},
        },
    )
    assert isinstance(second, RawRow)
    assert (second.line, second.content["clusters"]) == (11, {})


def test_columns_parted_by_tabs_may_be_empty(tmp_path: Path) -> None:
    lines = b"a\t0\t0\tNew York\t_\t(0)\na\t0\t1\tis\t_\t\n"
    (row,) = rows(tmp_path, BEGIN + lines + END)
    assert isinstance(row, RawRow)
    assert row.content["sentences"] == [["New York", "is"]]


def test_a_mention_within_another_of_its_cluster_ends_first(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, document("(7", "(7", "7)", "7)"))
    assert isinstance(row, RawRow) and row.content["clusters"] == {"7": [[1, 3], [0, 4]]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (document("(0"), "mention without an end"),
        (document("0)"), "mention without a start"),
        (document("(0)|"), "bad brackets"),
        (document("(a)"), "bad brackets"),
        (BEGIN + b"a 0 0 w\n" + END, "wrong column count"),
        (BEGIN + b"a\t0\t0\t\xff\t-\n" + END, "wrong encoding"),
        (BEGIN + b"a 0 0 w - -\n", "not a document"),
        (b"a 0 0 w - -\n" + END, "not a document"),
    ],
)
def test_a_broken_document_is_a_reject_and_the_rest_is_read(tmp_path: Path, content: bytes, reason: str) -> None:
    bad, good = rows(tmp_path, content + document("(0)"))
    assert isinstance(bad, Reject) and (bad.line, bad.reason) == (1, reason)
    assert isinstance(good, RawRow) and good.content["clusters"] == {"0": [[0, 1]]}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=6))
def test_nested_mentions_come_back(
    tmp_path_factory: pytest.TempPathFactory, given_: list[tuple[int, int]]
) -> None:
    """Each of its own cluster, so that brackets can cross."""
    marks: list[list[str]] = [[] for _ in range(9)]
    for i, (start, length) in enumerate(given_):
        if length == 1:
            marks[start].append(f"({i})")
        else:
            marks[start].append(f"({i}")
            marks[start + length - 1].append(f"{i})")
    (row,) = rows(tmp_path_factory.mktemp("x"), document(*("|".join(mark) or "-" for mark in marks)))
    assert isinstance(row, RawRow)
    assert row.content["clusters"] == {str(i): [[s, s + n]] for i, (s, n) in enumerate(given_)}


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (document("-", "", "0)"), "line 5: "),
        (document("-", "(a)"), "line 4: "),
        (BEGIN + b"\na 0 0 w\n" + END, "line 4: expected 5 columns or more, got 4"),
        (BEGIN + b"a 0 0 w - -\na 0 1 \xff - -\n" + END, "line 4: byte 49 "),
        (document("(3)", "(1", "-"), "cluster 1 is not closed"),
    ],
)
def test_a_broken_document_says_what_is_wrong_where(tmp_path: Path, content: bytes, detail: str) -> None:
    (bad,) = rows(tmp_path, b"\n" + content)
    assert isinstance(bad, Reject) and bad.line == 2 and detail in bad.detail


def test_a_token_may_have_five_columns_and_no_mention(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, BEGIN + b"a 0 0 w (0)\na 0 1 v _\n" + END)
    assert isinstance(row, RawRow)
    assert (row.content["sentences"], row.content["clusters"]) == ([["w", "v"]], {"0": [[0, 1]]})
