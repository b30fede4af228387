"""The manifest counts what looks wrong in the rows that are kept, and `ubert ingest` warns of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from worlds import World

from pipelines.ingest.publish import publish
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.report import peek
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
                "events": [{"type": "hit", "who": ["1"]}, {"type": "hit", "who": []}],
            }
        ],
        {"event without a trigger": 1, "event without a trigger or arguments": 1},
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
    "marker lines": (
        CONLL,
        "".join(f"#doc {n}\n" + "Ada B-name\nwaits O\n" * 1500 for n in range(2)),
        {"text of more than 4,000 words": 1, "one row made of a file of many lines": 1},
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
