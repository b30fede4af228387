"""The manifest counts what looks wrong in kept rows, and `ubert ingest` prints warnings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_mapping import LABEL, PIECE, spec_of
from worlds import World

from pipelines.ingest import change_detection
from pipelines.ingest.publish import publish
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.mapping.mapper import mapper
from pipelines.mapping.notices import LONG_WORDS
from pipelines.report import peek
from pipelines.sources import RawRow
from pipelines.specs import dataset_spec
from pipelines.store.store import Store
from ubert.schema.manifest import CorpusManifest

EVENTS: dict[str, Any] = {
    "task": "event",
    "map": {
        "text": "text",
        "spans": {"each": "people[]", "id": "id", "as": "person", "words": "name"},
        "events": {
            "each": "events[]",
            "label": "type",
            "trigger": "trigger?",
            "arguments": {"each": "who[]", "as": "victim", "target": "."},
        },
        "offsets": {"locate": "unique"},
    },
    "categories": {
        "entity": {"person": "person"},
        "event": {"hit": {"name": "attack", "roles": {"victim": "victim"}}},
    },
}
MENTIONS: dict[str, Any] = {
    "task": "ner",
    "map": {
        "text": "text",
        "spans": {"each": "at[]", "label": "type", "id": "id?", "start": "start", "end": "end"},
    },
    "categories": {"entity": {"a": "a", "b": "b"}},
}
BARE = {**MENTIONS, "map": {"text": "text", "spans": {"each": "at[]", "start": "start", "end": "end"}}}
RELATIONS: dict[str, Any] = {
    "task": "relation",
    "map": {
        "text": "text",
        "relations": {
            "each": "knows[]",
            "as": "knows",
            "head": {"words": "who", "as": "person"},
            "tail": {"words": "whom", "as": "person"},
        },
        "offsets": {"locate": "unique"},
    },
    "categories": {"entity": {"person": "person"}, "relation": ["knows"]},
}
CONLL: dict[str, Any] = {
    "task": "ner",
    "format": "conll",
    "options": {"columns": ["tokens", "tags"], "comments": ["#doc"]},
    "map": {"tokens": "tokens", "tags": "tags"},
    "categories": {"entity": {"name": "name"}},
}


def at(start: int, **keys: Any) -> dict[str, Any]:
    return {"start": start, "end": start + 1, **keys}


CASES: dict[str, tuple[dict[str, Any], str | list[dict[str, Any]], dict[str, int]]] = {
    "templates": (
        EVENTS,
        [
            {
                "text": "Ada fell.",
                "people": [{"id": "1", "name": "Ada"}],
                "events": [{"type": "hit", "who": who} for who in (["1"], [], ["1"], [], [])],
            }
        ],
        {"event without a trigger": 2, "event without a trigger or arguments": 3},
    ),
    "repeated mentions": (
        MENTIONS,
        [{"text": "a b", "at": [at(0, type="a"), at(0, type="a"), at(0, type="b"), at(2, type="a")]}],
        {"repeated mention, merged with the one before": 1},
    ),
    "ids that restart": (
        MENTIONS,
        [{"text": "a b", "at": [at(0, type="a", id="1"), at(2, type="b", id="1")]}],
        {"id whose mentions have different labels": 1},
    ),
    "no label": (BARE, [{"text": "a b", "at": [at(0), at(2)]}], {"mention without a category": 2}),
    "repeated places without a label": (
        BARE,
        [{"text": "a b", "at": [at(0), at(0)]}],
        {"mention without a category": 1},
    ),
    "ids of one label": (MENTIONS, [{"text": "a b", "at": [at(n, type="a", id="1") for n in (0, 2)]}], {}),
    "marker lines": (
        CONLL,
        "".join(f"#doc {n}\n" + "Ada B-name\nwaits O\n" * 1500 for n in range(2)),
        {"text of more than 4,000 words": 1, "file of many lines read as one row": 1},
    ),
    "mentions that relations share": (
        RELATIONS,
        [{"text": "Ada met Bob and Eve", "knows": [{"who": "Ada", "whom": name} for name in ("Bob", "Eve")]}],
        {},
    ),
    "nothing": (CONLL, "#doc 1\nAda B-name\n\nBob B-name\n", {}),
}


def ingested(
    folder: Path, changes: dict[str, Any], source: str | list[dict[str, Any]], strict: bool = True
) -> CorpusManifest:
    """Ingest `toy` in this process."""
    world = World(folder)
    world.spec(**changes)
    world.source(source if isinstance(source, str) else "".join(json.dumps(row) + "\n" for row in source))
    store, spec = Store(world.root), dataset_spec("toy", world.specs)
    planned = plan(spec, world.data / "toy")
    for unit in planned.units:
        run_unit(unit, spec, store.directory("corpora", "toy", planned.fingerprint))
    return publish(store, planned, strict)


@pytest.mark.parametrize("case", CASES)
def test_the_manifest_counts_what_looks_wrong(tmp_path: Path, case: str) -> None:
    changes, source, warnings = CASES[case]
    [split] = ingested(tmp_path, changes, source).splits
    assert (split.rejected, split.warnings) == (0, warnings)


def test_warnings_of_all_units_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 100)
    made = ingested(tmp_path, BARE, [{"text": "a b", "at": [at(0), at(2)]}] * 9)
    [split] = made.splits
    assert len(made.parts) > 3
    assert (split.kept, split.warnings) == (9, {"mention without a category": 18})


ONE_ROW = {"file of many lines read as one row": 1}
DOCUMENT: dict[str, Any] = {**MENTIONS, "format": "json", "options": {"rows": ["."]}}


@pytest.mark.parametrize(
    ("changes", "source", "warnings"),
    [
        (CONLL, "Ada B-name\n" * 100, {}),
        (CONLL, "Ada B-name\n" * 101, ONE_ROW),
        (DOCUMENT, '{"text": "a",' + "\n" * 300 + '"at": []}', {}),
    ],
)
def test_a_row_of_a_hundred_lines_or_of_a_document_is_nothing_odd(
    tmp_path: Path, changes: dict[str, Any], source: str, warnings: dict[str, int]
) -> None:
    [split] = ingested(tmp_path, changes, source).splits
    assert (split.kept, split.warnings) == (1, warnings)


def test_ingest_prints_its_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipelines.cli.corpora import _report_ingest
    from pipelines.ingest.ingest import Work

    changes, source, _ = CASES["repeated mentions"]
    _report_ingest(ingested(tmp_path, changes, source), Work(1, 1))
    assert "warning: toy: train: repeated mention, merged with the one before: 1" in capsys.readouterr().err


def test_peek_shows_clusters(tmp_path: Path) -> None:
    rows = [{"text": "a b", "at": [at(0, type="a", id="1"), at(2, type="a", id="1")]}]
    ingested(tmp_path, MENTIONS, rows)
    [shown] = peek.corpus("toy", 1, tmp_path / "store")
    assert "cluster 0    'a', 'b'" in shown.plain


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("word " * LONG_WORDS, False),
        ("word " * LONG_WORDS + "word", True),
        ("w" * 2 * LONG_WORDS, False),
        ("\u5b57" * LONG_WORDS + "\u3002", False),
        ("\u5b57" * LONG_WORDS + "\u30a2", True),
    ],
)
def test_a_labelled_text_of_too_many_words_is_counted(text: str, long: bool) -> None:
    noticed = Counter[str]()
    mapper(LABEL, "train", noticed=noticed)(PIECE, RawRow(1, "a/file:1", {"t": text, "l": "1"}))
    assert noticed == ({"text of more than 4,000 words": 1} if long else {})
    mapper(spec_of("text", {"text": "t"}), "train", noticed=noticed)(PIECE, RawRow(1, "a/file:1", {"t": text}))
    assert noticed.total() == long
