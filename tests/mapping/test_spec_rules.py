"""Rules of a spec: clean fields, choose rows and annotations, compose ids. Impossible rules are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from test_mapping import kept, refused, spec_of
from test_notices import ingested

from pipelines.mapping.clean import cleaner
from pipelines.mapping.conditions import row_filter
from pipelines.mapping.refused import RefusedError
from pipelines.sources import RawRow
from ubert.schema.record import Category, Record, Task
from ubert.schema.specs.mapping import Mapping
from ubert.schema.specs.rules import Clean

LABEL = {"label": {"x": "x", "y": "y"}}
PEOPLE = {"entity": {"buyer": "buyer", "seller": "seller"}}


def labelled(clean: dict[str, Any], **fields: Any) -> Record:
    """The record of a row whose label may be absent."""
    given = {"text": "t", "label": "l", "clean": clean}
    return kept(spec_of("multilabel", given, LABEL), {"t": "a", "l": [], **fields})


@pytest.mark.parametrize(
    ("how", "given", "text"),
    [
        ({"strip": True}, " a b\n", "a b"),
        ({"strip": "*"}, "*a*b*", "a*b"),
        ({"replace": {"&amp;": "&", "<br>": "\n"}}, "a<br>&amp;b", "a\n&b"),
        ({"regex": {r"\[\d+\]": "", r"(\w)@(\w)": r"\1 at \2"}}, "a[12] b@c", "a b at c"),
        ({"strip": True, "regex": {"^-": ""}}, " -a", "a"),
        ({"parse": "json"}, '"a"', "a"),
        ({"regex": {"^$": "nothing"}}, "", "nothing"),
        ({"replace": {"a": "b", "b": "c"}}, "ab", "cc"),
    ],
)
def test_a_field_is_cleaned(how: dict[str, Any], given: str, text: str) -> None:
    assert labelled({"t": how}, t=given).text == text


@pytest.mark.parametrize(
    ("how", "given", "labels"),
    [
        ({"parse": "python"}, "['x', 'y']", [0, 1]),
        ({"parse": "python"}, "('y',)", [1]),
        ({"parse": "python"}, "[]", []),
        ({"parse": "json"}, '["x"]', [0]),
        ({"parse": "python", "strip": True, "replace": {"z": "x"}}, "[' y', 'z ']", [0, 1]),
        ({"strip": True}, [" x"], [0]),
    ],
)
def test_a_list_may_be_a_string_and_its_items_are_cleaned(how: dict[str, Any], given: Any, labels: Any) -> None:
    assert labelled({"l": how}, l=given).labels == labels


def test_tokens_and_fields_of_items_are_cleaned() -> None:
    given = {
        "tokens": "words",
        "tags": "tags",
        "clean": {"words": {"replace": {"-LRB-": "("}}, "tags[]": {"regex": {"^U-": "B-"}}},
    }
    record = kept(spec_of("ner", given, PEOPLE), {"words": ["-LRB-", "Ada"], "tags": ["O", "U-buyer"]})
    assert (record.text, len(record.spans)) == ("( Ada", 1)


def test_a_literal_null_is_nothing() -> None:
    spec = spec_of("pair", {"text": "t", "pair": "p", "label": "l", "clean": {"p": {"nulls": ["NULL"]}}}, LABEL)
    assert kept(spec, {"t": "a", "p": "b", "l": "x"}).pair == "b"
    assert refused(spec, {"t": "a", "p": "NULL", "l": "x"})[0] == "missing field"
    how = {"strip": "*", "replace": {"-": ""}, "regex": {"(?i)null": "NULL"}, "nulls": ["NULL"]}
    spec = spec_of("pair", {"text": "t", "pair": "p", "label": "l", "clean": {"p": how}}, LABEL)
    assert refused(spec, {"t": "a", "p": "*null-*", "l": "x"})[0] == "missing field"


@pytest.mark.parametrize(
    ("how", "given", "reason", "detail"),
    [
        ({"parse": "python"}, "['x' 'y']", "not python", "there is no comma between two strings"),
        ({"parse": "python"}, "['x'\n 'y']", "not python", "there is no comma between two strings"),
        ({"parse": "python"}, "['x'", "not python", "'l' is"),
        ({"parse": "python"}, "open('x')", "not python", "'l' is"),
        ({"parse": "python"}, "{'x'}", "not python", "a set is neither a list nor an object"),
        ({"parse": "python"}, "[" * 5000, "not python", "'l' is"),
        ({"parse": "json"}, "{'x': 1}", "not json", "'l' is"),
        ({"parse": "json"}, '[{"x": 1, "x": 2}]', "not json", "an object has a key more than once"),
        ({"parse": "json", "nulls": ["nan"]}, "nan", "missing field", "l is null"),
    ],
)
def test_what_cannot_be_parsed_is_refused(how: dict[str, Any], given: str, reason: str, detail: str) -> None:
    spec = spec_of("multilabel", {"text": "t", "label": "l", "clean": {"l": how}}, LABEL)
    found = refused(spec, {"t": "a", "l": given})
    assert found[0] == reason and detail in found[1]


def test_a_cleaned_field_must_be_there_unless_it_may_be_absent() -> None:
    given = {"text": "t", "label": "l"}
    row = {"t": "a", "l": "x"}
    assert kept(spec_of("multilabel", {**given, "clean": {"note?": {"strip": True}}}, LABEL), row)
    spec = spec_of("multilabel", {**given, "clean": {"note": {"strip": True}}}, LABEL)
    assert refused(spec, row)[1] == "no 'note' in the row: it has t, l"
    with pytest.raises(ValidationError, match="not a regular expression"):
        spec_of("multilabel", {**given, "clean": {"t": {"regex": {"(": ""}}}}, LABEL)


@pytest.mark.parametrize("new", ["\\2", "\\g<name>", "\\d", "\\"])
def test_a_replacement_must_fit_its_pattern(new: str) -> None:
    given = {"text": "t", "label": "l", "clean": {"t": {"regex": {"(a)": new}}}}
    with pytest.raises(ValidationError, match="can't replace what '\\(a\\)' matches"):
        spec_of("multilabel", given, LABEL)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[\"it's 'x' 'y'\"]", ["it's 'x' 'y'"]),
        ("['x',\n 'y']", ["x", "y"]),
        (" (1, 2.5, None, True) ", [1, 2.5, None, True]),
        ("{1: ('a', {'b': ()})}", {"1": ["a", {"b": []}]}),
    ],
)
def test_a_literal_of_python_becomes_a_value_of_json(written: str, value: Any) -> None:
    assert cleaner({"a": Clean(parse="python")})({"a": written}) == {"a": value}


def test_a_path_cleans_all_that_it_leads_to_in_a_copy() -> None:
    row = {"o": {"a": [{"t": " x "}, {"t": "y "}], "b": [{"t": " z", "u": " "}]}, "n": 0, "t": " t "}
    before = json.dumps(row)
    clean = cleaner({"o.{key}[].t": Clean(strip=True), "p?.t": Clean(strip=True), "n": Clean(strip=True)})
    assert clean(row) == {**row, "o": {"a": [{"t": "x"}, {"t": "y"}], "b": [{"t": "z", "u": " "}]}}
    second = cleaner({"o.a.1.t": Clean(strip=True), "o.b.{place}.t": Clean(strip=True)})
    assert second(row) == {**row, "o": {"a": [{"t": " x "}, {"t": "y"}], "b": [{"t": "z", "u": " "}]}}
    assert json.dumps(row) == before
    for path, reason in (("t[]", "wrong type"), ("o.c", "missing field"), ("o.a.2", "missing field")):
        with pytest.raises(RefusedError) as error:
            cleaner({path: Clean(strip=True)})(row)
        assert error.value.reason == reason


@pytest.mark.parametrize(
    ("value", "empty"),
    [([], True), ({}, True), (" \n", True), (None, True), (0, False), (False, False), ([""], False), ("a", False)],
)
def test_what_has_nothing_in_it_is_empty(value: Any, empty: bool) -> None:
    for asked in (True, False):
        wanted = row_filter(spec_of("text", {"text": "t", "when": {"k": {"empty": asked}}}).map)
        assert wanted(RawRow(1, "x:1", {"t": "a", "k": value})) == (empty == asked)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"draft": "no", "lang": "en"}, True),
        ({"draft": "no", "lang": "de"}, True),
        ({"draft": "yes", "lang": "en"}, False),
        ({"draft": "no", "lang": "fr"}, False),
        ({"lang": "en"}, True),  # which is then refused, and counted so
    ],
)
def test_a_row_passes_all_tests_or_cannot_be_tested(fields: dict[str, str], wanted: bool) -> None:
    passes = row_filter(spec_of("text", {"text": "t", "when": {"draft": "no", "lang": ["en", "de"]}}).map)
    assert passes(RawRow(1, "x:1", {"t": "a", **fields})) == wanted


MENTIONED = [{"n": "a", "k": "x"}, {"n": "b", "k": ""}, {"n": "c"}, {"n": "d", "k": None}, {"n": "e", "k": "y"}]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("x", "a"),
        (["x", "y"], "ae"),
        ({"equal": "x", "exists": True}, "a"),
        ({"not_equal": "x"}, "bcde"),
        ({"not_equal": ["x", "y"], "exists": True}, "b"),
        ({"exists": True}, "abe"),
        ({"exists": False}, "cd"),
        ({"empty": True}, "bcd"),
        ({"empty": False}, "ae"),
    ],
)
def test_annotations_are_taken_when_a_field_passes(condition: Any, words: str) -> None:
    key = "k?" if isinstance(condition, str | list) else "k"
    spans = {"each": "m[]", "words": "n", "as": "buyer", "when": {key: condition}}
    given = {"text": "t", "spans": spans, "offsets": {"locate": "unique"}}
    record = kept(spec_of("ner", given, PEOPLE), {"t": "a b c d e", "m": MENTIONED})
    assert "".join(record.text[span.start : span.end] for span in record.spans) == words


def test_rows_that_fail_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        {"text": "0", "label": 0},
        {"text": "1", "label": "NULL"},
        {"text": "2"},
        {"text": "3", "label": 1, "draft": True},
        {"text": "4", "label": 1, "draft": False},
    ]
    given = {
        "text": "text",
        "label": "label",
        "clean": {"label?": {"nulls": ["NULL"]}},
        "when": {"label": {"exists": True}, "draft": {"not_equal": "true"}},
    }
    [split] = ingested(tmp_path, {"map": given}, rows).splits
    assert (split.records, split.kept, split.warnings) == (2, 2, {"row left out by `when`": 3})


def test_a_row_without_the_field_that_decides_is_refused() -> None:
    spec = spec_of("multilabel", {"text": "t", "label": "l", "when": {"draft": "no"}}, LABEL)
    assert refused(spec, {"t": "a", "l": "x"})[0] == "missing field"


DEAL: dict[str, Any] = {
    "text": "Ada and Bob sold to Eve",
    "buyers": [{"id": 1, "name": "Eve"}],
    "sellers": [{"id": 1, "name": "Ada"}, {"id": 1, "name": "Bob"}],
}


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, [0, 0, 0]),  # one cluster of all three: ids restart in each role
        ({"scope": "entry"}, [0, 1, 1]),
        ({"id": ["role", "id"]}, [0, 1, 1]),
        ({"id": ["role", "absent?"]}, [0, 1, 2]),
        ({"scope": "entry", "id": "absent?"}, [0, 1, 2]),
    ],
)
def test_ids_have_a_scope_and_several_fields(changes: dict[str, Any], groups: list[int]) -> None:
    entries = [
        {"each": f"{role}s[]", "id": "id", "words": "name", "as": role, **changes} for role in ("buyer", "seller")
    ]
    given = {"text": "text", "spans": entries, "offsets": {"locate": "unique"}}
    sides = {f"{role}s": [{**each, "role": role} for each in DEAL[f"{role}s"]] for role in ("buyer", "seller")}
    record = kept(spec_of("coref", given), {**DEAL, **sides})
    assert [span.group for span in record.spans] == groups


def test_composed_ids_are_referred_to() -> None:
    given = {
        "text": "text",
        "spans": {"each": "{role}[]", "id": ["{role}", "id"], "words": "name", "as": "buyer"},
        "relations": {"each": "pays[]", "as": "pays", "head": ["from", "n"], "tail": ["to", "m"]},
        "offsets": {"locate": "unique"},
    }
    categories = {**PEOPLE, "relation": [{"label": "pays", "name": "pays"}]}
    row = {"buyers": DEAL["buyers"], "sellers": DEAL["sellers"][:1]}
    given["spans"] = {**given["spans"], "each": "who.{role}[]"}  # type: ignore[dict-item]
    pays = [{"from": "buyers", "n": 1, "to": "sellers", "m": 1}]
    record = kept(spec_of("relation", given, categories), {"text": DEAL["text"], "who": row, "pays": pays})
    [relation] = record.relations
    words = [record.text[span.start : span.end] for span in record.spans]
    assert (words[relation.head], words[relation.tail]) == ("Eve", "Ada")


def test_events_may_share_a_label_and_be_chosen() -> None:
    given = {
        "text": "t",
        "events": {
            "as": "sale",
            "when": {"verb": {"exists": True}},
            "trigger": {"words": "verb"},
            "arguments": {"each": "who[]", "as": "buyer", "target": {"words": ".", "as": "buyer"}},
        },
        "offsets": {"locate": "unique"},
    }
    categories = {**PEOPLE, "event": {"sale": {"name": "sale", "roles": {"buyer": "buyer"}}}}
    spec = spec_of("event", given, categories)
    record = kept(spec, {"t": "Eve buys it", "verb": "buys", "who": ["Eve"]})
    assert [(event.trigger, len(event.arguments)) for event in record.events] == [(0, 1)]
    assert record.categories[record.events[0].category].name == "sale"
    assert kept(spec, {"t": "Eve waits", "verb": None}).events == []
    with pytest.raises(ValidationError, match="expected label or as"):
        spec_of("event", {"text": "t", "events": {"trigger": {"words": "v"}}}, categories)


@pytest.mark.parametrize(
    ("task", "given", "kind"),
    [
        ("classification", {"text": "t", "label": "l"}, "label"),
        ("multilabel", {"text": "t", "label": "l"}, "label"),
        ("pair", {"text": "t", "pair": "p", "label": "l"}, "label"),
        ("ner", {"text": "t", "spans": {"words": "w"}}, "entity"),
        ("relation", {"text": "t", "standoff": "s"}, "relation"),
        ("event", {"text": "t", "standoff": "s"}, "event"),
        ("regression", {"text": "t", "value": "v"}, "value"),
    ],
)
def test_a_task_needs_categories_of_its_kind(task: str, given: dict[str, Any], kind: str) -> None:
    others = {name: names for name, names in (LABEL | PEOPLE).items() if name != kind}
    with pytest.raises(ValidationError, match=f"task {task} needs `{kind}`"):
        spec_of(task, given, others)


def test_categories_of_the_row_or_of_all_rows_take_the_place_of_named_ones() -> None:
    given = {"text": "t", "label": "l"}
    assert not spec_of("multilabel", {**given, "candidates": "c"}).categories.all()
    open_kinds = {"from_data": ["entity"], "label": "from_data"}
    assert spec_of("multilabel", given, open_kinds).categories.from_data == ["entity", "label"]
    assert not spec_of("multilabel", given, {"label": "from_data"}).categories.all()
    with pytest.raises(ValidationError, match="task multilabel needs `label`"):
        spec_of("multilabel", given, {"entity": "from_data"})
    filled = {"text": "t", "events": {"label": "k", "arguments": {"each": "a[]", "role": "r", "target": "w"}}}
    with pytest.raises(ValidationError, match="task ner needs `event`"):
        spec_of("ner", filled, {**PEOPLE, "fillers": "{role} of {event}"})


def test_categories_are_in_the_order_of_their_kinds_and_each_is_once() -> None:
    """Records refer to them by their numbers."""
    given = {
        "value": [1, 2.5],
        "event": {
            "b": {"name": "hit", "roles": {"y": "whom", "x": "who"}},
            "a": {"name": "trial", "roles": {"x": "who", "z": "who"}},
        },
        "relation": [
            {"label": "r", "name": "knows", "head": "q"},
            {"label": "s", "name": "knows", "head": "p"},
            {"label": "r", "name": "knows", "tail": "p"},
            "r",
        ],
        "entity": {"q": "person", "p": "person"},
        "label": {"1": "good", "0": "bad"},
    }
    assert spec_of("event", {"text": "t", "standoff": "s"}, given).categories.all() == (
        Category("good", "label"),
        Category("bad", "label"),
        Category("person", "entity"),
        Category("knows", "relation", head="person"),
        Category("knows", "relation", tail="person"),
        Category("r", "relation"),
        Category("hit", "event"),
        Category("trial", "event"),
        Category("whom", "role", event="hit"),
        Category("who", "role", event="hit"),
        Category("who", "role", event="trial"),
        Category("1", "value"),
        Category("2.5", "value"),
    )


@pytest.mark.parametrize(
    ("path", "valid"),
    [
        *(
            (path, True)
            for path in (".", "/.", "a.b[].c", "/{x}[].a", "{x}.{y}", '/a."b..{"?', '"a.""b"[]."c"', 'a"b')
        ),
        *((path, False) for path in ("", "/", "a.", "/a.", "a..b", "a{x", "ax}", '"a.b', '/"a', 'a."b"c', '""')),
    ],
)
def test_a_path_is_keys_joined_by_dots(path: str, valid: bool) -> None:
    if valid:
        assert spec_of("text", {"text": path}).map.text == [path]
    else:
        with pytest.raises(ValidationError, match="expected keys joined by dots"):
            spec_of("text", {"text": path})


@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        *((fields, True) for fields in ("words", "start end", "start words", "start end words", "indices")),
        *((fields, True) for fields in ("fragments", "fragments words", "label words", "as words")),
        *((fields, False) for fields in ("", "label", "start", "end", "end words", "end fragments")),
        *((fields, False) for fields in ("start end indices", "start end fragments", "fragments indices")),
        ("label as words", False),
    ],
)
def test_a_mention_has_one_place_and_one_label(fields: str, valid: bool) -> None:
    given = {"text": "t", "spans": dict.fromkeys(fields.split(), "x")}
    if valid:
        assert spec_of("ner", given, PEOPLE).map.spans
    else:
        with pytest.raises(ValidationError, match=r"Value error, (expected|start needs)"):
            spec_of("ner", given, PEOPLE)


@pytest.mark.parametrize("fields", ["", "role as"])
def test_an_event_and_an_argument_are_named_by_one_key(fields: str) -> None:
    categories = {"event": {"x": {"name": "x"}}}
    argument = {"each": "a[]", "target": "w"}
    assert spec_of("event", {"text": "t", "events": {"as": "x", "arguments": {**argument, "as": "y"}}}, categories)
    named = dict.fromkeys(fields.split(), "x")
    with pytest.raises(ValidationError, match="expected role or as"):
        spec_of("event", {"text": "t", "events": {"as": "x", "arguments": {**argument, **named}}}, categories)
    named = {name.replace("role", "label"): "x" for name in named}
    with pytest.raises(ValidationError, match="expected label or as"):
        spec_of("event", {"text": "t", "events": named}, categories)


@pytest.mark.parametrize(
    ("task", "given", "idle"),
    [
        ("pair", {"tokens": "t", "pair": ["p", "q"], "label": "l", "join": " "}, None),
        ("classification", {"tokens": "t", "label": "l", "join": " "}, "join"),
        ("classification", {"text": "t", "label": "l", "glue": ""}, "glue"),
        ("classification", {"tokens": "t", "label": "l", "glue": ""}, None),
        ("multilabel", {"text": "t", "label": "l", "label_separator": ";"}, None),
        (
            "multilabel",
            {"text": "t", "candidates": "c", "candidate_flags": "f", "label_separator": ";"},
            "label_separator",
        ),
        (
            "multilabel",
            {"text": "t", "candidates": "c", "candidate_flags": "f", "ignore_labels": ["o"]},
            "ignore_labels",
        ),
        ("multilabel", {"text": "t", "candidates": "c", "label": "l", "candidate_keys": "k"}, None),
        (
            "ner",
            {"text": "t", "spans": {"words": "w"}, "ignore_labels": ["o"], "offsets": {"base": "document"}},
            None,
        ),
        ("ner", {"tokens": "t", "tags": "g", "ignore_labels": ["o"], "scheme": "IO"}, None),
        ("ner", {"tokens": "t", "tags": "g", "offsets": {"unit": "token"}}, "offsets"),
        ("ner", {"tokens": "t", "spans": {"words": "w"}, "scheme": "IO"}, "scheme"),
        ("ner", {"text": "t", "standoff": "s", "ignore": ["notes"], "ignore_labels": ["o"]}, None),
        ("ner", {"text": "t", "spans": {"words": "w"}, "ignore": ["notes"]}, "ignore"),
        ("qa", {"text": "t", "question": "q", "answers": "a", "offsets": {"locate": "first"}}, None),
        ("qa", {"text": "t", "question": "q", "answers": "a", "ignore": [], "glue": ""}, "glue, ignore"),
        ("text", {"text": "t", "offsets": {"locate": "first"}}, "offsets"),
    ],
)
def test_a_key_that_changes_nothing_is_refused(task: str, given: dict[str, Any], idle: str | None) -> None:
    if idle is None:
        assert spec_of(task, given, LABEL | PEOPLE)
    else:
        with pytest.raises(ValidationError, match=f"Value error, {idle}: no effect here"):
            spec_of(task, given, LABEL | PEOPLE)


PARTS: dict[str, Any] = {
    "label_flags": ["x", "y"],
    "spans": {"words": "w"},
    "relations": {"head": "h", "tail": "t"},
    "links": {"head": "h", "tail": "t"},
    "events": {"as": "x"},
    "token_relations": {"labels": "l", "numbers": "n", "lead_to": "head"},
}
FORMS: dict[
    Task, tuple[list[str], list[str]]
] = {  # what a task may be mapped from beside the text, and what it may not
    "classification": (
        ["label", "label_flags", "label candidates", "candidates candidate_flags"],
        ["candidates", "pair label", "label label_flags"],
    ),
    "multilabel": (
        ["label", "label_flags", "label candidates", "candidates candidate_flags"],
        ["candidate_flags", "tags label", "label_flags candidates"],
    ),
    "pair": (["pair label", "pair label candidates", "pair candidates candidate_flags"], ["pair", "label"]),
    "choice": (
        ["candidates label", "candidates label pair", "candidates candidate_flags"],
        ["label", "candidates"],
    ),
    "regression": (["value", "value pair"], ["pair", "value label"]),
    "ner": (
        ["spans", "standoff", "events", "events spans", "spans candidates", "tokens tags"],
        ["tags", "candidates"],
    ),
    "relation": (
        ["standoff", "relations", "relations spans", "tokens token_relations tags", "tokens relations tags"],
        ["spans", "token_relations", "relations tags", "relations events"],
    ),
    "event": (["standoff", "events", "events spans"], ["spans", "events relations"]),
    "coref": (["spans", "standoff", "spans links"], ["links", "spans relations"]),
    "qa": (["question answers", "question answers unanswerable"], ["question", "answers", "answers unanswerable"]),
    "seq2seq": (["target", "target pair"], ["pair", "", "target label"]),
    "text": (["", "spans", "tokens", "chunks"], ["label", "standoff", "tokens chunks"]),
}


@pytest.mark.parametrize("task", FORMS)
def test_a_task_is_mapped_from_one_of_its_forms(task: Task) -> None:
    def wrong(keys: str) -> str | None:
        given = {key: PARTS.get(key, "x") for key in keys.split()}
        body = {} if {"tokens", "chunks"} & given.keys() else {"text": "t"}
        return Mapping.model_validate(body | given).wrong(task)

    allowed, refused = FORMS[task]
    assert {keys: wrong(keys) for keys in allowed} == dict.fromkeys(allowed)
    assert [keys for keys in refused if wrong(keys) is None] == []
