"""Spans from the tags of tokens, in each scheme."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.mapping.annotations.tags import tagged_spans
from pipelines.mapping.refused import RefusedError


@pytest.mark.parametrize(
    ("scheme", "tags", "spans"),
    [
        ("BIO", "B-a I-a B-a O B-b", [(0, 2, "a"), (2, 3, "a"), (4, 5, "b")]),
        ("BIO", "B-a-x I-a-x", [(0, 2, "a-x")]),
        ("IOB", "I-a I-a B-a I-b O I-b", [(0, 2, "a"), (2, 3, "a"), (3, 4, "b"), (5, 6, "b")]),
        ("BIOES", "B-a I-a E-a S-a B-b E-b", [(0, 3, "a"), (3, 4, "a"), (4, 6, "b")]),
        ("BMES", "S-a B-a M-a M-a E-a O", [(0, 1, "a"), (1, 5, "a")]),
        ("IO", "I-a I-a I-b O I-b", [(0, 2, "a"), (2, 3, "b"), (4, 5, "b")]),
        ("IO", "a a O b-x", [(0, 2, "a"), (3, 4, "b-x")]),
        ("IO", "a b b", [(0, 1, "a"), (1, 3, "b")]),
        ("IO", "", []),
    ],
)
def test_spans_of_each_scheme(scheme: Any, tags: str, spans: list[tuple[int, int, str]]) -> None:
    assert tagged_spans(tags.split(), scheme) == spans


@pytest.mark.parametrize(
    ("scheme", "tags", "detail"),
    [
        ("BIO", "O I-a", "'I-a' at token 1 cannot begin a span in BIO"),
        ("BIO", "B-a I-b", "'I-b' at token 1 cannot begin a span in BIO"),
        ("BIOES", "B-a O", "'O' at token 1 comes after an unfinished 'a'"),
        ("BIOES", "B-a", "'the end' at token 1 comes after an unfinished 'a'"),
        ("BIOES", "B-a E-b-a", "'E-b-a' at token 1 comes after an unfinished 'a'"),
        ("BIOES", "B-a S-a", "'S-a' at token 1 comes after an unfinished 'a'"),
        ("BIOES", "I-a E-a", "'I-a' at token 0 cannot begin a span in BIOES"),
        ("BIO", "B-", "'B-' at token 0 cannot begin a span in BIO"),
        ("BIOES", "S-", "'S-' at token 0 cannot begin a span in BIOES"),
    ],
)
def test_tags_out_of_order_are_refused(scheme: Any, tags: str, detail: str) -> None:
    with pytest.raises(RefusedError) as error:
        tagged_spans(tags.split(), scheme)
    assert (error.value.reason, error.value.detail) == ("tags out of order", detail)


@pytest.mark.parametrize(
    ("scheme", "tags", "wrong", "there"),
    [
        ("BIO", "O X-a", "'X-a' at token 1 begins with none of B-, I- of BIO", "X"),
        ("BIO", "B-a-b city", "'city' at token 1 begins with none of B-, I- of BIO", "B, city"),
        ("BIO", "B", "'B' at token 0 begins with none of B-, I- of BIO", "B; the tags fit `scheme: IO`"),
        ("BIO", "S-a", "'S-a' at token 0 begins with none of B-, I- of BIO", "S; the tags fit `scheme: BIOES`"),
        (
            "BIO",
            "B-a E-a",
            "'E-a' at token 1 begins with none of B-, I- of BIO",
            "B, E; the tags fit `scheme: BIOES`",
        ),
        (
            "BIO",
            "O city",
            "'city' at token 1 begins with none of B-, I- of BIO",
            "city; the tags fit `scheme: IO`",
        ),
        ("IOB", "M-a", "'M-a' at token 0 begins with none of B-, I- of IOB", "M; the tags fit `scheme: BMES`"),
        (
            "BIOES",
            "B-a M-a",
            "'M-a' at token 1 begins with none of B-, I-, E-, S- of BIOES",
            "B, M; the tags fit `scheme: BMES`",
        ),
        (
            "BMES",
            "B-a I-a",
            "'I-a' at token 1 begins with none of B-, M-, E-, S- of BMES",
            "B, I; the tags fit `scheme: BIO`",
        ),
    ],
)
def test_an_unknown_prefix_names_those_there_are(scheme: Any, tags: str, wrong: str, there: str) -> None:
    with pytest.raises(RefusedError) as error:
        tagged_spans(tags.split(), scheme)
    assert error.value.reason == "unknown tag"
    assert error.value.detail == f"{wrong}; the row's tags begin with {there}"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("ab")), max_size=6), st.data())
def test_spans_written_as_tags_are_read_back(runs: list[tuple[int, int, str]], data: st.DataObject) -> None:
    scheme = data.draw(st.sampled_from(["BIO", "BIOES", "BMES"]))
    inside = "M" if scheme == "BMES" else "I"
    tags: list[str] = []
    spans = []
    for gap, length, label in runs:
        tags += ["O"] * gap
        spans.append((len(tags), len(tags) + length, label))
        if scheme == "BIO":
            marks = "B" + inside * (length - 1)
        else:
            marks = "S" if length == 1 else "B" + inside * (length - 2) + "E"
        tags += [f"{mark}-{label}" for mark in marks]
    assert tagged_spans(tags, scheme) == spans
