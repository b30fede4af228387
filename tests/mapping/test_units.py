"""Offsets that count UTF-16 units or bytes lead to the same mentions as those of characters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_annotations import kept, run, words
from test_token_relations import MAP, ROW, relations

from ubert.schema.record import Record, Reject

TEXT = "👍 Zoë met 👩‍💻 Ann, then Bob."
MENTIONS = ["👍", "Zoë", "👩‍💻 Ann", "Bob"]


def size(text: str, unit: str) -> int:
    """The length of a text in a unit."""
    coded = text.encode("utf-16-le" if unit == "utf16" else "utf-8", "surrogatepass")
    return len(coded) // 2 if unit == "utf16" else len(coded) if unit == "byte" else len(text)


def ends(text: str, word: str, unit: str) -> tuple[int, int]:
    start = size(text[: text.index(word)], unit)
    return start, start + size(word, unit)


@pytest.mark.parametrize("unit", ["character", "utf16", "byte"])
@pytest.mark.parametrize(
    ("place", "given"),
    [
        ({"start": "s", "end": "e"}, {}),
        ({"start": "s", "end": "e", "words": "w"}, {}),
        ({"start": "s", "end": "l"}, {"end": "inclusive"}),
        ({"start": "s", "words": "w"}, {}),
        ({"fragments": "f"}, {}),
        ({"start": "ds", "words": "w"}, {"base": "document"}),
    ],
)
def test_offsets_may_count_utf16_units_or_bytes(unit: str, place: Any, given: Any) -> None:
    items = []
    for word in MENTIONS:
        start, end = ends(TEXT, word, unit)
        items.append({"s": start, "e": end, "l": end - 1, "w": word, "f": [[start, end]], "ds": start + 1_000})
    fields = {"text": "t", "spans": {"each": "m[]", **place, "as": "P"}, "offsets": {"unit": unit, **given}}
    assert words(kept("ner", fields, {"t": TEXT, "m": items})) == MENTIONS


@given(st.text(alphabet="aé中👍\n ", min_size=1), st.data())
def test_any_offsets_lead_to_their_characters(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    for unit in ("utf16", "byte"):
        row = {"t": f"{text}.", "s": size(text[:start], unit), "e": size(text[:end], unit)}
        fields = {"text": "t", "spans": {"start": "s", "end": "e", "as": "P"}, "offsets": {"unit": unit}}
        made, _ = run("ner", fields, row)
        if isinstance(made, Record):
            assert (made.spans[0].start, made.spans[0].end) == (start, end)
        else:  # a mention of white space
            assert not text[start:end].strip()


@pytest.mark.parametrize(
    ("unit", "start", "end", "reason", "detail"),
    [
        (
            "utf16",
            1,
            6,
            "offset inside a character",
            "at [[1, 6]] of a text of 11 UTF-16 units: 1 is not the start",
        ),
        ("byte", 5, 8, "offset inside a character", "at [[5, 8]] of a text of 14 bytes: 8 is not the start"),
        ("utf16", 3, 12, "span outside its text", "mention 0 at [[3, 12]] of a text of 11 UTF-16 units"),
        ("byte", -1, 4, "span outside its text", "mention 0 at [[-1, 4]] of a text of 14 bytes"),
        ("byte", 9, 9, "span outside its text", "of a text of 14 bytes"),
    ],
)
def test_offsets_that_lead_to_no_characters_reject_their_row(
    unit: str, start: int, end: int, reason: str, detail: str
) -> None:
    fields = {"text": "t", "spans": {"start": "s", "end": "e", "as": "P"}, "offsets": {"unit": unit}}
    made, _ = run("ner", fields, {"t": "👍 Zoë left", "s": start, "e": end})
    assert isinstance(made, Reject) and made.reason == reason and detail in made.detail, made


def test_words_whose_offset_is_inside_a_character_are_sought_as_the_spec_allows() -> None:
    fields: Any = {"text": "t", "spans": {"start": "s", "words": "w", "as": "P"}}
    row = {"t": "👍 Zoë left", "s": 1, "w": "Zoë"}
    made, _ = run("ner", {**fields, "offsets": {"unit": "utf16"}}, row)
    assert isinstance(made, Reject) and made.reason == "offset inside a character"
    made, _ = run("ner", {**fields, "offsets": {"unit": "utf16", "locate": "unique"}}, row)
    assert isinstance(made, Record) and words(made) == ["Zoë"]


@pytest.mark.parametrize("unit", ["utf16", "byte"])
def test_mentions_of_tags_and_of_offsets_have_relations_in_any_unit(unit: str) -> None:
    row = {**ROW, "tokens": ["👍Ada", "Bérg", "of", "Oslo", "or", "Bergen"]}
    expected = [("👍Ada Bérg", "lives in", "Oslo"), ("👍Ada Bérg", "born in", "Bergen")]
    assert (
        relations({**MAP, "spans": {"each": "none?[]", "words": "."}, "offsets": {"unit": unit}}, row) == expected
    )
    spans = {"each": "at[]", "label": "label", "start": "start", "end": "end"}
    text = " ".join(row["tokens"])
    places = [
        (ends(text, word, unit), kind)
        for word, kind in (("👍Ada Bérg", "Peop"), ("Oslo", "Loc"), ("Bergen", "Loc"))
    ]
    at = [{"start": start, "end": end, "label": kind} for (start, end), kind in places]
    untagged = {key: path for key, path in MAP.items() if key != "tags"}
    assert relations({**untagged, "spans": spans, "offsets": {"unit": unit}}, {**row, "at": at}) == expected
