"""Any bytes or rows give rows, records and rejects, or one clear error, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice, reader
from ubert.schema.arrow import records_to_batch, rejects_to_batch
from ubert.schema.errors import UserError
from ubert.schema.record import Record, Reject
from ubert.schema.specs.dataset import DatasetSpec

READERS: list[tuple[str, dict[str, Any]]] = [
    ("jsonl", {}),
    ("jsonl", {"decode": ["a"], "beside": {"path": "x.ann", "into": "b", "key": "a", "other_key": "a"}}),
    ("table", {"columns": ["a", "b"]}),
    ("table", {"header": True, "quoting": "csv"}),
    ("table", {"header": True, "constants": {"a": "b"}}),
    ("table", {"columns": ["a", "b"], "group": ["a"]}),
    ("conll", {"columns": ["a", "b"]}),
    ("brat", {}),
    ("squad", {}),
    ("json", {"rows": ["{a}.b[]", "."]}),
    ("json_stream", {}),
    ("json_stream", {"rows": ["{a}[]"], "control_characters": True}),
    ("aste", {}),
    ("marked_relations", {}),
    ("conll2012", {}),
    ("pipe_spans", {}),
    ("genia_xml", {}),
    ("xml", {"rows": ["."]}),
    ("json", {"rows": ["{a}"], "only": {"key": "a", "in": "x.ann"}}),
    ("parallel", {"beside": {"b": "x.ann"}}),
    ("blocks", {"columns": ["a", "b"], "marks": {"b": "{"}}),
    ("text", {"record": "section", "headings": ["[*", "T*"], "unwrap": True}),
    ("text", {"record": "paragraph"}),
    ("parquet", {}),
    ("arrow", {}),
]
BITS = [
    b"T1\tA 0 1\ta",
    b"R1\t",
    b"E1\tA:",
    b"*\t",
    b"a####[([0],[1],'b')]",
    b'1\t"<e1>a</e1><e2>b</e2>"\n',
    b"0,1 a|",
    b"<a>",
    b"</a>",
    b"<sentence><term id='a'>b</term></sentence>",
    b"<event id='a'><type/><clue>b</clue></event>",
    b"#begin document",
    b"\n#end document",
    b"a 0 0 b (0",
    b"{",
    b'"a":',
    b"[",
    b"]",
    b"}",
    b"\n",
    b"\r\n",
    b"\t",
    b'"',
    b"9" * 5000,
]
BYTES = st.lists(st.sampled_from(BITS) | st.binary(max_size=4), max_size=8).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(form=st.sampled_from(READERS), content=BYTES, beside=BYTES)
def test_no_bytes_break_a_reader(
    tmp_path_factory: pytest.TempPathFactory, form: tuple[str, dict[str, Any]], content: bytes, beside: bytes
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "x.txt").write_bytes(content)
    (folder / "x.ann").write_bytes(beside)
    name, options = form
    module = reader(name)
    try:
        rows = list(
            module.read(Slice(str(folder), "x.txt", 0, len(content), 1, "utf-8", "0"), module.Options(**options))
        )
    except UserError as error:
        assert str(folder) in str(error)
        return
    rejects = [row for row in rows if isinstance(row, Reject)]
    rejects_to_batch(rejects, "c", "train")  # their text can be written
    places = [row.locator for row in rows if isinstance(row, RawRow)]
    assert len(set(places)) == len(places)


def spec_of(task: str, fields: dict[str, Any]) -> DatasetSpec:
    categories = {
        "label": {"a": "x"},
        "entity": {"a": "x", "b": "y"},
        "relation": [{"label": "a", "name": "r", "head": "a"}],
        "event": {"b": {"name": "e", "roles": {"a": "o"}}},
        "value": [0, 1],
    }
    head = dict(
        name="n", description="d", task=task, language="en", licence="MIT", instruction="i", format="jsonl"
    )
    files = [{"split": "train", "path": "x"}]
    if task == "regression":
        categories = {"value": categories["value"]}
    return DatasetSpec.model_validate({**head, "files": files, "map": fields, "categories": categories})


SPECS = [
    spec_of("classification", {"text": "text", "label": "label"}),
    spec_of("multilabel", {"tokens": "text", "label": "label", "label_separator": "a"}),
    spec_of("pair", {"text": "text", "pair": "id", "label": "label"}),
    spec_of("regression", {"text": "text", "value": "label"}),
    spec_of("ner", {"tokens": "text", "tags": "label"}),
    spec_of("ner", {"chunks": "text"}),
    spec_of("event", {"text": "text", "standoff": "standoff"}),
    spec_of("qa", {"text": "text", "question": "id", "answers": "label"}),
    spec_of("choice", {"text": "text", "candidates": "label", "label": "id"}),
    spec_of("choice", {"text": "text", "candidates": {"a": "label", "b": "id"}, "label": "id"}),
    spec_of(
        "relation",
        {
            "tokens": "text",
            "spans": {"each": "standoff.spans?[]", "fragments": "fragments", "label": "label", "words": "text"},
            "relations": {
                "each": "label.{x}",
                "as": "a",
                "head": {"indices": "fragments[]"},
                "tail": {"start": "id", "end": "{x}"},
            },
            "offsets": {"unit": "token", "locate": "nearest", "absent_start": 0},
        },
    ),
    spec_of(
        "coref",
        {
            "text": "text",
            "spans": {"each": "standoff.spans[]", "id": "id", "words": "text", "start": "label"},
            "links": {"head": "id", "tail": "/standoff.events"},
            "offsets": {"base": "document", "locate": "first", "compare": "folded"},
        },
    ),
]
KEYS = [
    "text",
    "label",
    "id",
    "standoff",
    "spans",
    "relations",
    "events",
    "fragments",
    "arguments",
    "role",
    "target",
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.floats()
    | st.sampled_from(["a", "b", "a b", "B-a", "", "\ud800"])
)
VALUES = st.recursive(
    LEAVES,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(KEYS), v, max_size=5),
    max_leaves=12,
)
ITEM = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b"]),
        "label": st.sampled_from("ab"),
        "fragments": st.lists(st.lists(st.integers(-1, 3), max_size=3), max_size=2),
    },
    optional={"arguments": st.lists(VALUES, max_size=2), "trigger": VALUES, "text": VALUES},
)
STANDOFF = st.dictionaries(
    st.sampled_from(["spans", "relations", "events"]), VALUES | st.lists(ITEM, max_size=3), max_size=3
)
ROWS = st.fixed_dictionaries(
    {"text": VALUES | st.just("a b")}, optional={"label": VALUES, "id": VALUES, "standoff": STANDOFF | VALUES}
)


@settings(max_examples=500, deadline=None)
@given(spec=st.sampled_from(SPECS), content=ROWS)
@example(spec=SPECS[3], content={"text": "a", "label": 10**400})
@example(
    spec=SPECS[6],
    content={"text": "a", "standoff": {"events": [{"id": "a", "label": "b", "trigger": [], "arguments": []}]}},
)
@example(spec=SPECS[6], content={"text": "a b", "standoff": {"spans": "\ud800"}})
def test_no_row_breaks_the_mapping(spec: DatasetSpec, content: dict[str, Any]) -> None:
    row = mapper(spec, "train")(Slice("", "x", 0, 1, 1, "utf-8", "0"), RawRow(1, "x:1", content))
    if isinstance(row, Record):
        records_to_batch([row])
    else:
        assert json.loads(row.raw).keys() == content.keys()
        rejects_to_batch([row], "n", "train")


@pytest.mark.parametrize(
    ("form", "options", "row"),
    [
        ("json", {}, '[{{"label": {}}}]'),
        ("json", {}, "[{}]"),
        ("json", {"columns": ["label"]}, "[[1, {}]]"),
        ("json_stream", {}, '{{"label": {}}}'),
        ("jsonl", {}, '{{"label": {}}}'),
        ("jsonl", {"decode": ["label"]}, '{{"label": "{}"}}'),
        ("squad", {}, '{{"data": [{{"paragraphs": [{{"qas": [{}]}}]}}]}}'),
    ],
)
def test_what_can_just_be_read_can_be_refused(
    tmp_path: Path, form: str, options: dict[str, Any], row: str
) -> None:
    """However deeply it is nested: one step of the stack more may be one too many."""
    module, to_record = reader(form), mapper(SPECS[0], "train")
    deepest = sys.getrecursionlimit()
    for levels in range(deepest - 120, deepest):
        content = row.format("[" * levels + "]" * levels).encode()
        (tmp_path / "x").write_bytes(content)
        piece = Slice(str(tmp_path), "x", 0, len(content), 1, "utf-8", "0")
        for found in module.read(piece, module.Options(**options)):
            reject = to_record(piece, found) if isinstance(found, RawRow) else found
            assert isinstance(reject, Reject) and reject.raw
