"""Annotations by path: mentions are where the spec says, or their row is rejected with each reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice
from ubert.schema.checks import covered
from ubert.schema.record import Category, Mismatch, Misplaced, Record, Reject, Span
from ubert.schema.specs.dataset import DatasetSpec

PIECE = Slice("folder", "a/file", 0, 100, 1, "utf-8", "5" * 64)
CATEGORIES = {
    "entity": {"P": "person", "F": "company"},
    "relation": [{"label": "of", "name": "works for"}],
    "event": {"Hire": {"name": "hiring", "roles": {"Who": "person hired", "Why": "reason"}}},
}


def run(
    task: str, fields: dict[str, Any], content: dict[str, Any], **more: Any
) -> tuple[Record | Reject, list[Misplaced]]:
    spec = {
        **dict(
            name="n", description="d", task=task, language="en", licence="MIT", instruction="i", format="jsonl"
        ),
        "files": [{"split": "train", "path": "a/file"}],
        "map": fields,
        "categories": CATEGORIES,
        **more,
    }
    misplaced: list[Misplaced] = []
    to_record = mapper(DatasetSpec.model_validate(spec), "train", misplaced.append)
    return to_record(PIECE, RawRow(7, "a/file:7", content)), misplaced


def kept(task: str, fields: dict[str, Any], content: dict[str, Any], **more: Any) -> Record:
    record, misplaced = run(task, fields, content, **more)
    assert isinstance(record, Record), record
    assert not misplaced
    return record


def words(record: Record) -> list[str]:
    return [covered(record, span) for span in record.spans]


TEXT = "Ann joined Acme Inc. Bob, not Ann, left Acme."


@pytest.mark.parametrize(
    ("spans", "offsets", "content"),
    [
        ({"each": "m[]", "start": "0", "end": "1"}, {}, {"m": [[0, 3], [11, 19]]}),
        ({"each": "m[]", "start": "0", "end": "1"}, {"end": "inclusive"}, {"m": [[0, 2], [11, 18]]}),
        ({"each": "m[]", "fragments": "."}, {}, {"m": [[0, 3], [11, 19]]}),
        ({"each": "m[]", "fragments": "at"}, {}, {"m": [{"at": [[0, 3]]}, {"at": [[11, 19]]}]}),
        ({"each": "m[]", "fragments": "."}, {"end": "inclusive"}, {"m": [[0, 2], [11, 18]]}),
        (
            {"each": "m[]", "start": "s", "words": "w"},
            {},
            {"m": [{"s": 0, "w": "Ann"}, {"s": "11", "w": "Acme Inc"}]},
        ),
        ({"each": "m[]", "words": "."}, {"locate": "first"}, {"m": ["Ann", "Acme Inc"]}),
        ({"each": "m[]", "words": "."}, {"locate": "first"}, {"m": ["Ann", ["Acme", "Inc"]]}),
        ({"each": "m.{w}[]", "words": "{w}", "start": "."}, {}, {"m": {"Ann": [0], "Acme Inc": [11]}}),
        ({"each": "m[]", "start": "s", "end": "e"}, {"absent_start": 0}, {"m": [{"e": 3}, {"s": 11, "e": 19}]}),
        ({"each": "w.{i}", "words": ".", "start": "/s.{i}"}, {}, {"w": ["Ann", "Acme Inc"], "s": [0, 11]}),
        ({"each": "none?[]", "words": "."}, {}, {}),
    ],
)
def test_mentions_are_where_the_spec_says(spans: Any, offsets: Any, content: dict[str, Any]) -> None:
    fields = {"text": "text", "spans": {**spans, "as": "P"}, "offsets": offsets}
    record, _ = run("ner", fields, {"text": TEXT, **content})
    assert isinstance(record, Record), record
    assert words(record) == (["Ann", "Acme Inc"] if content else [])


SENTENCES = [["Ann", "joined", "Acme", "Inc", "."], ["Bob", "left", "."]]


@pytest.mark.parametrize(
    ("spans", "offsets", "mentions"),
    [
        ({"start": "0", "end": "1"}, {}, [[0, 1], [2, 4], [5, 6]]),
        ({"start": "0", "end": "1"}, {"end": "inclusive"}, [[0, 0], [2, 3], [5, 5]]),
        ({"start": "0", "end": "1", "sentence": "2"}, {}, [[0, 1, 0], [2, 4, 0], [0, 1, 1]]),
        ({"indices": "."}, {"end": "inclusive"}, [[0], [2, 3], [5]]),
    ],
)
def test_tokens_may_be_counted(spans: Any, offsets: Any, mentions: Any) -> None:
    fields = {"tokens": "t", "spans": {"each": "m[]", **spans}, "offsets": {"unit": "token", **offsets}}
    record = kept("ner", fields, {"t": SENTENCES, "m": mentions})
    assert record.text == "Ann joined Acme Inc . Bob left ."
    assert words(record) == ["Ann", "Acme Inc", "Bob"]


def test_tokens_are_counted_in_each_sentence() -> None:
    at = {"each": "m[]", "start": "0", "end": "1", "sentence": "2"}
    fields = {"tokens": "t", "spans": {**at, "as": "P"}, "offsets": {"unit": "token"}}
    record = kept("ner", fields, {"t": [["Ann", "left"], ["So", "did", "Bob"], ["Not", "Eve"]], "m": [[1, 2, 2]]})
    assert words(record) == ["Eve"]


@pytest.mark.parametrize(
    ("glue", "offsets", "mentions"),
    [
        (" ", {}, [[0, "Ann", 0], [2, "Acme Inc", 0], [0, "Bob", 1], [2, ".", 1]]),
        (" ", {}, [[2, ["Acme", "Inc"], 0], [0, "Bob left .", 1]]),
        (" ", {"compare": "folded"}, [[2, "acmeinc", 0], [1, "LEFT.", 1]]),
        ("", {}, [[0, "Annjoined", 0], [3, "Inc.", 0], [0, "Bob", 1]]),
    ],
)
def test_words_end_the_tokens_of_a_mention_that_has_only_a_start(glue: str, offsets: Any, mentions: Any) -> None:
    at = {"each": "m[]", "start": "0", "words": "1", "sentence": "2", "as": "P"}
    fields = {"tokens": "t", "glue": glue, "spans": at, "offsets": {"unit": "token", **offsets}}
    record = kept("ner", fields, {"t": SENTENCES, "m": mentions})
    said = ["".join(words).replace(" ", "").casefold() for _, words, _ in mentions]
    assert [found.replace(" ", "").casefold() for found in words(record)] == said


@pytest.mark.parametrize(
    ("start", "said", "detail"),
    [
        (0, "Acme", "mention 0 says 'Acme', but the text at 0 is 'Ann joined'"),
        (6, "left . So", "mention 0 says 'left . So' at 6 of a text of 8 tokens"),
        (8, "Bob", "mention 0 says 'Bob' at 8 of a text of 8 tokens"),
        (-3, "Bob", "mention 0 says 'Bob' at -3 of a text of 8 tokens"),
        (5, "", "mention 0 says '', but the text at 5 is 'Bob'"),
    ],
)
def test_words_that_are_not_at_their_token_are_refused(start: int, said: str, detail: str) -> None:
    at = {"each": "m[]", "start": "0", "words": "1", "as": "P"}
    fields = {"tokens": "t", "spans": at, "offsets": {"unit": "token"}}
    reject, _ = run("ner", fields, {"t": SENTENCES, "m": [[start, said]]})
    assert isinstance(reject, Reject) and reject.detail.startswith(detail)


def test_a_sentence_without_tokens_counts_as_one() -> None:
    at = {"each": "m[]", "start": "0", "end": "1", "sentence": "2"}
    fields = {"tokens": "t", "spans": {**at, "as": "P"}, "offsets": {"unit": "token"}}
    record = kept("ner", fields, {"t": [["Ann"], [], ["Bob"]], "m": [[0, 1, 2]]})
    assert record.text == "Ann Bob" and words(record) == ["Bob"]


@pytest.mark.parametrize("sentence", [-2, -1, 2])
def test_a_sentence_that_the_text_lacks_is_refused(sentence: int) -> None:
    at = {"each": "m[]", "start": "0", "end": "1", "sentence": "2"}
    fields = {"tokens": "t", "spans": {**at, "as": "P"}, "offsets": {"unit": "token"}}
    reject, _ = run("ner", fields, {"t": SENTENCES, "m": [[0, 1, sentence]]})
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.detail) == ("span outside its text", f"sentence {sentence} of 2")


@pytest.mark.parametrize(
    ("unit", "text", "last", "beyond"),
    [
        ("token", ["a", "b", "c"], [1, 3], "mention 1 at [[2, 4]] of a text of 3 tokens"),
        ("character", "abcde", [2, 5], "mention 1 at [[2, 6]] of a text of 5 characters"),
    ],
)
def test_a_mention_may_end_with_its_text_but_not_behind_it(
    unit: str, text: Any, last: list[int], beyond: str
) -> None:
    spans = {"each": "m[]", "start": "0", "end": "1", "as": "P"}
    fields = {"tokens" if unit == "token" else "text": "t", "spans": spans, "offsets": {"unit": unit}}
    record = kept("ner", fields, {"t": text, "m": [last]})
    assert record.spans[0].end == len(record.text)
    reject, _ = run("ner", fields, {"t": text, "m": [[0, 1], [2, last[1] + 1]]})
    assert isinstance(reject, Reject) and reject.detail == beyond


@pytest.mark.parametrize(
    ("way", "given", "reason"),
    [
        *(("fragments", wrong, "wrong type") for wrong in ([], [[0]], [[0, 1], [2]], [0, True], [0, 1.0], 3)),
        *(("indices", wrong, "wrong type") for wrong in ([], [0, True], ["0"], 3)),
        *(("indices", wrong, "span outside its text") for wrong in ([0, 0], [1, 0], [3], [-1])),
        *(("words", wrong, "wrong type") for wrong in (["a", 1], 3)),
    ],
)
def test_a_place_of_another_form_is_refused(way: str, given: Any, reason: str) -> None:
    fields = {"tokens": "t", "spans": {"each": "m[]", way: ".", "as": "P"}, "offsets": {"unit": "token"}}
    reject, _ = run("ner", fields, {"t": "a b c", "m": [given]})
    assert isinstance(reject, Reject) and reject.reason == reason


def test_tokens_apart_are_fragments_of_one_mention() -> None:
    fields = {"tokens": "t", "spans": {"each": "m[]", "indices": ".", "as": "F"}, "offsets": {"unit": "token"}}
    record = kept("ner", fields, {"t": "a b c d", "m": [[0, 1, 3]]})
    assert record.spans == [Span(0, 3, 1, group=0), Span(6, 7, 1, group=0)]


def test_words_without_glue_are_joined_without_a_space() -> None:
    fields = {"tokens": "t", "glue": "", "tags": "g", "scheme": "BMES"}
    record = kept("ner", fields, {"t": ["安", "娜", "去"], "g": ["B-P", "E-P", "O"]})
    assert (record.text, words(record)) == ("安娜去", ["安娜"])


def test_columns_of_tags_are_nested_mentions() -> None:
    fields = {"tokens": "t", "tags": ["outer", "inner"]}
    record = kept("ner", fields, {"t": "Ann Acme Inc", "outer": "O B-F I-F", "inner": "O B-P O"})
    assert record.spans == [Span(4, 12, 1), Span(4, 8, 0)]


LOCATED = {"text": "text", "spans": {"each": "m[]", "start": "s?", "words": "w", "as": "P"}}


@pytest.mark.parametrize(
    ("locate", "given", "outcome"),
    [
        ("reject", {"s": 1, "w": "Ann"}, "mention doesn't match its offsets"),
        ("unique", {"s": 1, "w": "Ann"}, "mention doesn't match its offsets"),  # twice in the text
        ("unique", {"s": 1, "w": "Bob"}, 21),
        ("first", {"s": 25, "w": "Ann"}, 0),
        ("nearest", {"s": 29, "w": "Ann"}, 30),
        ("nearest", {"s": 15, "w": "Ann"}, "mention doesn't match its offsets"),  # as near to both
        ("nearest", {"s": 99, "w": "Ann"}, 30),
        ("nearest", {"s": 1, "w": "Eve"}, "mention doesn't match its offsets"),
        ("first", {"s": 1, "w": "oin"}, "mention doesn't match its offsets"),  # part of a word is not the word
        ("unique", {"s": -1, "w": "Bob"}, 21),
    ],
)
def test_a_misplaced_mention_is_sought_as_the_spec_allows(locate: str, given: Any, outcome: int | str) -> None:
    fields = {**LOCATED, "spans": {**LOCATED["spans"], "start": "s"}, "offsets": {"locate": locate}}
    made, misplaced = run("ner", fields, {"text": TEXT, "m": [{"s": 11, "w": "Acme"}, given]})
    (one,) = misplaced
    assert (one.locator, one.mismatch.words, one.mismatch.start) == ("a/file:7", given["w"], given["s"])
    if isinstance(outcome, int):
        assert isinstance(made, Record) and made.spans[1].start == outcome == one.mismatch.found
    else:
        assert isinstance(made, Reject) and made.reason == outcome and one.mismatch.found is None


def test_a_token_number_outside_the_text_is_near_to_no_place() -> None:
    fields = {"tokens": "text", "spans": LOCATED["spans"], "offsets": {"unit": "token", "locate": "nearest"}}
    made, _ = run("ner", fields, {"text": TEXT, "m": [{"s": 7, "w": "Ann"}]})
    assert isinstance(made, Record) and made.spans[0].start == 30  # next to the seventh token
    made, _ = run("ner", fields, {"text": TEXT, "m": [{"s": 99, "w": "Ann"}]})
    assert isinstance(made, Reject) and made.reason == "span outside its text"


@pytest.mark.parametrize(
    ("locate", "said", "outcome"),
    [
        ("reject", "Bob", "mention has no offsets"),
        ("unique", "Bob", 21),
        ("unique", "Ann", "mention is in the text more than once"),
        ("first", "Ann", 0),
        ("first", "Eve", "mention isn't in the text"),
    ],
)
def test_a_mention_without_offsets_is_sought_too(locate: str, said: str, outcome: int | str) -> None:
    fields = {"text": "text", "spans": {"each": "m[]", "words": ".", "as": "P"}, "offsets": {"locate": locate}}
    made, misplaced = run("ner", fields, {"text": TEXT, "m": [said]})
    if isinstance(outcome, int):
        assert isinstance(made, Record) and made.spans[0].start == outcome
    else:
        assert isinstance(made, Reject) and made.reason == outcome
    assert bool(misplaced) == (outcome != 21)


@pytest.mark.parametrize(
    ("text", "said", "start"),
    [
        ("WWD6月2日消息", "6月2日", 3),  # a Chinese mention ends where its letters do
        ("共16月，6月止", "6月", 5),  # but not within a number,
        ("AB轮后B轮", "B轮", 4),  # or a Latin word
        ("参加iPhone发布会", "iPhone", 2),
        ("ฉันรักแมวมาก", "แมว", 6),  # Thai has no spaces either
        ("H2O at 2 bar", "2", 7),
        ("a cafés café", "café", 8),
        ("cafe\u0301 cafe", "cafe", 6),  # whose accent is a character of its own
        ("सीतापुर में सीता", "सीता", 12),  # whose last vowel is a sign
        ("काम म", "म", 4),
    ],
)
def test_a_mention_is_sought_among_whole_words(text: str, said: str, start: int) -> None:
    fields = {"text": "text", "spans": {"each": "m[]", "words": ".", "as": "P"}, "offsets": {"locate": "unique"}}
    made, misplaced = run("ner", fields, {"text": text, "m": [said]})
    assert isinstance(made, Record) and made.spans[0].start == start and not misplaced


def test_places_that_overlap_are_several() -> None:
    fields = {"text": "text", "spans": {"each": "m[]", "words": ".", "as": "P"}, "offsets": {"locate": "unique"}}
    made, _ = run("ner", fields, {"text": "New York New York New York", "m": ["New York New York"]})
    assert isinstance(made, Reject) and made.reason == "mention is in the text more than once"


def test_every_misplaced_mention_of_a_refused_row_is_reported() -> None:
    content = {"text": TEXT, "m": [{"s": 1, "w": "Ann"}, {"s": 0, "w": "Ann"}, {"s": 5, "w": "Eve"}]}
    made, misplaced = run("ner", {**LOCATED, "spans": {**LOCATED["spans"], "start": "s"}}, content)
    assert isinstance(made, Reject) and "1 more" in made.detail
    assert [(one.mismatch.words, one.mismatch.places) for one in misplaced] == [("Ann", 2), ("Eve", 0)]


def test_words_may_differ_in_case_and_space_where_the_spec_says_so() -> None:
    fields = {"text": "text", "spans": {"each": "m[]", "start": "0", "end": "1", "words": "2"}}
    content = {"text": TEXT, "m": [[11, 19, "acmeINC"]]}
    assert isinstance(run("ner", fields, content)[0], Reject)
    assert words(kept("ner", {**fields, "offsets": {"compare": "folded"}}, content)) == ["Acme Inc"]


def test_a_line_end_of_the_text_may_be_a_space_of_the_words() -> None:
    fields = {"text": "text", "spans": {"each": "m[]", "start": "0", "end": "1", "words": "2", "as": "F"}}
    record = kept("ner", fields, {"text": "Acme\r\nInc\nLtd", "m": [[0, 13, "Acme Inc Ltd"]]})
    assert record.spans == [Span(0, 13, 1)]


def test_a_mismatch_has_the_given_words_and_those_of_the_text() -> None:
    spans = {"each": "m[]", "id": "id?", "start": "s", "words": "w", "as": "P"}
    mentions = [{"id": "T9", "s": 1, "w": "Ann"}, {"s": 11, "w": "Acme"}, {"s": 99, "w": "Bob"}]
    fields = {"text": "text", "spans": spans, "offsets": {"locate": "first"}}
    made, misplaced = run("ner", fields, {"text": TEXT, "m": mentions})
    assert isinstance(made, Record) and [span.start for span in made.spans] == [0, 11, 21]
    assert [(one.path, one.line, one.mismatch) for one in misplaced] == [
        ("a/file", 7, Mismatch("mention", "T9", "Ann", 1, "nn ", 2, 0)),
        ("a/file", 7, Mismatch("mention", "2", "Bob", 99, None, 1, 21)),
    ]


@pytest.mark.parametrize(("count", "others"), [(1, ""), (2, "; 1 more like it"), (3, "; 2 more like it")])
def test_a_refusal_counts_the_other_misplaced_mentions(count: int, others: str) -> None:
    fields = {"text": "text", "spans": {"each": "m[]", "start": "0", "words": "1", "as": "P"}}
    reject, misplaced = run("ner", fields, {"text": TEXT, "m": [[0, "Zed"]] * count})
    assert isinstance(reject, Reject) and len(misplaced) == count
    assert reject.detail == f"mention 0 says 'Zed', but the text at 0 is 'Ann'{others}"


def test_offsets_into_a_larger_document_are_moved_by_the_one_shift_that_fits() -> None:
    fields = {
        "text": "text",
        "spans": {"each": "m[]", "start": "0", "words": "1", "as": "P"},
        "offsets": {"base": "document"},
    }
    record = kept("ner", fields, {"text": TEXT, "m": [[1030, "Ann"], [1040, "Acme"]]})
    assert [span.start for span in record.spans] == [30, 40]  # the second Ann, as only there is Acme 10 further on
    whole = {**fields, "spans": {"each": "m[]", "start": "0", "end": "1", "words": "2", "as": "P"}}
    record = kept("ner", whole, {"text": TEXT, "m": [[1030, 1033, "Ann"], [1040, 1044, "Acme"]]})
    assert [(span.start, span.end) for span in record.spans] == [(30, 33), (40, 44)]
    assert isinstance(run("ner", fields, {"text": TEXT, "m": [[1030, "Ann"]]})[0], Reject)
    for start in range(9):  # three shifts fit
        assert isinstance(run("ner", fields, {"text": "na na na", "m": [[start, "na"]]})[0], Reject)


def test_a_mention_without_words_moves_by_the_shift_of_the_others() -> None:
    bare = {"each": "bare[]", "start": "0", "end": "1", "as": "P"}
    fields = {
        "text": "text",
        "spans": [bare, {**bare, "each": "worded[]", "words": "2"}],
        "offsets": {"base": "document", "locate": "unique"},
    }
    content = {"text": "Ann lives in Oslo now.", "bare": [[13, 17]], "worded": [[26, 30, "Oslo"]]}
    record = kept("ner", fields, content)
    assert [(span.start, span.end) for span in record.spans] == [(0, 4), (13, 17)]
    alone, misplaced = run("ner", fields, {**content, "worded": []})
    assert isinstance(alone, Reject) and alone.reason == "offsets into an unknown document" and not misplaced
    assert kept("ner", fields, {**content, "bare": [], "worded": []}).spans == []


def test_relations_may_hold_their_mentions() -> None:
    fields = {
        "text": "text",
        "relations": {
            "each": "r[]",
            "label": "k",
            "head": {"words": "h", "as": "P"},
            "tail": {"words": "t", "as": "F"},
        },
        "offsets": {"locate": "first"},
    }
    content = {"text": TEXT, "r": [{"k": "of", "h": "Bob", "t": "Acme Inc"}, {"k": "of", "h": "Bob", "t": "Acme"}]}
    record, misplaced = run("relation", fields, content)
    assert isinstance(record, Record)
    assert [(one.mismatch.words, one.mismatch.places) for one in misplaced] == [("Acme", 2)]  # the first was taken
    assert [
        (covered(record, record.spans[r.head]), covered(record, record.spans[r.tail])) for r in record.relations
    ] == [
        ("Bob", "Acme Inc"),
        ("Bob", "Acme"),
    ]
    assert words(record).count("Bob") == 1


def test_relations_find_mentions_by_place_and_by_shared_id() -> None:
    by_place = {
        "text": "text",
        "spans": {"each": "m[]", "start": "0", "end": "1", "label": "2"},
        "relations": {
            "each": "r[]",
            "label": "4",
            "head": {"start": "0", "end": "1"},
            "tail": {"start": "2", "end": "3"},
        },
    }
    record = kept(
        "relation", by_place, {"text": TEXT, "m": [[0, 3, "P"], [11, 19, "F"]], "r": [[0, 3, 11, 19, "of"]]}
    )
    assert record.spans == [Span(0, 3, 0), Span(11, 19, 1)]
    assert (record.relations[0].head, record.relations[0].tail) == (0, 1)
    shared = {
        "text": "text",
        "spans": {"each": "e.{entity}[]", "id": "{entity}", "start": "0", "end": "1", "as": "P"},
        "relations": {"each": "r[]", "as": "of", "head": "h", "tail": "t"},
    }
    content = {"text": TEXT, "e": [[[0, 3], [30, 33]], [[11, 19]]], "r": [{"h": 0, "t": 1}]}
    record = kept("relation", shared, content)
    assert [span.group for span in record.spans] == [0, 0, None]
    assert (record.relations[0].head, record.relations[0].tail) == (0, 2)


def test_mentions_may_be_chosen_by_their_values_and_have_further_ids() -> None:
    chosen = {"each": "m[]", "id": "id", "label": "k", "start": "s", "words": "w", "when": {"k": ["P", "F"]}}
    copies = {"each": "m[]", "id": "id", "start": "s", "words": "w"}
    fields = {"text": "text", "relations": {"each": "r[]", "as": "of", "head": "0", "tail": "1"}}
    mentions = [
        {"id": 1, "k": "P", "s": 0, "w": "Ann"},
        {"id": 2, "k": "F", "s": 11, "w": "Acme"},
        {"id": 3, "k": "cluster of Ann", "s": 0, "w": "Ann"},
    ]
    content = {"text": TEXT, "m": mentions, "r": [[3, 2]]}
    refused, _ = run("relation", {**fields, "spans": chosen}, content)
    assert isinstance(refused, Reject) and refused.reason == "dangling relation"
    for spans in ([chosen, copies], [copies, chosen]):
        record = kept("relation", {**fields, "spans": spans}, content)
        assert record.spans == [Span(0, 3, 0), Span(11, 15, 1)]
        assert (record.relations[0].head, record.relations[0].tail) == (0, 1)


@pytest.mark.parametrize(
    ("task", "key", "entry"),
    [
        ("ner", "spans", {"start": "s", "words": "w"}),
        ("relation", "relations", {"head": {"start": "s", "words": "w"}, "tail": {"start": "s", "words": "w"}}),
        ("event", "events", {"trigger": {"start": "s", "words": "w"}}),
    ],
)
def test_items_without_a_label_may_be_left_out(task: str, key: str, entry: dict[str, Any]) -> None:
    fields = {"text": "text", key: {"each": "m[]", "label": "k", "when": {"k": {"exists": True}}, **entry}}
    label = {"spans": "P", "relations": "of", "events": "Hire"}[key]
    items = [{"s": 0, "w": "Ann", "k": label}, {"s": 4, "w": "joined", "k": None}, {"s": 11, "w": "Acme"}]
    assert words(kept(task, fields, {"text": TEXT, "m": items})) == ["Ann"]


def test_a_mention_without_an_id_is_the_one_of_its_label_there() -> None:
    spans = {"each": "m[]", "id": "id?", "label": "k", "start": "s", "words": "w"}
    mentions = [{"s": 0, "w": "Ann", **keys} for keys in ({"k": "P", "id": 1}, {"k": "F", "id": 2}, {"k": "F"})]
    record = kept("ner", {"text": "text", "spans": spans}, {"text": TEXT, "m": mentions})
    assert record.spans == [Span(0, 3, 0), Span(0, 3, 1)]


def test_the_first_mention_of_an_id_represents_it() -> None:
    """Also where a later mention of the id is one that has another id already."""
    named = {"each": "m[]", "id": "id", "label": "k", "start": "s", "words": "w"}
    more = {"each": "n[]", "id": "id", "start": "s", "words": "w"}
    fields = {"text": "text", "relations": {"each": "r[]", "as": "of", "head": "0", "tail": "1"}}
    mentions = [{"id": 1, "k": "P", "s": 0, "w": "Ann"}, {"id": 2, "k": "F", "s": 11, "w": "Acme"}]
    content = {"text": TEXT, "m": mentions, "n": [{"id": 1, "s": 11, "w": "Acme"}], "r": [[1, 2]]}
    record = kept("relation", {**fields, "spans": [named, more]}, content)
    assert record.spans == [Span(0, 3, 0), Span(11, 15, 1)]
    assert (record.relations[0].head, record.relations[0].tail) == (0, 1)


def test_all_mentions_of_an_id_have_one_group_and_no_others_do() -> None:
    spans = {"each": "m[]", "id": "0", "fragments": "1", "as": "P"}
    mentions = [
        ["a", [0, 3]],
        ["a", [30, 33]],
        ["b", [[4, 10], [16, 19]]],
        ["a", [21, 24]],
        ["c", [[11, 15], [40, 44]]],
    ]
    record = kept("ner", {"text": "text", "spans": spans}, {"text": TEXT, "m": mentions})
    assert [span.group for span in record.spans] == [0, 0, 1, 1, 0, 2, 2]


def test_labels_to_ignore_are_left_out_wherever_they_are() -> None:
    spans = {"each": "m[]", "id": "0", "start": "1", "end": "2", "label": "3"}
    mentions = [["a", 0, 3, "P"], ["b", 11, 15, "F"], ["x", 21, 24, "X"]]
    relations = {"each": "r[]", "label": "0", "head": "1", "tail": "2"}
    fields = {"text": "text", "spans": spans, "ignore_labels": ["X", "near", "Fire", "When"]}
    content = {"text": TEXT, "m": mentions, "r": [["near", "a", "x"], ["of", "a", "b"]]}
    record = kept("relation", {**fields, "relations": relations}, content)
    assert words(record) == ["Ann", "Acme"] and [(r.head, r.tail) for r in record.relations] == [(0, 1)]
    arguments = {"each": "2[]", "role": "0", "target": "1"}
    events = {"each": "e[]", "label": "0", "trigger": {"words": "1"}, "arguments": arguments}
    content["e"] = [["Fire", "left", []], ["Hire", "joined", [["When", "x"], ["Who", "a"]]]]
    record = kept("event", {**fields, "events": events, "offsets": {"locate": "unique"}}, content)
    assert words(record) == ["Ann", "Acme", "joined"]
    assert [[argument.span for argument in event.arguments] for event in record.events] == [[0]]
    tags = {"tokens": "t", "tags": "g", "ignore_labels": ["X"]}
    assert kept("ner", tags, {"t": "a b", "g": "B-X B-P"}).spans == [Span(2, 3, 0)]


def test_a_role_with_a_number_is_itself_before_it_is_the_one_without() -> None:
    arguments = {"each": "a[]", "role": "0", "target": {"words": "1"}}
    events = {"each": "e[]", "as": "Hire", "arguments": arguments}
    roles = {"Who": "person hired", "Who2": "second person"}
    record = kept(
        "event",
        {"text": "text", "events": events, "offsets": {"locate": "unique"}},
        {"text": TEXT, "e": [{"a": [["Who", "Bob"], ["Who2", "joined"], ["Who3", "not"]]}]},
        categories={"event": {"Hire": {"name": "hiring", "roles": roles}}},
    )
    named = [record.categories[argument.role].name for argument in record.events[0].arguments]
    assert named == ["person hired", "second person", "person hired"]


def test_events_hold_their_trigger_and_arguments() -> None:
    fields = {
        "text": "text",
        "events": {
            "each": "e[]",
            "label": "type",
            "trigger": {"start": "at", "words": "trigger"},
            "arguments": {"each": "arguments[]", "role": "role", "target": {"start": "at", "words": "words"}},
        },
    }
    event = {
        "type": "Hire",
        "trigger": "joined",
        "at": 4,
        "arguments": [{"role": "Who", "words": "Ann", "at": 0}, {"role": "Why", "words": "Ann", "at": 0}],
    }
    record = kept("event", fields, {"text": TEXT, "e": [event, {**event, "arguments": []}]})
    hiring = record.categories.index(Category("hiring", "event"))
    assert [covered(record, record.spans[e.trigger or 0]) for e in record.events] == ["joined", "joined"]
    assert record.spans == [Span(4, 10, hiring), Span(0, 3, None)]
    assert [argument.span for argument in record.events[0].arguments] == [1, 1]


def test_arguments_of_several_places_may_have_a_role_each() -> None:
    arguments = [
        {"each": "who[]", "role": "role", "target": {"words": "words"}},
        {"each": "why?", "as": "Why", "target": {"words": "words"}},
    ]
    fields = {
        "text": "text",
        "events": {"each": "e[]", "label": "type", "arguments": arguments},
        "offsets": {"locate": "unique"},
    }
    event = {"type": "Hire", "who": [{"role": "Who", "words": "Bob"}]}
    record = kept("event", fields, {"text": TEXT, "e": [event, {**event, "why": {"words": "not"}}]})
    roles = [[record.categories[argument.role].name for argument in event.arguments] for event in record.events]
    assert roles == [["person hired"], ["person hired", "reason"]] and words(record) == ["Bob", "not"]


def test_clusters_are_groups_of_all_mentions() -> None:
    spans = {"each": "c.{cluster}[]", "id": "{cluster}", "start": "0", "end": "1"}
    record = kept("coref", {"text": "text", "spans": spans}, {"text": TEXT, "c": [[[0, 3], [30, 33]], [[21, 24]]]})
    assert record.spans == [Span(0, 3, group=0), Span(30, 33, group=0), Span(21, 24, group=1)]
    twice = kept("coref", {"text": "text", "spans": spans}, {"text": TEXT, "c": [[[0, 3], [0, 3]], [[0, 3]]]})
    assert twice.spans == [Span(0, 3, group=0), Span(0, 3, group=1)]


@pytest.mark.parametrize(("flag", "groups"), [("TRUE", [0, 0, 1]), ("FALSE", [0, 1, 2])])
def test_links_join_mentions_of_one_cluster_where_a_field_says_so(flag: str, groups: list[int]) -> None:
    names = [{"start": at, "words": name} for at, name in (("0", "n"), ("1", "m"), ("2", "o"))]
    fields = {
        "text": "text",
        "spans": names,
        "links": [{"head": names[0], "tail": names[1], "when": {"same": "TRUE"}}],
    }
    row = {"text": TEXT, "0": 0, "n": "Ann", "1": 30, "m": "Ann", "2": 21, "o": "Bob", "same": flag}
    assert [span.group for span in kept("coref", fields, row).spans] == groups


@pytest.mark.parametrize(
    ("links", "groups"),
    [
        ([[1, 2], [0, 2]], [0, 0, 0, 1]),
        ([[3, 2], [2, 1], [1, 0]], [0, 0, 0, 0]),
        ([[0, 1], [2, 3], [3, 0]], [0, 0, 0, 0]),
        ([[3, 1], [2, 0]], [0, 1, 0, 1]),
        ([[3, 3], [1, 3]], [0, 1, 2, 1]),
    ],
)
def test_links_join_clusters_in_any_order(links: list[list[int]], groups: list[int]) -> None:
    spans = {"each": "m[]", "id": "0", "start": "1", "end": "2"}
    fields = {"text": "text", "spans": spans, "links": {"each": "l[]", "head": "0", "tail": "1"}}
    mentions = [[i, 2 * i, 2 * i + 1] for i in range(4)]
    record = kept("coref", fields, {"text": "a b c d", "m": mentions, "l": links})
    assert [span.group for span in record.spans] == groups


def test_mentions_name_the_candidates_of_their_row_by_keys() -> None:
    spans = {"each": "m[]", "start": "0", "end": "1", "label": "2"}
    fields = {"text": "text", "spans": spans, "candidates": "o.name", "candidate_keys": "o.key"}
    row = {"text": "a b c", "m": [[0, 1, "C"], [2, 3, "B"], [4, 5, "A"]]}
    record = kept("ner", fields, {**row, "o": {"key": ["A", "B", "C"], "name": ["x", "y", "x"]}})
    assert record.categories == (Category("x", "entity"), Category("y", "entity"))
    assert [span.category for span in record.spans] == [0, 1, 0]


@pytest.mark.parametrize("names", ["x", ["x", 2], [["x"]]])
def test_candidates_that_are_no_names_are_refused(names: Any) -> None:
    fields = {"text": "q", "candidates": "o", "label": "a"}
    reject, _ = run("choice", fields, {"q": "Which?", "o": names, "a": "x"})
    assert isinstance(reject, Reject) and reject.reason == "wrong type"


@pytest.mark.parametrize(("flags", "reason"), [([0, 1], ""), ([1], "wrong type"), ([0, 1, 0], "wrong type")])
def test_each_candidate_has_a_flag(flags: list[int], reason: str) -> None:
    fields = {"text": "q", "pair": "p", "candidates": "o", "candidate_flags": "f"}
    made, _ = run("choice", fields, {"q": "Which?", "p": "Of two.", "o": ["x", "y"], "f": flags})
    if reason:
        assert isinstance(made, Reject) and made.reason == reason
    else:
        assert isinstance(made, Record) and (made.text, made.pair, made.labels) == ("Which?", "Of two.", [1])


@pytest.mark.parametrize("flags", [("1", "0", "1"), (1, 0, 1), (True, False, True), ("True", "false", 1.0)])
def test_each_label_may_have_a_field_with_a_flag(flags: tuple[Any, ...]) -> None:
    categories = {"label": {"z": "last", "x": "first", "y": "second"}}
    fields = {"text": "t", "label_flags": ["x", "y", "z"]}
    record = kept("multilabel", fields, {"t": "a", **dict(zip("xyz", flags, strict=True))}, categories=categories)
    assert [record.categories[i].name for i in record.labels] == ["last", "first"]


@pytest.mark.parametrize(
    ("task", "row", "reason"),
    [
        ("multilabel", {"x": 0, "y": 0}, None),
        ("classification", {"x": 0, "y": 1}, None),
        ("classification", {"x": 1, "y": 1}, "wrong number of labels"),
        ("multilabel", {"x": 0, "y": -1}, "wrong type"),
        ("multilabel", {"x": 0, "y": None}, "missing field"),  # what nobody annotated is not 0
        ("multilabel", {"x": "", "y": 1}, "wrong type"),
        ("multilabel", {"x": 0}, "missing field"),
        ("multilabel", {"x": 1, "y": 0, "z": 1}, "unknown category"),
    ],
)
def test_rows_with_wrong_flags_are_refused(task: str, row: dict[str, Any], reason: str | None) -> None:
    fields = {"text": "t", "label_flags": [*row, *({"x", "y"} - {*row})]}
    made, _ = run(task, fields, {"t": "a", **row}, categories={"label": {"x": "first", "y": "second"}})
    assert (made.reason if isinstance(made, Reject) else None) == reason


def test_candidates_of_the_row_are_its_categories() -> None:
    fields = {"text": "q", "candidates": "o.text", "candidate_keys": "o.key", "label": "a"}
    row = {"q": "Which?", "o": {"key": ["A", "B", "C"], "text": ["x", "y", "x"]}, "a": "C"}
    record = kept("choice", fields, row)
    assert [category.name for category in record.categories] == ["x", "y", "x"] and record.labels == [2]
    numbered = {"q": "Which?", "o": {"key": [1, 0], "text": ["x", "y"]}, "a": 0}
    assert kept("choice", fields, numbered).labels == [1]
    reject, _ = run("choice", fields, {**numbered, "o": {"key": [1, 0, 2], "text": ["x", "y"]}})
    assert isinstance(reject, Reject) and reject.reason == "wrong type"
    by_name = {"text": "q", "candidates": "o", "label": "a"}
    assert kept("choice", by_name, {"q": "Which?", "o": ["true", "false"], "a": True}).labels == [0]
    assert kept("choice", by_name, {"q": "Which?", "o": ["x", "y"], "a": "y"}).labels == [1]
    assert kept("choice", by_name, {"q": "Which?", "o": ["x", "y"], "a": 1}).labels == [1]
    wrong: list[tuple[Any, str]] = [("z", "unknown category"), ("x", "ambiguous label")]
    for answer, reason in (*wrong, (-1, "unknown category"), (2, "unknown category")):
        reject, _ = run("choice", by_name, {"q": "Which?", "o": ["x", "x"], "a": answer})
        assert isinstance(reject, Reject) and reject.reason == reason
        assert "of the row's candidates" in reject.detail
    flagged = {"text": "q", "candidates": "o[].name", "candidate_flags": "o[].right"}
    row = {"q": "Which?", "o": [{"name": "x", "right": 0}, {"name": "y", "right": 1}]}
    assert kept("choice", flagged, row).labels == [1]
    assert kept("multilabel", flagged, {**row, "o": [{"name": "x", "right": True}] * 2}).labels == [0, 1]
    for wrong, reason in ([{"name": "x", "right": 2}], "wrong type"), ([], "wrong number of labels"):
        reject, _ = run("choice", flagged, {**row, "o": wrong})
        assert isinstance(reject, Reject) and reject.reason == reason
    by_field = {"text": "q", "candidates": {"A": "first", "B": "second"}, "label": "a"}
    record = kept("choice", by_field, {"q": "Which?", "first": "x", "second": "x", "a": "B"})
    assert [category.name for category in record.categories] == ["x", "x"] and record.labels == [1]
    reject, _ = run("choice", by_field, {"q": "Which?", "first": "x", "second": "y", "a": "x"})
    assert isinstance(reject, Reject) and reject.reason == "unknown category"
    labels = {
        "tokens": "t",
        "spans": {"each": "n[]", "start": "0", "end": "1", "label": "2"},
        "candidates": "n[].2",
    }
    row = {"t": ["a", "b"], "n": [[0, 0, "letter"], [1, 1, "letter"]]}
    record = kept("ner", {**labels, "offsets": {"unit": "token", "end": "inclusive"}}, row)
    assert record.categories == (Category("letter", "entity"),) and words(record) == ["a", "b"]


def test_texts_of_several_fields_and_of_lists_are_joined() -> None:
    record = kept("text", {"text": ["title", "parts[]"], "join": " | "}, {"title": "T", "parts": ["a", "b"]})
    assert record.text == "T | a | b"
    reject, _ = run("text", {"text": ["title", "parts[]"]}, {"title": "T", "parts": ["a", 1]})
    assert isinstance(reject, Reject) and reject.reason == "wrong type"


@given(
    text=st.text("ab é中", min_size=1, max_size=12),
    ends=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
    unit=st.sampled_from(["exclusive", "inclusive"]),
)
def test_what_is_kept_covers_the_given_words(text: str, ends: list[tuple[int, int]], unit: str) -> None:
    extra = 1 if unit == "inclusive" else 0
    mentions = [{"s": s, "e": e - extra, "w": text[s:e]} for s, e in ends]
    spans = {"each": "m[]", "start": "s", "end": "e", "words": "w", "as": "P"}
    fields = {"text": "text", "spans": spans, "offsets": {"end": unit}}
    made, misplaced = run("ner", fields, {"text": text, "m": mentions})
    if isinstance(made, Record):
        assert sorted(set(words(made))) == sorted({text[s:e] for s, e in ends})
        assert not misplaced
    else:
        assert not text.strip() or any(not 0 <= s < e <= len(text) for s, e in ends)
