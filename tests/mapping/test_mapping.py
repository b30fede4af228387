"""The mapping: raw rows become records by their spec, or rejects with a reason that names the value."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice
from ubert.schema.arrow import batch_to_records, records_to_batch
from ubert.schema.checks import covered
from ubert.schema.record import Argument, Category, Event, Record, Reject, Relation, Source, Span
from ubert.schema.specs.dataset import DatasetSpec

PIECE = Slice("folder", "a/file", 0, 100, 1, "utf-8", "5" * 64)


def spec_of(task: str, fields: dict[str, Any], categories: dict[str, Any] | None = None) -> DatasetSpec:
    return DatasetSpec.model_validate(
        {
            "name": "things",
            "description": "d",
            "task": task,
            "language": "en",
            "licence": "MIT",
            "instruction": "i",
            "format": "jsonl",
            "files": [{"split": "train", "path": "a/file"}],
            "map": fields,
            "categories": categories or {},
        }
    )


def take(spec: DatasetSpec, content: dict[str, Any]) -> Record | Reject:
    return mapper(spec, "train")(PIECE, RawRow(7, "a/file:7", content))


def kept(spec: DatasetSpec, content: dict[str, Any]) -> Record:
    record = take(spec, content)
    assert isinstance(record, Record), record
    return record


def refused(spec: DatasetSpec, content: dict[str, Any]) -> tuple[str, str]:
    reject = take(spec, content)
    assert isinstance(reject, Reject), reject
    assert (reject.path, reject.line, json.loads(reject.raw)) == ("a/file", 7, content)
    reject.raw.encode(), reject.detail.encode()  # both can be written as UTF-8
    return reject.reason, reject.detail.removeprefix("a/file:7: ")


LABEL = spec_of(
    "classification", {"text": "t", "label": "l"}, {"label": {"0": "bad", "1": "good", "true": "fact"}}
)


def test_a_record_says_where_it_came_from_and_what_it_may_be() -> None:
    assert kept(LABEL, {"t": "Fine.", "l": "1"}) == Record(
        record_id="things/train/a/file:7",
        corpus="things",
        split="train",
        language="en",
        task="classification",
        instruction="i",
        text="Fine.",
        source=Source("a/file", 7, "5" * 64),
        categories=(Category("bad", "label"), Category("good", "label"), Category("fact", "label")),
        labels=[1],
    )


def test_labels_that_are_no_strings_are_looked_up_as_json_writes_them() -> None:
    assert kept(LABEL, {"t": "a", "l": 1}).labels == [1]
    assert kept(LABEL, {"t": "a", "l": True}).labels == [2]


@pytest.mark.parametrize(
    ("content", "reason", "detail"),
    [
        ({"t": "a", "l": "2"}, "unknown category", "'2' is not among the spec's categories"),
        ({"t": "a", "l": 1.5}, "unknown category", "1.5 is not among the spec's categories"),
        ({"l": "1"}, "missing field", "no 't' in the row: it has l"),
        ({"t": "a", "l": None}, "missing field", "no 'l' in the row: l is null"),
        ({"t": ["a"], "l": "1"}, "wrong type", "'t' is [\"a\"], expected a string"),
        ({"t": " \u00a0", "l": "1"}, "empty text", "text is ' \\xa0'"),
        ({"t": "a\ud800", "l": "1"}, "lone surrogate", "half of a surrogate pair"),
        ({"t": "a", "l": ["0", "1"]}, "wrong number of labels", "2 labels, expected 1"),
    ],
)
def test_a_row_that_is_no_labelled_text_is_refused(content: dict[str, Any], reason: str, detail: str) -> None:
    found = refused(LABEL, content)
    assert found[0] == reason and detail in found[1]


@pytest.mark.parametrize(
    ("locator", "which"), [("a/file:7", ""), ("a/file", ""), ("a/file:7#1", "#1: "), ("a/file#2.q", "#2.q: ")]
)
def test_a_reject_says_which_row_of_its_line_it_is(locator: str, which: str) -> None:
    reject = mapper(LABEL, "train")(PIECE, RawRow(7, locator, {"t": "a"}))
    assert isinstance(reject, Reject) and reject.line == 7
    assert reject.detail == f"{which}no 'l' in the row: it has t"


def test_notices_of_kept_rows_are_added_up_and_those_of_refused_ones_are_not() -> None:
    spans = {"each": "m[]", "start": "0", "end": "1", "label": "2"}
    spec, noticed = spec_of("ner", {"text": "t", "spans": spans}, {"entity": {"P": "person"}}), Counter[str]()
    to_record = mapper(spec, "train", noticed=noticed)
    once = {"t": "a b", "m": [[0, 1, "P"]]}
    twice = {**once, "m": [[0, 1, "P"], [0, 1, "P"]]}
    unknown = {**once, "m": [[0, 1, "P"], [0, 1, "P"], [2, 3, "Q"]]}
    rows = [twice, unknown, once, {**twice, "t": "  "}, twice, once]
    made = [to_record(PIECE, RawRow(n, f"a/file:{n}", row)) for n, row in enumerate(rows)]
    assert [isinstance(one, Record) for one in made] == [True, False, True, False, True, True]
    assert noticed == {"repeated mention, merged with the one before": 2}


def test_fields_are_found_below_others() -> None:
    spec = spec_of("classification", {"text": "a.b", "label": "a.c.d"}, {"label": {"x": "x"}})
    assert kept(spec, {"a": {"b": "text", "c": {"d": "x"}}}).text == "text"
    assert refused(spec, {"a": {"b": "text", "c": "x"}}) == ("missing field", "no 'a.c.d' in the row: a.c is 'x'")


def test_several_labels_as_a_list_or_a_string() -> None:
    categories = {"label": {"x": "x", "y": "y", "z": "z"}}
    spec = spec_of("multilabel", {"text": "t", "label": "l", "label_separator": "#"}, categories)
    assert kept(spec, {"t": "a", "l": "z#x#z"}).labels == [0, 2]
    assert kept(spec, {"t": "a", "l": ["y"]}).labels == [1]
    assert kept(spec, {"t": "a", "l": ""}).labels == []
    assert refused(spec, {"t": "a", "l": "x#w"})[0] == "unknown category"


def test_a_label_may_be_ignored_among_others() -> None:
    rules = {"text": "t", "label": "l", "label_separator": "#", "ignore_labels": ["none"]}
    spec = spec_of("multilabel", rules, {"label": {"x": "x", "y": "y"}})
    assert kept(spec, {"t": "a", "l": "none#y"}).labels == [1]
    assert kept(spec, {"t": "a", "l": ["none"]}).labels == []


def test_labels_of_one_name_are_one_category() -> None:
    spec = spec_of("classification", {"text": "t", "label": "l"}, {"label": {"A": "yes", "B": "no", "C": "yes"}})
    record = kept(spec, {"t": "a", "l": "C"})
    assert [category.name for category in record.categories] == ["yes", "no"] and record.labels == [0]


def test_a_text_may_be_tokens_or_chunks() -> None:
    categories = {"label": {"x": "x"}}
    tokens = spec_of("classification", {"tokens": "t", "label": "l"}, categories)
    assert kept(tokens, {"t": ["a", "b"], "l": "x"}).text == "a b"
    chunks = spec_of("classification", {"chunks": "c", "label": "l"}, categories)
    assert kept(chunks, {"c": [{"text": "a "}, {"text": "b", "entity": "e"}], "l": "x"}).text == "a b"


def test_a_pair_has_two_texts() -> None:
    spec = spec_of("pair", {"text": "p", "pair": "h", "label": "l"}, {"label": {"0": "entailment"}})
    record = kept(spec, {"p": "A and B.", "h": "B.", "l": 0})
    assert (record.text, record.pair, record.labels) == ("A and B.", "B.", [0])
    assert refused(spec, {"p": "A", "h": "\udfff", "l": 0})[0] == "lone surrogate"


def test_a_value_is_a_finite_number() -> None:
    spec = spec_of("regression", {"text": "t", "pair": "u", "value": "v"}, {"value": [0, 2.5, 5]})
    record = kept(spec, {"t": "a", "u": "b", "v": "3.25"})
    assert (record.text, record.pair) == ("a", "b")
    assert (record.value, [(c.name, c.kind) for c in record.categories]) == (
        3.25,
        [("0", "value"), ("2.5", "value"), ("5", "value")],
    )
    assert refused(spec, {"t": "a", "u": "b", "v": "high"}) == ("not a number", "'v' is 'high'")
    for wrong in ([1], True, "1_0"):
        assert refused(spec, {"t": "a", "u": "b", "v": wrong})[0] == "not a number"
    assert refused(spec, {"t": "a", "u": "b", "v": "nan"})[0] == "no value"
    assert refused(spec, {"t": "a", "u": "b", "v": "inf"})[0] == "no value"
    assert kept(spec, {"t": "a", "u": "b", "v": -3.4e38}).value == -3.4e38
    assert refused(spec, {"t": "a", "u": "b", "v": -1e39})[0] == "no value"  # which files would hold as -inf


@pytest.mark.parametrize("target", ["", " \n\u00a0", "\u200b\ufeff"])
def test_a_target_that_shows_nothing_is_none(target: str) -> None:
    spec = spec_of("seq2seq", {"text": "t", "target": "u"})
    assert refused(spec, {"t": "a", "u": target}) == ("no target", f"target is {target!r}")


def test_a_text_alone_may_have_mentions() -> None:
    spec = spec_of("text", {"text": "t", "spans": {"each": "m[]", "start": "from", "end": "to"}})
    record = kept(spec, {"t": "Ada wrote.", "m": [{"from": 0, "to": 3}]})
    assert (record.spans, record.categories) == ([Span(0, 3)], ())


def test_a_text_to_generate_and_a_text_alone() -> None:
    assert kept(spec_of("seq2seq", {"text": "t", "target": "u"}), {"t": "a", "u": "b"}).target == "b"
    assert kept(spec_of("text", {"text": "t"}), {"t": "a"}).text == "a"
    spec = spec_of("seq2seq", {"text": "t", "pair": ["p", "q[]"], "join": " / ", "target": "u"})
    record = kept(spec, {"t": "a", "p": "b", "q": ["d", "e"], "u": "c"})
    assert (record.text, record.pair, record.target) == ("a", "b / d / e", "c")


# tags

TAGGED = spec_of("ner", {"tokens": "w", "tags": "g"}, {"entity": {"PER": "person", "LOC": "place"}})


def test_spaces_between_words_may_be_several() -> None:
    assert kept(TAGGED, {"w": "Ada  left ", "g": "B-PER  O "}).spans == [Span(0, 3, 0)]


def test_only_a_space_is_between_words() -> None:
    record = kept(TAGGED, {"w": "New\N{NO-BREAK SPACE}York rains", "g": "B-LOC O"})
    assert [covered(record, span) for span in record.spans] == ["New\N{NO-BREAK SPACE}York"]


def test_tags_become_spans_of_the_joined_tokens() -> None:
    row = {"w": ["Ann", "Lee", "left", "New", "York"], "g": ["B-PER", "I-PER", "O", "B-LOC", "I-LOC"]}
    record = kept(TAGGED, row)
    assert record.text == "Ann Lee left New York"
    assert record.spans == [Span(0, 7, 0), Span(13, 21, 1)]
    assert record.categories == (Category("person", "entity"), Category("place", "entity"))


def test_tokens_and_tags_may_be_strings_of_words() -> None:
    assert kept(TAGGED, {"w": "in Rome ", "g": "O B-LOC"}).spans == [Span(3, 7, 1)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"w": ["a", "b"], "g": ["O"]}, "wrong number of tags"),
        ({"w": ["a", ""], "g": ["O", "O"]}, "empty token"),
        ({"w": ["a"], "g": ["B-ORG"]}, "unknown category"),
        ({"w": ["a"], "g": ["I-PER"]}, "tags out of order"),
        ({"w": ["a", 1], "g": ["O", "O"]}, "wrong type"),
        ({"w": [["a"], "b"], "g": ["O", "O"]}, "wrong type"),
    ],
)
def test_tags_that_say_nothing_clear_are_refused(row: dict[str, Any], reason: str) -> None:
    assert refused(TAGGED, row)[0] == reason


# chunks


def test_chunks_make_up_the_text() -> None:
    spec = spec_of("ner", {"chunks": "data"}, {"entity": {"city": "city"}})
    record = kept(spec, {"data": [{"text": "Rain in "}, {"text": "São Paulo", "entity": "city"}, {"text": "?"}]})
    assert record.text == "Rain in São Paulo?"
    assert [covered(record, span) for span in record.spans] == ["São Paulo"]
    assert refused(spec, {"data": [{"text": "a", "entity": "street"}]})[0] == "unknown category"
    assert refused(spec, {"data": ["a"]})[0] == "missing field"
    assert refused(spec, {"data": [{"text": "a"}, {"text": "", "entity": "city"}]})[0] == "span outside its text"


# questions

QA = spec_of("qa", {"text": "c", "question": "q", "answers": "a", "unanswerable": "no"})


def ask(answers: list[Any], no: bool = False) -> dict[str, Any]:
    return {"c": "Ann met Bob. Bob left.", "q": "Who left?", "a": answers, "no": no}


def test_distinct_answers_are_all_kept_once() -> None:
    answers = [{"text": "Bob", "answer_start": start} for start in (13, 8, 13)]
    record = kept(QA, ask(answers))
    assert record.categories == (Category("Who left?", "question"),)
    assert record.spans == [Span(13, 16, 0), Span(8, 11, 0)]


def test_an_unanswerable_question_has_no_span() -> None:
    assert kept(QA, ask([], no=True)).spans == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ask([]), "no answer"),
        (ask([{"text": "Bob", "answer_start": 8}], no=True), "answer to an unanswerable question"),
        (ask([{"text": "Bob", "answer_start": 7}]), "mention doesn't match its offsets"),
        (ask([{"text": "left.!", "answer_start": 17}]), "mention isn't in the text"),
        (ask([{"text": "nobody", "answer_start": -1}]), "mention isn't in the text"),
        (ask([{"text": "left.", "answer_start": 18}]), "span outside its text"),
        (ask([{"text": "Bob", "answer_start": -5}]), "span outside its text"),
        (ask([{"text": "", "answer_start": 5}]), "span outside its text"),
        (ask([{"text": "Bob"}]), "missing field"),
        ({**ask([]), "q": " "}, "empty question"),
        ({**ask([], no=True), "q": "\ud800?"}, "lone surrogate"),
    ],
)
def test_a_question_that_cannot_be_trained_on_is_refused(content: dict[str, Any], reason: str) -> None:
    assert refused(QA, content)[0] == reason


def test_a_wrong_answer_is_reported_by_its_number_of_all() -> None:
    answers = [{"text": "Bob", "answer_start": start} for start in (8, 13, 7)]
    assert refused(QA, ask(answers))[1] == "answer 2 says 'Bob', but the text at 7 is ' Bo'"
    assert refused(QA, ask(answers[:2], no=True))[1] == "2 answers, expected none"


@pytest.mark.parametrize("mark", [True, 1, "true", "True", "TRUE", "1"])
def test_a_mark_of_an_unanswerable_question_may_be_a_string(mark: Any) -> None:
    bob = {"text": "Bob", "answer_start": 8}
    assert kept(QA, {**ask([]), "no": mark}).spans == []
    assert refused(QA, {**ask([bob]), "no": mark})[0] == "answer to an unanswerable question"


@pytest.mark.parametrize("mark", [False, 0, "false", "False", "FALSE", "0", "", None])
def test_a_mark_of_an_answerable_question_may_be_a_string_or_absent(mark: Any) -> None:
    bob = {"text": "Bob", "answer_start": 8}
    optional = spec_of("qa", {"text": "c", "question": "q", "answers": "a", "unanswerable": "no?"})
    assert kept(optional, {**ask([bob]), "no": mark}).spans == [Span(8, 11, 0)]
    assert refused(optional, {**ask([]), "no": mark})[0] == "no answer"


@pytest.mark.parametrize("mark", ["no", "2", 2, -1, 0.5, [], {}])
def test_a_mark_that_is_neither_true_nor_false_is_refused(mark: Any) -> None:
    detail = f"'no' is {mark!r}, expected true or false"
    assert refused(QA, {**ask([]), "no": mark}) == ("wrong type", detail)


def test_without_the_mark_every_question_needs_an_answer() -> None:
    spec = spec_of("qa", {"text": "c", "question": "q", "answers": "a"})
    assert refused(spec, ask([], no=True))[0] == "no answer"


# standoff

CATEGORIES = {
    "entity": {"Person": "person", "Firm": "company"},
    "relation": [
        {"label": "of", "name": "works for", "head": "Person", "tail": "Firm"},
        {"label": "of", "name": "part of"},
    ],
    "event": {
        "Hire": {"name": "hiring", "roles": {"Who": "person hired"}},
        "Say": {"name": "saying", "roles": {"What": "what"}},
    },
}
TEXT = "Ann joined Acme\nInc, they say."
SPANS = [
    {"id": "T1", "label": "Person", "fragments": [[0, 3]], "text": "Ann"},
    {"id": "T2", "label": "Firm", "fragments": [[11, 19]], "text": "Acme Inc"},
]


def standoff_of(task: str, **more: Any) -> DatasetSpec:
    return spec_of(task, {"text": "text", "standoff": "standoff", **more}, CATEGORIES)


def document(spans: list[dict[str, Any]] = SPANS, **kinds: Any) -> dict[str, Any]:
    return {"text": TEXT, "standoff": {"spans": spans, **kinds}}


def of(head: str, tail: str) -> dict[str, Any]:
    return {"id": "R1", "label": "of", "head": head, "tail": tail}


def test_relations_join_mentions_by_index_with_the_category_of_their_types() -> None:
    record = kept(standoff_of("relation"), document(relations=[of("T1", "T2"), of("T2", "T1")]))
    assert record.spans == [Span(0, 3, 0), Span(11, 19, 1)]
    names = [record.categories[relation.category] for relation in record.relations]
    assert record.relations[0] == Relation(0, 1, 2) and record.relations[1] == Relation(1, 0, 3)
    assert names == [Category("works for", "relation", "person", "company"), Category("part of", "relation")]


def test_fragments_of_a_mention_share_a_group_and_its_first_represents_it() -> None:
    apart = {"id": "T3", "label": "Firm", "fragments": [[0, 3], [16, 19]], "text": "Ann Inc"}
    record = kept(standoff_of("relation"), document([apart, *SPANS], relations=[of("T1", "T3")]))
    assert record.spans[:2] == [Span(0, 3, 1, group=0), Span(16, 19, 1, group=0)]
    assert record.relations == [Relation(2, 0, 2)]


def test_events_nest_by_index() -> None:
    triggers = [
        {"id": "T3", "label": "Say", "fragments": [[26, 29]], "text": "say"},
        {"id": "T4", "label": "Hire", "fragments": [[4, 10]], "text": "joined"},
    ]
    events = [
        {"id": "E1", "label": "Say", "trigger": "T3", "arguments": [{"role": "What", "target": "E2"}]},
        {"id": "E2", "label": "Hire", "trigger": "T4", "arguments": [{"role": "Who2", "target": "T1"}]},
    ]
    record = kept(standoff_of("event"), document([*SPANS, *triggers], events=events))
    hired = record.categories.index(Category("person hired", "role", event="hiring"))
    said = record.categories.index(Category("what", "role", event="saying"))
    hiring, saying = (record.categories.index(Category(name, "event")) for name in ("hiring", "saying"))
    assert record.events == [
        Event(saying, 2, [Argument(said, event=1)]),
        Event(hiring, 3, [Argument(hired, span=0)]),
    ]
    assert record.spans[2].category == saying


HIRE = {"id": "E1", "label": "Hire", "trigger": "T1", "arguments": []}


@pytest.mark.parametrize(
    ("task", "content", "reason"),
    [
        ("ner", document(attributes=[{"id": "A1"}]), "annotation that a record cannot hold"),
        ("ner", document(notes=[{"id": "N1"}]), "annotation that a record cannot hold"),
        ("event", document(equivalences=[{"targets": ["T1", "T2"]}]), "annotation that a record cannot hold"),
        ("ner", document(relations=[of("T1", "T2")]), "annotation that a record cannot hold"),
        ("relation", document(events=[HIRE]), "annotation that a record cannot hold"),
        ("ner", document([{**SPANS[0], "label": "Place"}]), "unknown category"),
        ("ner", document([{**SPANS[0], "text": "Bob"}]), "mention doesn't match its offsets"),
        ("ner", document([{**SPANS[0], "fragments": [[0, 99]]}]), "span outside its text"),
        ("ner", document([{**SPANS[0], "fragments": [[3, 3]]}]), "span outside its text"),
        ("ner", document([{**SPANS[0], "fragments": []}]), "wrong type"),
        ("ner", document([{"id": "T1", "label": "Person"}]), "wrong type"),
        ("ner", {"text": TEXT, "standoff": {"spans": 3}}, "wrong type"),
        ("relation", document(relations=[of("T1", "T9")]), "dangling relation"),
        ("relation", document(relations=[{**of("T1", "T2"), "label": "near"}]), "unknown category"),
        ("event", document(events=[{**HIRE, "label": "Fire"}]), "unknown category"),
        ("event", document(events=[{**HIRE, "trigger": "T9"}]), "dangling event"),
        ("event", document(events=[HIRE, HIRE]), "bad annotation"),
        (
            "event",
            document(events=[{**HIRE, "arguments": [{"role": "Who", "target": "E9"}]}]),
            "dangling event",
        ),
        (
            "event",
            document(events=[{**HIRE, "arguments": [{"role": "Why", "target": "T1"}]}]),
            "unknown category",
        ),
    ],
)
def test_annotations_that_a_record_cannot_hold_refuse_it(task: str, content: dict[str, Any], reason: str) -> None:
    assert refused(standoff_of(task), content)[0] == reason


def test_a_spec_says_what_it_leaves_out() -> None:
    place = {"id": "T3", "label": "Place", "fragments": [[0, 3]], "text": "Ann"}
    content = document([*SPANS, place], attributes=[{"id": "A1"}], relations=[of("T1", "T2")])
    spec = standoff_of("ner", ignore=["attributes", "relations"], ignore_labels=["Place"])
    assert kept(spec, content).spans == [Span(0, 3, 0), Span(11, 19, 1)]
    both = document(relations=[of("T1", "T2")], events=[HIRE])
    spec = standoff_of("event", ignore=["relations"])
    assert (kept(spec, both).relations, len(kept(spec, both).events)) == ([], 1)
    spec = standoff_of("event", ignore_labels=["of", "Hire"])
    assert (kept(spec, both).relations, kept(spec, both).events) == ([], [])


def test_relations_of_coreference_join_clusters() -> None:
    spec = spec_of("coref", {"text": "text", "standoff": "standoff"})
    assert [span.group for span in kept(spec, document()).spans] == [0, 1]
    assert [span.group for span in kept(spec, document(relations=[of("T1", "T2")])).spans] == [0, 0]


def test_ends_that_are_inclusive_and_roles_that_are_ignored_are_those_of_standoff_too() -> None:
    spans = [{**SPANS[0], "fragments": [[0, 2]]}, {**SPANS[1], "fragments": [[11, 14], [16, 18]]}]
    hire = {**HIRE, "arguments": [{"role": "Who", "target": "T1"}, {"role": "Why", "target": "T2"}]}
    spec = standoff_of("event", offsets={"end": "inclusive"}, ignore_labels=["Why"])
    record = kept(spec, document(spans, events=[hire]))
    assert [(span.start, span.end) for span in record.spans] == [(0, 3), (11, 15), (16, 19)]
    assert [argument.span for argument in record.events[0].arguments] == [0]


@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        (["none", "head", "tail", "both"], "both"),
        (["none", "tail", "head"], "head"),
        (["none", "tail"], "tail"),
        (["none"], "none"),
    ],
)
def test_a_relation_is_of_the_closest_types_that_a_spec_states(stated: list[str], meant: str) -> None:
    """Both types before one, the head's before the tail's, and one before none."""
    types = {
        "none": {},
        "head": {"head": "Person"},
        "tail": {"tail": "Firm"},
        "both": {"head": "Person", "tail": "Firm"},
    }
    relations = [{"label": "of", "name": which, **types[which]} for which in stated]
    spec = spec_of(
        "relation", {"text": "text", "standoff": "standoff"}, {**CATEGORIES, "event": {}, "relation": relations}
    )
    record = kept(spec, document(relations=[of("T1", "T2")]))
    assert record.categories[record.relations[0].category].name == meant


def test_records_of_every_shape_survive_arrow() -> None:
    rows = [
        kept(LABEL, {"t": "a", "l": "1"}),
        kept(TAGGED, {"w": ["Ann"], "g": ["B-PER"]}),
        kept(QA, ask([{"text": "Bob", "answer_start": 8}])),
        kept(standoff_of("relation"), document(relations=[of("T1", "T2")])),
        kept(standoff_of("event"), document(events=[{**HIRE, "arguments": [{"role": "Who", "target": "T1"}]}])),
    ]
    assert list(batch_to_records(records_to_batch(rows))) == rows
