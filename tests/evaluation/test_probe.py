"""Probes: which shots are drawn, that all sides get the same, and that a finished cell is not run twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from handmade import ner, question, sentiment
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tiny_run import make_encoder
from typer.testing import CliRunner
from worlds import put_corpus

from pipelines.cli.commands import app
from pipelines.probe import cell as cells
from pipelines.probe.cell import Cell, place_of, run_cell, steps_of, training_records
from pipelines.probe.probe import probe, splits, start
from pipelines.probe.report import curves, table
from pipelines.probe.shots import categories_of, drawn
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.record import Record

REVIEWS = [sentiment(i, 4) for i in range(60)]
MIXED = [*REVIEWS, *(ner(i) for i in range(20)), *(question(i) for i in range(20))]


@given(st.integers(1, 20), st.integers(0, 2**32), st.sets(st.integers(0, len(MIXED) - 1)))
def test_each_category_has_its_shots_where_there_are_as_many(shots: int, seed: int, places: set[int]) -> None:
    records = [MIXED[i] for i in places]
    chosen = drawn(records, shots, seed)
    there, taken = (Counter(name for one in some for name in categories_of(one)) for some in (records, chosen))
    assert all(taken[name] >= min(shots, there[name]) for name in there)
    assert drawn(records[::-1], shots, seed) == chosen  # whatever the order of the files
    full: Counter[str] = Counter()
    for one in chosen:  # none is taken that no category needed
        assert any(full[name] < shots for name in categories_of(one))
        full.update(categories_of(one))


def test_another_seed_draws_other_shots() -> None:
    assert drawn(REVIEWS, 3, 0) != drawn(REVIEWS, 3, 1)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(tmp_path, "reviews", REVIEWS)
    return tmp_path


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "STEPS", (2, 4))


def cell_of(root: Path, encoder: Path, **changes: Any) -> Cell:
    manifest = Store(root).current("corpora", "reviews")[1]
    made = Cell(*start(str(encoder), Store(root)), "reviews", manifest.fingerprint, *splits(manifest), 2, 0, 20)
    return made._replace(**changes)


def test_a_cell_is_kept_and_not_run_twice(root: Path, encoder: Path) -> None:
    cell = cell_of(root, encoder)
    result = run_cell(cell, root)
    assert (result["records"], result["steps"], result["measured"], result["metric"]) == (8, 2, 20, "accuracy")
    assert 0 <= result["value"] <= 1
    place = place_of(Store(root), cell)
    place.write_text(json.dumps({**result, "value": 0.125}))  # type: ignore[union-attr]
    assert run_cell(cell, root)["value"] == 0.125
    [row] = sql(root, "SELECT corpus, shots, seed, metric, value FROM probes").to_pylist()
    assert row == {"corpus": "reviews", "shots": "2", "seed": 0, "metric": "accuracy", "value": 0.125}


def test_no_shot_is_among_the_records_that_are_measured(root: Path, encoder: Path) -> None:
    from pipelines.models.evaluate import read_records

    store = Store(root)
    measured = {one.record_id for one in read_records(*store.current("corpora", "reviews"), "train", 20)}
    shots = {one.record_id for one in training_records(cell_of(root, encoder, shots="all"), store)}
    assert len(measured) == 20 and shots == {one.record_id for one in REVIEWS} - measured


def test_all_sides_have_the_same_shots_and_other_numbers_have_other_keys(root: Path, encoder: Path) -> None:
    one, other = cell_of(root, encoder), cell_of(root, encoder, name="other", source="elsewhere", weights="0")
    store = Store(root)
    assert training_records(one, store) == training_records(other, store)
    assert len({one.key, other.key, one._replace(seed=1).key, one._replace(shots=5).key}) == 4
    assert one._replace(name="renamed", source="moved").key == one.key


@pytest.mark.parametrize(("shots", "steps"), [(5, 4), ("all", 2)])
def test_more_shots_have_more_steps_within_bounds(shots: Any, steps: int) -> None:
    assert steps_of(shots, 1) == 2 and steps_of(shots, 1024) == steps and steps_of(shots, 10**9) == 4


def results(**changes: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "corpus": "reviews", "shots": 5, "metric": "accuracy", "seed": seed, "value": value}
        for name, values in (("ours", (0.5, 0.7)), ("minilm", (0.4, 0.4)))
        for seed, value in enumerate(values)
    ]


def test_the_table_has_mean_spread_and_lead(tmp_path: Path) -> None:
    assert table(results()).to_pylist() == [
        {
            "corpus": "reviews",
            "metric": "accuracy",
            "shots": "5",
            "ours": "0.600 ± 0.141",
            "minilm": "0.400 ± 0.000",
            "ahead": "+0.200",
        },
        {"corpus": "(mean)", "metric": "", "shots": "5", "ours": "0.600", "minilm": "0.400", "ahead": "+0.200"},
    ]
    curves(results(), tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()


def corpus(task: str, split: str) -> list[Record]:
    return [replace(one, task=task, split=split, target="x") for one in REVIEWS]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("nothing", "reviews"), "nothing: neither a folder nor a run of .* nor is it an encoder on this disk"),
        (("ENCODER", "absent"), "nothing here yet; make it with `ubert ingest absent`"),
        (("ENCODER", "tested"), "corpus tested has no training split"),
        (("ENCODER", "titles"), "corpus titles: task seq2seq has no categories"),
    ],
)
def test_what_cannot_be_probed_is_said(root: Path, encoder: Path, given: tuple[str, str], message: str) -> None:
    put_corpus(root, "tested", corpus("classification", "test"))
    put_corpus(root, "titles", corpus("seq2seq", "train"))
    name = str(encoder) if given[0] == "ENCODER" else given[0]
    with pytest.raises(UserError, match=message):
        probe([name], [given[1]], shots=[5], seeds=1, limit=10, root=root)


@pytest.mark.slow
@pytest.mark.ray
def test_the_command_prints_a_table_and_draws_curves(
    root: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["probe", str(encoder), "--corpora", "reviews", "--shots", "0,2", "--seeds", "1", "--against", ""]
    picture = tmp_path / "curves.png"
    done = CliRunner().invoke(app, [*given, "--limit", "10", "--root", str(root), "--out", str(picture)])
    assert done.exit_code == 0, done.output
    assert "reviews" in done.output and "(mean)" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = sql(root, "SELECT shots, records FROM probes ORDER BY shots").to_pylist()
    assert rows == [{"shots": "0", "records": 0}, {"shots": "2", "records": 8}]
    wrong = CliRunner().invoke(app, ["probe", "x", "--corpora", "reviews", "--shots", "few"])
    assert wrong.exit_code == 2 and "'few' is no number of shots" in " ".join(wrong.output.split())
