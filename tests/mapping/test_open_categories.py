"""Categories without a long list: names by rules, labels from the data, and labels that a spec lacks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from test_mapping import spec_of
from test_notices import ingested
from worlds import World

from pipelines.ingest import change_detection, hashes
from pipelines.ingest.missing_categories import to_paste, total
from pipelines.ingest.open_categories import MAX_LABELS, counted
from pipelines.ingest.publish import publish
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.specs import dataset_spec
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.record import Category
from ubert.schema.specs.rules import NameRules


@pytest.mark.parametrize(
    ("rules", "label", "name"),
    [
        ({}, "a_b", "a_b"),
        ({"replace": {"_": " "}, "lower": True}, "Book_Flight", "book flight"),
        (
            {"split_camel_case": True, "lower": True},
            "bookFlightToUSATomorrow2Day",
            "book flight to usa tomorrow2 day",
        ),
        ({"replace": {"I-": "", "/": " or "}}, "I-gene/protein", "gene or protein"),
    ],
)
def test_rules_make_names_of_labels(rules: dict[str, Any], label: str, name: str) -> None:
    assert NameRules(**rules).name(label) == name


def test_labels_without_names_are_named_by_the_rules() -> None:
    categories = {
        "names": {"replace": {"_": " "}, "lower": True},
        "entity": ["Peop", "Given_Name"],
        "relation": ["Live_In", {"label": "x", "name": "y"}],
    }
    given = {"text": "t", "spans": {"each": "m[]", "label": "l", "words": "w"}}
    found = spec_of("ner", given, categories).categories
    assert found.entity == {"Peop": "peop", "Given_Name": "given name"}
    assert [relation.name for relation in found.relation] == ["live in", "y"]


def open_world(folder: Path, labels: list[Any], **changes: Any) -> World:
    world = World(folder)
    names = {"names": {"replace": {"_": " "}}, "label": "from_data"}
    world.spec(**{"categories": names, **changes})
    world.source("".join(json.dumps({"text": f"t{i}", "label": label}) + "\n" for i, label in enumerate(labels)))
    return world


def test_labels_of_the_data_become_categories_and_are_in_the_manifest(tmp_path: Path) -> None:
    world = open_world(tmp_path, ["b_c", "a", "b_c", 7])
    store = Store(world.root)
    first = plan(dataset_spec("toy", world.specs), world.data / "toy")
    found = counted(first, store.root / "sources")
    assert found.counted == {"label": {"7": 1, "a": 1, "b_c": 2}}
    assert found.spec.categories.all() == tuple(Category(name, "label") for name in ("7", "a", "b c"))
    (tmp_path / "data" / "toy" / "train.jsonl").unlink()  # what was counted is remembered
    assert counted(first, store.root / "sources") == found
    world.source("".join(json.dumps({"text": "t", "label": label}) + "\n" for label in ("a", "b_c")))
    planned = plan(found.spec, world.data / "toy")
    for unit in planned.units:
        run_unit(unit, planned.spec, store.directory("corpora", "toy", planned.fingerprint))
    manifest = publish(store, planned, strict=True)
    assert manifest.splits[0].kept == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "from_data, but the data has no label"),
        ([f"l{i}" for i in range(MAX_LABELS + 1)], "has 1,001 different ones, such as l0, l1, l10, l100"),
    ],
)
def test_labels_from_data_have_bounds(tmp_path: Path, labels: list[str], message: str) -> None:
    world = open_world(tmp_path, labels)
    with pytest.raises(UserError, match=message):
        counted(plan(dataset_spec("toy", world.specs), world.data / "toy"), world.root / "sources")


def test_a_record_may_have_so_many_labels_from_data_and_files_without_annotations_have_none(
    tmp_path: Path,
) -> None:
    files = [
        {"split": "train", "path": "train.jsonl"},
        {"split": "test", "path": "test.jsonl", "labelled": False},
    ]
    world = open_world(tmp_path, [f"l{i}" for i in range(MAX_LABELS)], files=files)
    world.source('{"text": "t", "label": "other"}\n', "test.jsonl")
    found = counted(plan(dataset_spec("toy", world.specs), world.data / "toy"), world.root / "sources")
    assert found.counted == {"label": {f"l{i}": 1 for i in range(MAX_LABELS)}}


def test_entities_may_be_from_data_and_rows_that_are_left_out_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    mapping = {"tokens": "w", "tags": "t", "when": {"ok": "true"}}
    world.spec(task="ner", map=mapping, categories={"entity": "from_data"})
    rows = [{"w": ["a", "b"], "t": ["B-x", "B-y"], "ok": True}, {"w": ["a"], "t": ["B-z"], "ok": False}]
    world.source("".join(json.dumps(row) + "\n" for row in rows))
    found = counted(plan(dataset_spec("toy", world.specs), world.data / "toy"), world.root / "sources")
    assert found.counted == {"entity": {"x": 1, "y": 1}}


def test_a_label_of_a_row_that_is_too_long_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "LONGEST_ROW", 1000)
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 500)
    world = open_world(tmp_path, ["a", "b" * 1000, "c"])
    found = counted(plan(dataset_spec("toy", world.specs), world.data / "toy"), world.root / "sources")
    assert found.counted == {"label": {"a": 1, "c": 1}}


@pytest.mark.parametrize("kind", ["broken", "absent"])
def test_labels_are_counted_beside_a_file_that_cannot_be_read(kind: str, tmp_path: Path) -> None:
    world = open_world(tmp_path, [], format="parquet", files=[{"split": "train", "path": "*.parquet"}])
    for name in ("a", "c"):
        table = pa.table({"text": ["one", "two"], "label": ["x", name]})
        pq.write_table(table, world.data / f"toy/{name}.parquet")
    bad = world.data / "toy/b.parquet"
    if kind == "broken":
        bad.write_bytes(b"PAR1, but nothing else")
    else:
        bad.symlink_to("nowhere")
    found = counted(plan(dataset_spec("toy", world.specs), world.data / "toy"), world.root / "sources")
    assert found.counted == {"label": {"a": 1, "c": 1, "x": 2}}


LACKING: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "labels": (
        {},
        [{"text": "a", "label": label} for label in ("newIntent_A", 3, 3, "no", 0)],
        {"label": {"3": "3", "newIntent_A": "new intent a", "no": "no"}},
    ),
    "all of a row": (
        {"task": "ner", "map": {"tokens": "w", "tags": "t"}, "categories": {"entity": {"a": "a"}}},
        [{"w": ["1", "2", "3"], "t": ["B-b", "B-a", "B-c_d"]}],
        {"entity": {"b": "b", "c_d": "c d"}},
    ),
    "relations": (
        {
            "task": "relation",
            "map": {
                "text": "text",
                "spans": {"each": "m[]", "id": "w", "words": "w", "label": "l"},
                "relations": {"each": "r[]", "label": "l", "head": "h", "tail": "t"},
                "offsets": {"locate": "unique"},
            },
            "categories": {"entity": {"P": "person"}, "relation": ["knows"]},
        },
        [
            {
                "text": "a b",
                "m": [{"w": "a", "l": "P"}, {"w": "b", "l": "Q"}],
                "r": [{"l": "likes", "h": "a", "t": "b"}, {"l": "knows", "h": "a", "t": "b"}],
            }
        ],
        {"entity": {"Q": "q"}, "relation": [{"label": "likes", "name": "likes"}]},
    ),
    "events": (
        {
            "task": "event",
            "map": {
                "text": "text",
                "events": {
                    "each": "e[]",
                    "label": "l",
                    "trigger": {"words": "w"},
                    "arguments": {"each": "a[]", "role": "r", "target": {"words": "w"}},
                },
                "offsets": {"locate": "unique"},
            },
            "categories": {"event": {"hit": {"name": "attack", "roles": {"who": "attacker"}}}},
        },
        [
            {
                "text": "a hits b, b dies",
                "e": [
                    {"l": "die", "w": "dies", "a": [{"r": "victim", "w": "a"}]},
                    {"l": "hit", "w": "hits", "a": [{"r": "whom", "w": "a"}]},
                ],
            }
        ],
        {"event": {"die": {"name": "die"}}, "# roles of hit": {"whom": "whom"}},
    ),
}


@pytest.mark.parametrize("case", LACKING)
def test_all_labels_that_a_spec_lacks_are_listed_to_be_pasted(tmp_path: Path, case: str) -> None:
    changes, rows, expected = LACKING[case]
    with pytest.raises(UserError) as error:
        ingested(tmp_path, {**changes, "error_budget": 0.01}, rows)
    head, _, pasted = str(error.value).partition("under `categories`, with names in plain words:\n")
    assert f"the spec lacks {sum(map(len, expected.values()))} labels of the data" in head
    assert yaml.safe_load(pasted.replace("# to the roles of hit:", '"# roles of hit":')) == expected
    if case == "labels":
        assert '"3": "3"  # 2 times' in pasted


@pytest.mark.parametrize(
    ("count", "rest"), [(200, []), (201, ["    # and 1 more"]), (1300, ["    # and 1,100 more"])]
)
def test_the_most_frequent_labels_that_a_spec_lacks_are_listed(count: int, rest: list[str]) -> None:
    head, kind, *lines = to_paste({"label": Counter({f"l{i}": i for i in range(1, count + 1)})}).splitlines()
    assert head.startswith(f"the spec lacks {count:,} labels") and kind == "  label:"
    assert lines[0] == f'    "l{count}": "l{count}"  # {count:,} times'
    assert lines[200:] == rest and len(lines[:200]) == 200


def test_labels_that_a_spec_lacks_are_added_up_over_all_units() -> None:
    found = total([{"label": {"a": 1, "_": 3}}, {"label": {"a": 4}, "entity": {}}])
    assert to_paste(found).splitlines()[1:] == ["  label:", '    "a": "a"  # 5 times', '    "_": "_"  # 3 times']
    assert to_paste(total([{"label": {}}])) == ""


@pytest.mark.parametrize("half", ["\ud800", "\udfff"])
def test_a_label_with_half_of_a_surrogate_pair_can_be_printed(half: str) -> None:
    pasted = to_paste({"label": Counter([f"a{half}é"])})
    assert f"\\u{ord(half):04x}" in pasted.encode().decode()


@pytest.mark.parametrize(
    ("kept", "refused", "advised"), [(98, 2, 0.02), (67, 3, 0.05), (95, 5, 0.05), (94, 6, None), (90, 10, None)]
)
def test_the_budget_that_is_advised_is_enough_and_five_per_cent_at_most(
    tmp_path: Path, kept: int, refused: int, advised: float | None
) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "label": n % 2} for n in range(kept)]
    rows += [{"text": "a"}] * refused
    with pytest.raises(UserError) as error:
        ingested(tmp_path, {"error_budget": 0.01}, rows, strict=False)
    assert "correct the source or its spec" in str(error.value)
    _, _, said = str(error.value).partition("set `error_budget: ")
    assert said.partition("`")[0] == ("" if advised is None else f"{advised:g}")
    if advised is not None:
        [split] = ingested(tmp_path, {"error_budget": advised}, rows, strict=False).splits
        assert (split.kept, split.rejected) == (kept, refused)


def test_missing_labels_of_all_units_are_added_up() -> None:
    units = [
        {"label": {"a": 1}, "entity": {"e": 2, "x": 1}, "relation": {}},
        {"label": {"a": 2, "b": 1}, "event": {"e": 1}},
    ]
    assert total(units) == {"label": {"a": 3, "b": 1}, "entity": {"x": 1}, "event": {"e": 1}}
    assert total([{"entity": {"e": 2}, "event": {"e": 1}}]) == {"event": {"e": 1}}
