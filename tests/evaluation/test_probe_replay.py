"""Probes with replay: the replayed records, the measured splits of the mixture, and the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handmade import ner, sentiment
from msgspec.structs import replace
from tiny_checkpoint import write_checkpoint
from worlds import put_corpus

from pipelines.mixtures.mix import mix
from pipelines.probe import cell as cells
from pipelines.probe.cell import Cell, run_cell, training_records
from pipelines.probe.probe import probe, splits, start
from pipelines.probe.replay import Replayed, kept_of, replayed
from pipelines.probe.report import forgotten
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture, MixtureSource

KNOWN = Mixture(name="known", sources=[MixtureSource(corpus=name) for name in ("reviews", "people", "films")])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(tmp_path, "films", [sentiment(i, 4, corpus="films") for i in range(100, 120)])
    reviews = [sentiment(i, 4) for i in range(60)]
    put_corpus(
        tmp_path, "reviews", [replace(one, split="test") if i < 20 else one for i, one in enumerate(reviews)]
    )
    people = [ner(i) for i in range(40)]
    put_corpus(
        tmp_path, "people", [replace(one, split="validation") if i < 10 else one for i, one in enumerate(people)]
    )
    return tmp_path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "STEPS", (2, 4))


@pytest.mark.parametrize(("beside", "share", "count"), [(8, 0.2, 2), (30, 0.5, 30), (30, 0.9, 70)])
def test_a_share_of_the_mixture_is_drawn_by_seed_without_the_other_corpus(
    beside: int, share: float, count: int, root: Path
) -> None:
    drawn, store = mix(KNOWN, root=root), Store(root)
    replay = Replayed("known", drawn.fingerprint, share)
    found = replayed(replay, beside, "films", 0, store)
    assert len({one.record_id for one in found}) == len(found) == count  # 70: all that there are
    assert {(one.corpus, one.split) for one in found} <= {("reviews", "train"), ("people", "train")}
    assert found == replayed(replay, beside, "films", 0, store)
    assert count == 70 or found != replayed(replay, beside, "films", 1, store)


def test_records_come_from_the_versions_that_the_mixture_was_drawn_from(root: Path) -> None:
    drawn, store = mix(KNOWN, root=root), Store(root)
    replay = Replayed("known", drawn.fingerprint, 0.9)
    found = replayed(replay, 30, "films", 0, store)
    put_corpus(root, "reviews", [sentiment(i, 4) for i in range(200, 220)])
    assert replayed(replay, 30, "films", 0, store) == found


def test_nothing_is_drawn_of_a_corpus_with_the_same_texts_under_another_name(root: Path) -> None:
    put_corpus(root, "movies", [sentiment(i, 4, corpus="movies") for i in range(100, 120)], twins=["films"])
    drawn, store = mix(KNOWN, root=root), Store(root)
    found = replayed(Replayed("known", drawn.fingerprint, 0.9), 30, "movies", 0, store)
    assert {one.corpus for one in found} == {"reviews", "people"}


def test_what_shows_forgetting_is_what_the_mixture_does_not_draw(root: Path) -> None:
    drawn, store = mix(KNOWN, root=root), Store(root)
    assert [(one.corpus, one.split) for one in kept_of(drawn, None, store)] == [
        ("reviews", "test"),
        ("people", "validation"),
    ]
    assert [one.corpus for one in kept_of(drawn, ["people"], store)] == ["people"]
    for name in ("films", "absent"):  # films has only a training split
        with pytest.raises(UserError, match=rf"^--keep {name}: .*; name some of reviews, people"):
            kept_of(drawn, [name, "people"], store)
    alone = mix(Mixture(name="films", sources=[MixtureSource(corpus="films")]), root=root)
    with pytest.raises(UserError, match="mixture films draws from every split of its corpora"):
        kept_of(alone, None, store)


def test_a_test_split_that_the_mixture_draws_shows_nothing(tmp_path: Path) -> None:
    splits = {0: "test", 1: "validation"}
    reviews = [replace(sentiment(i, 4), split=splits.get(i % 5, "train")) for i in range(60)]  # type: ignore[arg-type]
    put_corpus(tmp_path, "reviews", reviews)
    sources = [MixtureSource(corpus="reviews"), MixtureSource(corpus="reviews", split="test")]
    drawn = mix(Mixture(name="all", sources=sources), root=tmp_path)
    assert [one.split for one in kept_of(drawn, None, Store(tmp_path))] == ["validation"]


def test_a_cell_trains_on_both_and_measures_all(root: Path, checkpoint: Path) -> None:
    store, drawn = Store(root), mix(KNOWN, root=root)
    manifest = store.current("corpora", "films")[1]
    plain = Cell(*start(str(checkpoint), store), "films", manifest.fingerprint, *splits(manifest), 2, 0, 5)
    kept = kept_of(drawn, None, store)
    cell = plain._replace(kept=kept, replay=Replayed("known", drawn.fingerprint, 0.5))
    assert len({plain.key, cell.key, plain._replace(kept=kept).key}) == 3
    shots, records = training_records(plain, store), training_records(cell, store)
    assert records[: len(shots)] == shots and len(records) == 2 * len(shots)
    result = run_cell(cell, root)
    assert result["records"] == len(records)
    measured = [(one["corpus"], one["split"], one["metric"]) for one in result["kept"]]
    assert measured == [("reviews", "test", "accuracy"), ("people", "validation", "span_f1")]
    [row] = sql(root, "SELECT replay, share, kept FROM probes").to_pylist()
    assert (row["replay"], row["share"], row["kept"]) == ("known", 0.5, result["kept"])


def test_each_checkpoint_is_measured_before_after_and_with_replay(
    root: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lambda work, jobs, address: ((i, work(*job)) for i, job in enumerate(jobs))  # noqa: E731  # without Ray
    monkeypatch.setattr("pipelines.probe.probe.completed", here)
    given: dict[str, Any] = {"shots": [2], "seeds": 1, "limit": 5, "root": root}
    results = probe([str(checkpoint)], ["films"], replay=KNOWN, keep=["people"], **given)
    found = [(one["shots"], one["replay"] and one["replay"]["share"], len(one["kept"])) for one in results]
    assert found == [(0, None, 1), (2, 0.2, 1), (2, None, 1)]
    assert [one["measured on"] for one in forgotten(results).to_pylist()] == [
        "films",
        "people",
        "(mean of the mixture)",
    ]


def test_the_table_has_means_over_seeds_and_corpora() -> None:
    def cell(shots: int, seed: int, replay: bool, own: float, *kept: float) -> dict[str, Any]:
        others = [{"corpus": name, "metric": "accuracy", "value": v} for name, v in zip("ab", kept, strict=True)]
        of = {"name": "ours", "corpus": "films", "metric": "span_f1", "value": own, "kept": others}
        return {**of, "shots": shots, "seed": seed, "replay": {"share": 0.2} if replay else None}

    results = [
        cell(0, 0, False, 0.1, 0.9, 0.5),
        cell(5, 0, False, 0.5, 0.2, 0.1), cell(5, 1, False, 0.7, 0.4, 0.1),
        cell(5, 0, True, 0.4, 0.8, 0.5), cell(5, 1, True, 0.6, 0.8, 0.3),
    ]  # fmt: skip
    rows = [tuple(row.values()) for row in forgotten(results).to_pylist()]
    assert rows == [
        ("ours", "films", "5", "films", "span_f1", "0.100", "0.600", "0.500"),
        ("ours", "films", "5", "a", "accuracy", "0.900", "0.300", "0.800"),
        ("ours", "films", "5", "b", "accuracy", "0.500", "0.100", "0.400"),
        ("ours", "films", "5", "(mean of the mixture)", "", "0.700", "0.200", "0.600"),
    ]
