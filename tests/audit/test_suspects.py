"""Suspects: wrong labels, mentions and answers are found and said what is wrong with, and mixtures drop them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade import ner, question, record, sentiment
from msgspec.structs import replace
from tiny_run import make_encoder
from typer.testing import CliRunner
from worlds import put_corpus

from pipelines.cli.commands import app
from pipelines.mixtures.mix import composition, mix
from pipelines.report.page import html
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from pipelines.suspects import labels
from pipelines.suspects.evidence import ranked
from pipelines.suspects.fold import Fold, fold_of, place_of, run_fold
from pipelines.suspects.labels import suspicious_labels
from pipelines.suspects.mentions import Mention, Predicted, suspicious_mentions
from pipelines.suspects.start import DEFAULT, default_recipe, starting_from
from pipelines.suspects.suspects import folds_of, suspects
from ubert.schema.dynamics import SCHEMA
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.record import Record
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe

REVIEWS = [sentiment(i) for i in range(100)]
WRONG = {"reviews/train/7", "reviews/train/40", "reviews/train/81"}


def flipped(one: Record) -> Record:
    return replace(one, labels=[(one.labels[0] + 1) % 3]) if one.record_id in WRONG else one


def told_labels(records: list[Record]) -> dict[str, dict[str, float]]:
    """What a model says that is right nine times in ten, and mostly surely."""
    draw = random.Random(0)
    found = {}
    for one in records:
        right = one.labels[0] if draw.random() < 0.9 else draw.randrange(3)
        sure = draw.uniform(0.6, 0.95)
        scores = [sure if i == right else (1 - sure) / 2 for i in range(3)]
        found[one.record_id] = dict(zip([c.name for c in one.categories], scores, strict=True))
    return found


def test_planted_labels_come_first_and_say_what_is_wrong() -> None:
    noisy = list(map(flipped, REVIEWS))
    found = ranked(suspicious_labels(noisy, told_labels(REVIEWS)), "a test").to_pylist()
    assert WRONG.issubset(row["record_id"] for row in found[:12])
    assert all(row["flagged"] for row in found if row["record_id"] in WRONG)
    [seventh] = [row for row in found if row["record_id"] == "reviews/train/7"]
    assert (seventh["kind"], seventh["said"], seventh["predicted"]) == (
        "wrong label",
        "opinion number 2",
        "opinion number 1",
    )
    assert [row["rank"] for row in found] == sorted(row["rank"] for row in found)


def test_options_of_their_own_are_compared_by_their_place() -> None:
    options = [
        record("quiz", i, "choice", f"riddle {i}", [f"a{i}", f"b{i}"], labels=[i % 2 if i else 1])
        for i in range(40)
    ]
    told = {
        one.record_id: {f"a{i}": 0.9 - 0.8 * (i % 2), f"b{i}": 0.1 + 0.8 * (i % 2)}
        for i, one in enumerate(options)
    }
    [found] = suspicious_labels(options, told)
    assert (found.record.record_id, found.said, found.predicted) == ("quiz/train/0", "b0", "a0")


def test_missed_and_spurious_labels_of_many() -> None:
    names = ["red", "green", "blue"]
    many = [
        record("tags", i, "multilabel", f"thing {i}", names, labels=[0] if i % 2 else [0, 1]) for i in range(40)
    ]
    told = {one.record_id: {name: 0.9 if j in one.labels else 0.1 for j, name in enumerate(names)} for one in many}
    many[3] = replace(many[3], labels=[0, 2])
    many[4] = replace(many[4], labels=[0])
    found = {(one.record.record_id, one.kind, one.said, one.predicted) for one in suspicious_labels(many, told)}
    assert found == {
        ("tags/train/3", "spurious label", "blue", None),
        ("tags/train/4", "missed label", None, "green"),
    }


def reliable(count: int) -> tuple[list[Record], dict[str, Predicted]]:
    """Records whose mentions a model finds surely."""
    records = [ner(i) for i in range(count)]
    told = {}
    for one in records:
        mentions = [Mention(span.start, span.end, one.categories[span.category or 0].name) for span in one.spans]
        told[one.record_id] = Predicted(dict.fromkeys(mentions, 0.9), mentions)
    return records, told


def test_each_kind_of_wrong_mention_is_told_from_the_others() -> None:
    records, told = reliable(30)
    assert list(suspicious_mentions(records, told)) == []
    person, place = records[0].spans
    changed = {
        0: [place],  # missed: the person
        1: [*records[1].spans, replace(place, start=-6 + len(records[1].text), end=len(records[1].text) - 1)],
        2: [replace(records[2].spans[0], category=2), records[2].spans[1]],  # a firm
        3: [replace(records[3].spans[0], end=records[3].spans[0].end - 2), records[3].spans[1]],
    }
    for i, spans in changed.items():
        records[i] = replace(records[i], spans=spans)
    found = {one.record.record_id: one for one in suspicious_mentions(records, told)}
    kinds = {
        f"people/train/{i}": kind for i, kind in enumerate(("missed", "spurious", "wrong type", "wrong boundary"))
    }
    assert {record_id: one.kind for record_id, one in found.items()} == kinds
    missed, wrong = found["people/train/0"], found["people/train/2"]
    assert (missed.said, missed.predicted, missed.confidence) == (None, "Ada Lovelace [person]", 0.9)
    assert (wrong.said, wrong.predicted) == ("Lise Meitner [firm]", "Lise Meitner [person]")
    assert missed.flagged and 0 < missed.score < 0.9 and person.category == 0


def test_a_model_that_finds_little_accuses_nobody() -> None:
    records, told = reliable(30)
    silent = {record_id: Predicted({}, []) for record_id in list(told)[:27]}
    found = list(suspicious_mentions(records, told | silent))
    assert found and not any(one.flagged for one in found)


def test_answers_that_overlap_with_any_right_one_are_none() -> None:
    records = [question(i) for i in range(30)]
    told = {}
    for one in records:
        span = one.spans[0] if one.spans else None
        own = [Mention(span.start, span.end, one.categories[0].name)] if span else []
        told[one.record_id] = Predicted(dict.fromkeys(own, 0.9), own)
    assert list(suspicious_mentions(records, told)) == []
    elsewhere = Mention(0, 3, records[1].categories[0].name)
    told["questions/train/1"] = Predicted({elsewhere: 0.8}, [elsewhere])
    told["questions/train/3"] = Predicted({elsewhere._replace(category=records[3].categories[0].name): 0.8}, [])
    told["questions/train/2"] = Predicted({}, [])
    found = {one.record.record_id: (one.kind, one.predicted) for one in suspicious_mentions(records, told)}
    assert found == {"questions/train/1": ("wrong answer", "Nie"), "questions/train/2": ("spurious answer", None)}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    put_corpus(root, "reviews", list(map(flipped, REVIEWS)))
    put_corpus(root, "people", [ner(i) for i in range(20)])
    return root


def brief(encoder: Path) -> Recipe:
    return DEFAULT.model_copy(update={"encoder": str(encoder), "steps": 2, "epochs": None, "max_tokens": 48})


def run_all(root: Path, corpus: str, recipe: Recipe) -> list[Fold]:
    every = folds_of(Store(root).current("corpora", corpus)[1], recipe, 2)
    for fold in every:
        run_fold(fold, root)
    return every


@pytest.mark.parametrize("corpus", ["reviews", pytest.param("people", marks=pytest.mark.slow)])
def test_folds_are_kept_and_each_record_is_asked_about_once(root: Path, encoder: Path, corpus: str) -> None:
    every = run_all(root, corpus, brief(encoder))
    rows = [row for fold in every for row in pq.read_table(str(place_of(Store(root), fold))).to_pylist()]
    ids = [row["record_id"] for row in sql(root, f"FROM records WHERE corpus = '{corpus}'", [corpus]).to_pylist()]
    if corpus == "reviews":
        assert sorted({row["record_id"] for row in rows}) == sorted(ids) and len(rows) == 3 * len(ids)
    made = suspects(corpus, root=root, recipe=brief(encoder), folds=2)  # starts no Ray
    [known] = sql(root, f"SELECT count(*) AS n FROM suspects WHERE corpus = '{corpus}'").to_pylist()
    assert known["n"] == made.counts["annotations"] and made.parameters["source"] == "2 folds"
    assert suspects(corpus, root=root, recipe=brief(encoder), folds=2) == made


def test_records_of_one_text_share_a_fold() -> None:
    one = REVIEWS[3]
    again = replace(one, record_id="other/train/9", text=one.text.upper())
    assert fold_of(one, 5) == fold_of(again, 5) and {fold_of(each, 5) for each in REVIEWS} == set(range(5))


def test_folds_start_from_the_model_of_the_package_unless_it_has_seen_the_corpus(root: Path) -> None:
    manifest = Store(root).current("corpora", "reviews")[1]
    known = [
        manifest.model_copy(update={"name": "sst"}),
        manifest.model_copy(update={"dataset": "sst"}),
        manifest.model_copy(update={"twins": ["sst"]}),
    ]
    assert default_recipe(manifest).ancestor == "universal-small"
    assert [default_recipe(one).ancestor for one in known] == [None, None, None]
    [first, second] = [folds_of(manifest, recipe, 2)[0] for recipe in (default_recipe(manifest), DEFAULT)]
    assert first.key != second.key
    with pytest.raises(UserError, match=r"universal-small was trained on sst, sst_fine.* leave out `from`"):
        folds_of(known[0], default_recipe(manifest), 2)
    with pytest.raises(UserError, match=r"a model that comes with ubert \(universal-small\)"):
        folds_of(manifest, starting_from("my-run"), 2)


def put_passes(root: Path, run: str, believed: dict[str, float]) -> None:
    """The parts of a run of one epoch."""
    rows = [
        {
            "record_id": record_id,
            "row": i,
            "epoch": 0,
            "step": 1,
            "loss": 1 - sure,
            "confidence": sure,
            "margin": sure - 0.5,
            "predicted": 0,
        }
        for i, (record_id, sure) in enumerate(believed.items())
    ]
    folder = root / "runs" / run / "dynamics"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "00000001-0.parquet")


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A corpus whose suspects are known, from one run."""
    put_corpus(tmp_path, "reviews", list(map(flipped, REVIEWS)))
    put_passes(tmp_path, "one", {one.record_id: 0.1 if one.record_id in WRONG else 0.9 for one in REVIEWS})
    suspects("reviews", root=tmp_path, run="one")
    return tmp_path


def test_one_run_says_what_it_did_not_believe(known: Path) -> None:
    rows = sql(known, "SELECT record_id, predicted, flagged, source FROM suspects").to_pylist()
    assert {row["record_id"] for row in rows} == WRONG
    assert all(
        (row["predicted"], row["flagged"], row["source"]) == ("opinion number 0", True, "run one") for row in rows
    )


def test_a_mixture_drops_suspects_and_counts_them(known: Path) -> None:
    wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
    kept = mix(Mixture(**wanted), root=known)
    manifest = mix(Mixture(**wanted, suspects="drop"), root=known)
    assert (kept.sources[0].draws, manifest.sources[0].draws) == (100, 97)
    assert manifest.sources[0].dropped_suspects == manifest.dropped == 3
    assert composition(manifest).column("suspects").to_pylist() == [3, 3]
    rows = sql(known, "SELECT record_id, reason, kind FROM dropped").to_pylist()
    assert {row["record_id"] for row in rows} == WRONG
    assert {(row["reason"], row["kind"]) for row in rows} == {("suspect", "wrong label")}


def test_a_mixture_draws_a_share_of_the_suspects(known: Path) -> None:
    def kept(seed: int) -> set[str]:
        wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
        manifest = mix(Mixture(**wanted, suspects=0.5, seed=seed), root=known)
        dropped = {row["record_id"] for row in sql(known, "SELECT record_id FROM dropped").to_pylist()}
        assert manifest.sources[0].draws == 100 - len(dropped) and dropped <= WRONG
        return WRONG - dropped

    of_seeds = [kept(seed) for seed in range(4)]
    assert of_seeds == [kept(seed) for seed in range(4)]
    assert 0 < sum(map(len, of_seeds)) < 4 * len(WRONG) and len(set(map(frozenset, of_seeds))) > 1


def test_the_word_leaves_other_mixtures_as_they_were() -> None:
    wanted = Mixture(name="shop", sources=[{"corpus": "reviews"}])  # type: ignore[list-item]
    assert "suspects" not in wanted.meaning
    assert fingerprint(wanted.meaning) != fingerprint(wanted.model_copy(update={"suspects": "drop"}).meaning)


def test_a_mixture_refuses_suspects_of_another_state(known: Path) -> None:
    put_corpus(known, "reviews", REVIEWS[:50])
    wanted = Mixture(name="shop", sources=[{"corpus": "reviews"}], suspects="drop")  # type: ignore[list-item]
    with pytest.raises(UserError, match="run `ubert suspects reviews`, or say `suspects: keep`"):
        mix(wanted, root=known)


def test_a_mixture_refuses_to_drop_suspects_where_none_can_be(known: Path) -> None:
    put_corpus(known, "scores", [replace(one, task="regression") for one in REVIEWS])
    wanted = Mixture(name="shop", sources=[{"corpus": "scores"}], suspects="drop")  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"mixture shop: suspects: drop: .* no source is one; remove `suspects`"):
        mix(wanted, root=known)


def test_the_report_shows_what_both_say(known: Path) -> None:
    page = html(known)
    assert "reviews: 3 annotations, 3 flagged" in page and "opinion number 2" in page


def test_what_cannot_have_suspects_is_refused(known: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_corpus(known, "tested", [replace(one, split="test") for one in REVIEWS])
    put_corpus(known, "scores", [replace(one, task="regression") for one in REVIEWS])
    with pytest.raises(UserError, match="corpus tested has no training split"):
        suspects("tested", root=known)
    with pytest.raises(UserError, match="corpus scores: a model can contradict labels"):
        suspects("scores", root=known)
    with pytest.raises(UserError, match=r"run two: no dynamics in .*train it with `dynamics: true`"):
        suspects("reviews", root=known, run="two")
    put_passes(known, "three", {"elsewhere/train/1": 0.5})
    with pytest.raises(UserError, match="run three: its dynamics have no record of corpus reviews"):
        suspects("reviews", root=known, run="three")
    pointing = brief(encoder).model_copy(update={"objectives": {"spexbert": 1.0}})
    with pytest.raises(UserError, match="folds are trained on structure tables"):
        suspects("reviews", root=known, recipe=pointing)
    monkeypatch.setattr(labels, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="need the package cleanlab; run pip install 'ubert\\[suspects\\]'"):
        suspects("reviews", root=known)


def test_the_command_prints_the_worst(known: Path) -> None:
    found = CliRunner().invoke(app, ["suspects", "reviews", "--run", "one", "--root", str(known)])
    assert found.exit_code == 0 and "reviews: 3 suspects, of which 3 are flagged (run one)" in found.output
