"""Events as role fillers: mentions of task ner, named by role and event, that need no trigger."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from handmade import ENCODER
from pydantic import ValidationError
from test_mapping import PIECE, kept, refused, spec_of

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow
from ubert.evaluation.round_trip import round_trip
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.checks import covered
from ubert.schema.record import Record

EVENTS: dict[str, Any] = {
    "each": "templates[]",
    "id": "id?",
    "label": "kind",
    "arguments": {"each": "roles[]", "role": "role", "target": "who"},
}
MAP: dict[str, Any] = {
    "text": "text",
    "spans": {"each": "people[]", "id": "id", "fragments": "at"},
    "events": EVENTS,
}
CATEGORIES: dict[str, Any] = {
    "fillers": "{event}: {role}",
    "event": {
        "raid": {"name": "raid", "roles": {"by": "raider", "of": "place", "then": "outcome"}},
        "trial": {"name": "trial", "roles": {"by": "judge"}},
    },
}
# Two mentions of one raider, one of them in two fragments; a person who fills a role of each of two events.
ROW: dict[str, Any] = {
    "text": "Ann and Bob Lee raided Oslo; the Lees lost. Eve judged.",
    "people": [
        {"id": "1", "at": [[0, 3], [12, 15]]},
        {"id": "1", "at": [29, 37]},
        {"id": "2", "at": [23, 27]},
        {"id": "3", "at": [44, 47]},
    ],
    "templates": [
        {
            "kind": "raid",
            "roles": [{"role": "by", "who": "1"}, {"role": "of", "who": "2"}, {"role": "by", "who": "3"}],
        },
        {"kind": "trial", "id": "t", "roles": [{"role": "by", "who": "3"}]},
        {"kind": "raid", "roles": [{"role": "of", "who": "2"}, {"role": "then", "who": "t"}]},
        {"kind": "trial", "roles": []},
    ],
}
FILLED = {
    ("Ann", "raid: raider"),
    ("Lee", "raid: raider"),
    ("the Lees", "raid: raider"),
    ("Oslo", "raid: place"),
    ("Eve", "raid: raider"),
    ("Eve", "trial: judge"),
}


def mentions(record: Record) -> list[tuple[str, str]]:
    return [(covered(record, span), record.categories[span.category or 0].name) for span in record.spans]


def test_fillers_become_mentions_that_come_back_exactly() -> None:
    noticed = Counter[str]()
    record = mapper(spec_of("ner", MAP, CATEGORIES), "train", noticed=noticed)(PIECE, RawRow(7, "a/file:7", ROW))
    assert isinstance(record, Record)
    assert [category.name for category in record.categories] == [
        *("raid: raider", "raid: place", "raid: outcome"),
        "trial: judge",
    ]
    assert set(mentions(record)) == FILLED and len(record.spans) == len(FILLED) and not record.events
    assert noticed == {"event or argument without a mention": 2}
    counts = round_trip(record, load_tokenizer(ENCODER).encode([record.text])[0])
    assert +counts == {"annotations": len(FILLED), "records": 1, "exact": 1}


def test_an_event_that_is_an_argument_is_filled_by_its_trigger() -> None:
    row = {
        **ROW,
        "templates": [{**ROW["templates"][2], "say": [38, 42]}, {**ROW["templates"][1], "say": [48, 54]}],
    }
    events = {**EVENTS, "trigger": {"fragments": "say"}}
    record = kept(spec_of("ner", {**MAP, "events": events}, CATEGORIES), row)
    assert mentions(record) == [("Oslo", "raid: place"), ("judged", "raid: outcome"), ("Eve", "trial: judge")]


def test_mentions_in_fragments_may_share_one() -> None:
    people = [{"id": "1", "at": [[0, 4], [15, 20]]}, {"id": "2", "at": [[9, 14], [15, 20]]}]
    raid = {"kind": "raid", "roles": [{"role": "by", "who": person} for person in "121"]}
    row = {"text": "East and South Goths raided Oslo.", "people": people, "templates": [raid]}
    record = kept(spec_of("ner", MAP, CATEGORIES), row)
    assert [(covered(record, span), span.group) for span in record.spans] == [
        *(("East", 0), ("Goths", 0)),
        *(("South", 1), ("Goths", 1)),
    ]


def test_nothing_is_noticed_where_every_argument_has_a_filler() -> None:
    noticed = Counter[str]()
    row = {**ROW, "templates": ROW["templates"][:2]}
    mapper(spec_of("ner", MAP, CATEGORIES), "train", noticed=noticed)(PIECE, RawRow(7, "a/file:7", row))
    assert dict(noticed) == {}


def test_standoff_gives_its_fillers_and_may_not_have_relations() -> None:
    standoff: dict[str, Any] = {
        "spans": [{"id": "T1", "label": "who", "fragments": [[44, 47]], "text": "Eve"}],
        "events": [{"id": "E1", "label": "trial", "arguments": [{"role": "by", "target": "T1"}]}],
    }
    categories = {**CATEGORIES, "entity": {"who": "person"}}
    given, row = {"text": "text", "standoff": "standoff"}, {"text": ROW["text"], "standoff": standoff}
    spec = spec_of("ner", given, {**categories, "relation": ["knows"]})
    assert mentions(kept(spec, row)) == [("Eve", "trial: judge")]
    standoff["relations"] = [{"label": "knows", "head": "T1", "tail": "T1"}]
    assert refused(spec, row)[0] == "annotation that a record cannot hold"


@pytest.mark.parametrize(
    ("task", "given", "fillers", "message"),
    [
        ("ner", MAP, None, "task ner with `events` needs `fillers`"),
        ("event", MAP, "{role} of {event}", "`fillers` is for task ner"),
        ("ner", {"text": "text", "spans": MAP["spans"]}, "{role} of {event}", "`fillers` is for task ner with"),
        ("ner", MAP, "{role}", "expected a name with {role} and {event} in it"),
    ],
)
def test_fillers_are_for_events_of_task_ner(task: str, given: Any, fillers: str | None, message: str) -> None:
    with pytest.raises(ValidationError, match=f"Value error, {message}"):
        spec_of(task, given, {**CATEGORIES, "fillers": fillers})
