"""Tags of tokens to spans, in each scheme."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.mapping.refused import RefusedError
from pipelines.mapping.tags import tagged_spans


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
        ("IO", "", []),
    ],
)
def test_spans_of_each_scheme(scheme: Any, tags: str, spans: list[tuple[int, int, str]]) -> None:
    assert tagged_spans(tags.split(), scheme) == spans


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("BIO", "O I-a"),
        ("BIO", "B-a I-b"),
        ("BIO", "B"),
        ("BIO", "S-a"),
        ("IOB", "E-a"),
        ("BIOES", "B-a O"),
        ("BIOES", "B-a"),
        ("BIOES", "B-a E-b"),
        ("BIOES", "B-a S-a"),
        ("BIOES", "I-a E-a"),
        ("BIOES", "M-a"),
        ("BMES", "B-a I-a E-a"),
    ],
)
def test_tags_out_of_order_are_refused(scheme: Any, tags: str) -> None:
    with pytest.raises(RefusedError):
        tagged_spans(tags.split(), scheme)


@pytest.mark.parametrize(
    ("scheme", "tags", "words"),
    [
        ("BIO", "O X-a", ["'X-a' at token 1 begins with none of B-, I- of BIO", "begin with X"]),
        ("BIO", "B-a E-a", ["begin with B, E; the tags fit `scheme: BIOES`"]),
        ("BIO", "B-a M-a E-a", ["the tags fit `scheme: BMES`"]),
        ("BIO", "O city", ["'city' at token 1", "the tags fit `scheme: IO`"]),
        ("BIOES", "B-a M-a", ["B-, I-, E-, S- of BIOES", "the tags fit `scheme: BMES`"]),
    ],
)
def test_an_unknown_prefix_names_those_there_are(scheme: Any, tags: str, words: list[str]) -> None:
    with pytest.raises(RefusedError) as error:
        tagged_spans(tags.split(), scheme)
    assert error.value.reason == "unknown tag"
    assert not [each for each in words if each not in error.value.detail], error.value.detail


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
