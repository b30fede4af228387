"""Probes: the drawn shots, the same records for all sides, and finished cells that are not run again."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from handmade import ner, question, sentiment
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tiny_checkpoint import write_checkpoint
from tiny_run import make_encoder
from typer.testing import CliRunner
from worlds import put_corpus

from pipelines.cli.commands import app
from pipelines.models.evaluate import evaluate, read_records
from pipelines.probe import cell as cells
from pipelines.probe.cell import Cell, place_of, run_cell, steps_of, training_records
from pipelines.probe.probe import probe, splits, start
from pipelines.probe.replay import Kept, Replayed
from pipelines.probe.report import curves, table
from pipelines.probe.shots import categories_of, drawn
from pipelines.store.store import Store, write_json
from pipelines.store.warehouse import sql
from ubert.inference.thresholds import FILE, Fitted, to_json
from ubert.schema.errors import UserError
from ubert.schema.record import Argument, Category, Event, Record, Relation, Span, Split

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


KINDS = (Category("1", "value"), Category("3", "value"), Category("4", "value"))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"task": "classification", "labels": [1]}, {"3"}),
        ({"task": "multilabel", "labels": [0, 2]}, {"1", "4"}),
        ({"task": "multilabel"}, {""}),
        ({"task": "regression", "value": 2.2}, {"3"}),
        ({"task": "regression", "value": 1.9}, {"1"}),
        ({"task": "regression", "value": 0.0}, {"1"}),
        ({"task": "choice", "labels": [1]}, {"choice"}),
        ({"task": "qa", "spans": [Span(0, 1, 0)]}, {"answered"}),
        ({"task": "qa"}, {"unanswered"}),
        ({"task": "ner", "spans": [Span(0, 1, 2), Span(1, 2), Span(2, 3, 2)]}, {"4"}),
        ({"task": "relation", "spans": [Span(0, 1), Span(1, 2)], "relations": [Relation(0, 1, 1)]}, {"3"}),
        ({"task": "event", "spans": [Span(0, 1, 1)], "events": [Event(2, 0, [Argument(0, span=0)])]}, {"3", "4"}),
    ],
)
def test_the_categories_of_a_record_are_those_of_its_annotations(changes: dict[str, Any], names: set[str]) -> None:
    assert categories_of(replace(REVIEWS[0], categories=KINDS, **{"labels": [], **changes})) == names


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


def test_a_corpus_that_is_ingested_again_during_a_probe_is_no_result(root: Path, encoder: Path) -> None:
    cell = cell_of(root, encoder, shots=0)
    put_corpus(root, "reviews", REVIEWS[:30])
    with pytest.raises(UserError, match="corpus reviews was ingested again while it was probed"):
        run_cell(cell, root)
    assert not place_of(Store(root), cell).exists()


def test_no_shot_is_among_the_records_that_are_measured(root: Path, encoder: Path) -> None:
    store = Store(root)
    measured = {one.record_id for one in read_records(*store.current("corpora", "reviews"), "train", 20)}
    shots = {one.record_id for one in training_records(cell_of(root, encoder, shots="all"), store)}
    assert len(measured) == 20 and shots == {one.record_id for one in REVIEWS} - measured


def test_no_text_is_both_measured_and_a_shot(root: Path, encoder: Path) -> None:
    """Repeated texts of a corpus with only a training split could be in both."""
    copies = [replace(one, record_id=f"{one.record_id}-again") for one in REVIEWS]
    put_corpus(root, "reviews", [*REVIEWS, *copies])
    store, cell = Store(root), cell_of(root, encoder, shots="all")
    measured = [one.text for one in read_records(*store.current("corpora", "reviews"), "train", 20)]
    shots = [one.text for one in training_records(cell, store)]
    assert set(shots) == {one.text for one in REVIEWS} - set(measured)
    assert len(shots) == 2 * (60 - len(set(measured)))


def test_a_corpus_whose_records_are_all_measured_is_refused(root: Path, encoder: Path) -> None:
    with pytest.raises(
        UserError, match=r"corpus reviews: all its 60 train records have texts that are evaluated, .* --limit"
    ):
        run_cell(cell_of(root, encoder, limit=60), root)


def test_the_test_split_is_measured(tmp_path: Path, encoder: Path) -> None:
    put_corpus(
        tmp_path, "reviews", [replace(one, split="test") if i < 5 else one for i, one in enumerate(REVIEWS)]
    )
    assert run_cell(cell_of(tmp_path, encoder, shots=0), tmp_path)["measured"] == 5


def test_each_seed_draws_shots_of_its_own(root: Path, encoder: Path) -> None:
    first, second = (training_records(cell_of(root, encoder, seed=seed), Store(root)) for seed in (0, 1))
    assert len(first) == len(second) == 8 and first != second


def test_all_sides_have_the_same_shots_and_other_numbers_have_other_keys(root: Path, encoder: Path) -> None:
    one, other = cell_of(root, encoder), cell_of(root, encoder, name="other", source="elsewhere", weights="0")
    store = Store(root)
    assert training_records(one, store) == training_records(other, store)
    assert len({one.key, other.key, one._replace(seed=1).key, one._replace(shots=5).key}) == 4
    assert one._replace(name="renamed", source="moved").key == one.key


def test_a_checkpoint_is_measured_as_it_is_with_no_shots(root: Path, encoder: Path) -> None:
    result = run_cell(cell_of(root, encoder, shots=0), root)
    assert (result["records"], result["steps"], result["tokens"], result["measured"]) == (0, 0, 0, 20)


def test_results_of_the_store_come_in_order_under_their_present_names(root: Path, encoder: Path) -> None:
    """Without shots there is nothing to draw, and one seed does."""
    put_corpus(root, "more", [sentiment(i, 4, corpus="more") for i in range(10)])
    store = Store(root)
    expected: list[dict[str, Any]] = []
    for corpus, shots, seed in product(("more", "reviews"), (0, 2), (0, 1)):
        if shots or not seed:
            version = store.current("corpora", corpus)[1].fingerprint
            changes = {"corpus": corpus, "version": version, "shots": shots, "seed": seed, "limit": 7}
            place, value = place_of(store, cell_of(root, encoder, **changes)), len(expected) / 8
            write_json(place, {"name": "before", "value": value})
            expected.append({"name": str(encoder), "value": value})
    found = probe([str(encoder)], ["more", "reviews"], shots=[0, 2], seeds=2, limit=7, root=root)
    assert len(expected) == 6 and found == expected


def test_a_checkpoint_without_shots_is_measured_again_with_other_thresholds(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    def here(work: Any, jobs: list[Any], address: str | None) -> Any:  # without Ray
        for i, job in enumerate(jobs):
            ran.append(job[0].shots)
            yield i, work(*job)

    monkeypatch.setattr("pipelines.probe.probe.completed", here)
    put_corpus(root, "people", [ner(i) for i in range(20)])
    checkpoint = write_checkpoint(tmp_path / "checkpoint")

    def measured() -> tuple[list[Any], float]:
        ran.clear()
        results = probe([str(checkpoint)], ["people"], shots=[0, 2], seeds=1, limit=5, root=root)
        return [*ran], results[0]["value"]

    assert measured()[0] == [0, 2]
    for threshold in (0.05, 0.95):
        fitted = Fitted(threshold=threshold, value=0.5, corpora=["x"], split="validation", records=4)
        (checkpoint / FILE).write_text(to_json({"ner": fitted}))
        run, value = measured()
        assert (
            run == [0]
            and value
            == evaluate(checkpoint, corpus="people", limit=5, split="train", root=root)["metrics"]["span_f1"]
        )
        assert measured() == ([], value)
    (checkpoint / FILE).unlink()
    assert measured()[0] == []


def test_finished_cells_keep_their_keys() -> None:
    cell = Cell("a", "b", "c", "reviews", "v", "train", "test", 0, 0, 20)
    again = cell._replace(kept=(Kept("r", "v", "test"),), replay=Replayed("m", "v", 0.2))
    assert (cell.key, again.key) == ("3e9cfe9ec3a91e6b", "e7d7ed015c04ffc6")
    assert cell._replace(thresholds={}).key == cell.key != cell._replace(thresholds={"ner": 0.5}).key


def test_each_number_of_shots_is_one_result_and_json_has_numbers_and_all(root: Path, encoder: Path) -> None:
    store = Store(root)
    for shots in (2, "all"):
        write_json(place_of(store, cell_of(root, encoder, shots=shots)), {"shots": shots, "value": float("nan")})
    given = ["probe", str(encoder), "--corpora", "reviews", "--shots", "2,all,2,all", "--seeds", "1"]
    given += ["--against", "", "--limit", "20", "--root", str(root), "--json"]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    assert [(one["shots"], one["value"]) for one in json.loads(done.stdout)] == [(2, "NaN"), ("all", "NaN")]


def test_a_result_is_of_its_data_and_of_what_is_measured(root: Path, encoder: Path) -> None:
    cell = cell_of(root, encoder)
    changes: list[dict[str, Any]] = [
        {}, {"corpus": "other"}, {"version": "0"}, {"test": "validation"}, {"limit": 21}, {"seed": 1}
    ]  # fmt: skip
    assert len({cell._replace(**one).key for one in changes}) == len(changes)


@pytest.mark.parametrize(
    ("kept", "empty", "measured"),
    [
        (["train", "validation", "test"], [], "test"),
        (["train", "validation"], ["test"], "validation"),
        (["train"], ["test", "validation"], "train"),
    ],
)
def test_the_first_split_with_records_is_measured(
    kept: list[Split], empty: list[Split], measured: Split, tmp_path: Path
) -> None:
    records = [replace(one, split=split) for one, split in zip(REVIEWS, kept, strict=False)]
    put_corpus(tmp_path, "reviews", records, rejected=[(split, "odd") for split in empty])
    assert splits(Store(tmp_path).current("corpora", "reviews")[1]) == ("train", measured)


@pytest.mark.parametrize(
    ("shots", "tokens", "steps"),
    [(10, 1024, 30), (11, 1024, 12), (100, 1024, 12), (101, 1024, 2), ("all", 1024, 2), (5, 1025, 31), (5, 1, 1)],
)
def test_few_shots_are_shown_more_often(
    shots: Any, tokens: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "STEPS", (0, 1_000))
    assert steps_of(shots, tokens) == steps


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


@pytest.mark.parametrize("name", ["no/folder.svg", "curves.nothing"])
def test_curves_that_cannot_be_written_are_an_error_of_the_user(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"{name}: cannot be written: .*; choose another file with --out"):
        curves(results(), tmp_path / name)


def test_the_table_has_all_corpora_of_one_number_of_shots_and_then_the_means() -> None:
    values = {
        ("ours", "a", 1): 0.5, ("ours", "b", 1): 0.75, ("ours", "a", 5): 0.6, ("ours", "b", 5): 0.8,
        ("other", "a", 1): 0.1, ("other", "b", 1): 0.1, ("other", "a", 5): 0.1, ("other", "b", 5): 0.1,
        ("minilm", "a", 1): 0.25, ("minilm", "b", 1): 1.0, ("minilm", "a", 5): 0.5, ("minilm", "b", 5): 0.5,
    }  # fmt: skip
    rows = [
        {"name": name, "corpus": corpus, "shots": shots, "metric": f"f1 of {corpus}", "seed": 0, "value": value}
        for (name, corpus, shots), value in values.items()
    ]
    found = [tuple(row.values()) for row in table(rows).to_pylist()]
    assert found == [
        ("a", "f1 of a", "1", "0.500", "0.100", "0.250", "+0.250"),
        ("b", "f1 of b", "1", "0.750", "0.100", "1.000", "-0.250"),
        ("a", "f1 of a", "5", "0.600", "0.100", "0.500", "+0.100"),
        ("b", "f1 of b", "5", "0.800", "0.100", "0.500", "+0.300"),
        ("(mean)", "", "1", "0.625", "0.100", "0.625", "+0.000"),
        ("(mean)", "", "5", "0.700", "0.100", "0.500", "+0.200"),
    ]
    assert table(rows[:4]).column_names == ["corpus", "metric", "shots", "ours"]


def corpus(task: str, split: str) -> list[Record]:
    return [replace(one, task=task, split=split, target="x") for one in REVIEWS]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("nothing", "reviews"),
            "nothing: neither a folder nor a run of .*; it is not an encoder on this disk either",
        ),
        (("ENCODER", "absent"), "nothing here yet; make it with `ubert ingest absent`"),
        (("ENCODER", "tested"), "corpus tested has no training split"),
        (("ENCODER", "titles"), "corpus titles: task seq2seq has no categories"),
    ],
)
def test_what_cannot_be_probed_is_reported(
    root: Path, encoder: Path, given: tuple[str, str], message: str
) -> None:
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
