"""Searches over mixtures: what runs measure, what is kept, and what is said of the result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from handmade import ner, sentiment
from msgspec.structs import replace
from tiny_run import make_encoder, make_recipe
from typer.testing import CliRunner
from worlds import put_corpus

from pipelines.cli.commands import app
from pipelines.report.page import html
from pipelines.specs import mixture as load_mixture
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from pipelines.tuning.affinity import _equal_mixture, affinity
from pipelines.tuning.clusters import clustered
from pipelines.tuning.fit import best, fit
from pipelines.tuning.proxy import Proxy, place_of, run
from pipelines.tuning.setup import Setup, setup
from pipelines.tuning.space import Space, drawn_shares, space, weighted
from pipelines.tuning.tune import LEAST
from ubert.schema.errors import UserError
from ubert.schema.record import Record, Split
from ubert.schema.specs.mixture import Mixture, MixtureSource

NAMES = ("people", "reviews", "useless")


def useless(number: int) -> Record:
    """A review whose label has nothing to do with its text, nor with that of any other corpus."""
    made = sentiment(number, corpus="useless")
    return replace(made, labels=[number * 7 % 11 % 3], text=f"number {number % 4}")


def split(record: Record, number: int) -> Record:
    """Every fifth record is for validation."""
    named: Split = "validation" if number % 5 == 0 else "train"
    return replace(record, split=named, record_id=f"{record.corpus}/{named}/{number}")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    makers: dict[str, Callable[[int], Record]] = {"people": ner, "reviews": sentiment, "useless": useless}
    for name, make in makers.items():
        put_corpus(root, name, [split(make(i), i) for i in range(50)])
    put_corpus(root, "trained", [sentiment(i, corpus="trained") for i in range(20)])
    titles = [replace(sentiment(i, corpus="titles"), task="seq2seq", target="x") for i in range(20)]
    put_corpus(root, "titles", titles)
    return root


@pytest.fixture
def root(filled: Path, tmp_path: Path) -> Path:
    """A store of its own with the same corpora."""
    (tmp_path / "corpora").symlink_to(filled / "corpora")
    return tmp_path


def mixed(*names: str, **more: Any) -> Mixture:
    sources = [MixtureSource(corpus=name) for name in names]
    return Mixture(name="mixed", leaks="allow", duplicates="keep", sources=sources, **more)


def prepared(root: Path, encoder: Path, **changes: Any) -> Setup:
    given = {"steps": 2, "targets": ["people", "reviews"], "limit": 5, **changes}
    return setup(mixed(*NAMES), make_recipe(encoder), root=root, **given)


def kept(proxy: Proxy, root: Path, losses: dict[str, float]) -> None:
    """The result of a run, as if it had finished before."""
    place = place_of(Store(root), proxy)
    assert isinstance(place, Path)
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"losses": losses}))


def true_losses(shares: np.ndarray[Any, Any]) -> dict[str, float]:
    """A world in which people need themselves, reviews need people too, and the third corpus helps neither."""
    people, reviews, other = shares
    return {
        "people": float((people + 0.01) ** -0.3),
        "reviews": float((reviews + 0.5 * people + 0.01) ** -0.3),
        "useless": float((other + 0.01) ** -0.1),
    }


def test_a_run_measures_each_corpus_and_is_not_done_twice(root: Path, encoder: Path) -> None:
    made = prepared(root, encoder)
    proxy = made.proxy(mixed(*NAMES), 0)
    result = run(proxy, root)
    assert result["losses"].keys() == {*NAMES} and all(np.isfinite([*result["losses"].values()]))
    assert result["draws"] == {f"{name}/train": 40 for name in NAMES}
    assert {path.name for path in root.iterdir()} == {"corpora", "proxies"}, "no mixture, shards or run are left"
    kept(proxy, root, {"people": 0.5})
    assert run(proxy, root) == {"losses": {"people": 0.5}}


def test_runs_are_told_apart_by_what_they_are_made_of_and_not_by_what_is_asked(root: Path, encoder: Path) -> None:
    made, others = prepared(root, encoder), prepared(root, encoder, targets=["reviews"])
    proxy = made.proxy(mixed(*NAMES), 0)
    assert proxy.key == others.proxy(mixed(*NAMES), 0).key
    longer = prepared(root, encoder, steps=3).proxy(mixed(*NAMES), 0)
    lighter = made.proxy(weighted(mixed(*NAMES), 120, [0.5, 0.3, 0.2], name="mixed"), 0)
    varied = [made.proxy(mixed(*NAMES), 1), longer, lighter, proxy._replace(limit=6), proxy._replace(weights="0")]
    assert len({proxy.key, *(one.key for one in varied)}) == 6


def test_a_run_that_learns_longer_has_a_lower_loss(root: Path, encoder: Path) -> None:
    few, many = (prepared(root, encoder, steps=steps).proxy(mixed("people"), 0) for steps in (1, 30))
    assert run(many, root)["losses"]["people"] < 0.9 * run(few, root)["losses"]["people"]


@pytest.mark.parametrize(
    ("given", "recipe", "targets", "message"),
    [
        (
            mixed("reviews", "trained"),
            {},
            None,
            r"corpus trained has no validation split .*--for reviews\), or list",
        ),
        (mixed("reviews"), {}, ["trained"], r"corpus trained has no validation split .*; list files of"),
        (mixed("reviews", "titles"), {}, None, "titles has no labels"),
        (mixed("reviews"), {}, ["titles"], "corpus titles is of task seq2seq"),
        (mixed("reviews", "absent"), {}, None, "`ubert ingest absent`"),
        (mixed("reviews", phases=[{"share": 1.0}]), {}, None, "mixture mixed has phases"),
        (mixed("reviews"), {"ancestor": "universal-small"}, None, "no `from`"),
        (mixed("reviews"), {"objectives": {"spexbert": 1.0}}, None, "the structure table alone"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name_with_the_cure(
    root: Path, encoder: Path, given: Mixture, recipe: dict[str, Any], targets: list[str] | None, message: str
) -> None:
    changed = make_recipe(encoder).model_copy(update=recipe)
    with pytest.raises(UserError, match=message):
        setup(given, changed, steps=2, targets=targets, limit=5, root=root)


def test_a_validation_split_that_is_trained_on_measures_nothing(root: Path, encoder: Path) -> None:
    trained = mixed("reviews").model_copy(
        update={"sources": [MixtureSource(corpus="reviews"), MixtureSource(corpus="people", split="validation")]}
    )
    with pytest.raises(UserError, match="corpus people has its validation split among the sources"):
        setup(trained, make_recipe(encoder), steps=2, targets=None, limit=5, root=root)


def open_space(sources: int) -> Space:
    even = np.full(sources, 1 / sources)
    return Space([*"abc"[:sources]], even, even, np.full(sources, 1e-3), np.ones(sources), 1000)


def simulated(losses: Callable[[np.ndarray[Any, Any], int], dict[str, float]]) -> tuple[Any, Any]:
    """Shares and losses of 40 trials."""
    shares = np.array([drawn_shares(open_space(3), 0, 0, trial) for trial in range(40)])
    rows = [losses(of_trial, trial) for trial, of_trial in enumerate(shares)]
    return shares, np.array([[row[name] for name in NAMES] for row in rows])


def test_a_fit_predicts_trials_that_it_has_not_seen_and_leaves_out_what_helps_nobody() -> None:
    noise = np.random.default_rng(0).normal(1, 0.01, (40, 3))
    shares, losses = simulated(lambda shares, trial: true_losses(shares))
    found = fit(shares, losses * noise, NAMES, ["people", "reviews"])
    assert found.held_back.correlation > 0.8 and not found.is_chance
    chosen = best(found, open_space(3), NAMES, ["people", "reviews"], 0)
    assert chosen.sum() == pytest.approx(1) and chosen[2] < 0.1
    even, better = (true_losses(one) for one in (np.full(3, 1 / 3), chosen))
    assert better["people"] * better["reviews"] < 0.95 * even["people"] * even["reviews"]


def test_a_fit_of_noise_is_said_to_be_chance() -> None:
    random = np.random.default_rng(1)
    shares, losses = simulated(lambda shares, trial: dict(zip(NAMES, random.uniform(1, 2, 3), strict=True)))
    assert fit(shares, losses, NAMES, NAMES).is_chance


def test_sources_that_suit_one_another_are_one_group() -> None:
    nan = np.nan
    change = [[nan, -0.1, 0.2, 0.3], [-0.2, nan, 0.3, 0.3], [0.3, 0.4, nan, 0.1], [0.2, 0.2, 0.0, nan]]
    order, groups = clustered([np.array(of_source) for of_source in change])
    assert sorted(map(sorted, groups)) == [[0, 1], [2, 3]]
    assert sorted(order) == [0, 1, 2, 3] and {*order[:2]} in ({0, 1}, {2, 3})
    _, alone = clustered([None, np.array([0.1, nan])])
    assert len(alone) <= 2


def specs_of(folder: Path, encoder: Path, mixture: Mixture) -> Path:
    """Specs with this mixture and a recipe of its name."""
    for kind in ("mixtures", "recipes"):
        (folder / kind).mkdir(parents=True)
    sources = [{"corpus": source.corpus} for source in mixture.sources]
    content = {"name": mixture.name, "leaks": "allow", "duplicates": "keep", "sources": sources}
    (folder / "mixtures" / f"{mixture.name}.yaml").write_text(yaml.safe_dump(content))
    recipe = make_recipe(encoder, name=mixture.name, mixture=mixture.name)
    content = recipe.model_dump(exclude_defaults=True)
    (folder / "recipes" / f"{mixture.name}.yaml").write_text(yaml.safe_dump(content))
    return folder


def asked(command: str, root: Path, specs: Path, *more: str) -> str:
    words = [command, "mixed", "--for", "people,reviews", "--steps", "2", "--limit", "5", *more]
    done = CliRunner().invoke(app, [*words, "--root", str(root), "--specs", str(specs)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
@pytest.mark.ray
def test_an_interrupted_search_goes_on_counts_what_died_and_writes_what_it_found(
    root: Path, encoder: Path, tmp_path: Path, local_ray: None
) -> None:
    """All trials but one are there already, and the losses of that world are known."""
    made = prepared(root, encoder)
    bounds = space(made.mixture, made.drawn)
    for trial in range(LEAST + 14):
        shares = drawn_shares(bounds, 0, 0, trial)
        proxy = made.proxy(weighted(made.mixture, bounds.size, shares, name="mixed"), 0)
        if trial != 5:
            kept(proxy, root, true_losses(shares))
    specs, out = specs_of(tmp_path / "specs", encoder, mixed(*NAMES)), tmp_path / "mixed-found.yaml"
    said = asked("tune", root, specs, "--trials", str(LEAST + 14), "--seeds", "2", "--out", str(out))
    assert f"{LEAST + 14} trials" in said and "died" not in said
    assert len([*(root / "proxies").glob("*.json")]) == LEAST + 14 + 4, "one trial and four confirming runs"

    (specs / "mixtures" / out.name).write_text(out.read_text())
    found = load_mixture("mixed-found", specs)
    weights = {source.corpus: source.weight for source in found.sources}
    assert weights["useless"] == min(weights.values()) < 0.2
    [evidence] = (root / "tunings").glob("*.json")
    assert evidence.stem in found.description and len(json.loads(evidence.read_text())["trials"]) == LEAST + 14
    page = out.with_suffix(".md").read_text()
    assert f"The evidence is {evidence.stem}" in page and "mixed-found.svg" in page
    assert "<svg" in out.with_suffix(".svg").read_text()


@pytest.mark.slow
@pytest.mark.ray
def test_affinity_is_a_view_a_heat_map_and_groups_and_goes_on(
    root: Path, encoder: Path, tmp_path: Path, local_ray: None
) -> None:
    """All runs but one are there already: reviews gain from people, and nothing gains from the useless corpus."""
    made = prepared(root, encoder)
    losses = {
        "people": {"people": 1.0, "reviews": 3.0},
        "reviews": {"people": 3.0, "reviews": 1.0},
        "people reviews": {"people": 1.1, "reviews": 0.8},
        "people useless": {"people": 1.5, "reviews": 3.0},
    }
    for sources, of_run in losses.items():
        kept(made.proxy(_equal_mixture(made, [f"{name}/train" for name in sources.split()]), 0), root, of_run)
    specs, picture = specs_of(tmp_path / "specs", encoder, mixed(*NAMES)), tmp_path / "map.svg"
    said = asked("affinity", root, specs, "--out", str(picture))
    assert "-20.0%" in said and "+50.0%" in said and "<svg" in picture.read_text()
    assert len([*(root / "proxies").glob("*.json")]) == 5
    rows = sql(root, "SELECT * FROM affinity WHERE corpus = 'reviews' AND added = 'people/train'").to_pylist()
    assert [(row["loss_alone"], row["loss_with"], row["seed"]) for row in rows] == [(1.0, 0.8, 0)]
    [[groups]] = sql(root, "SELECT count(DISTINCT cluster) FROM affinity").to_pandas().values.tolist()
    assert groups == 2


@pytest.mark.slow
@pytest.mark.ray
def test_a_run_that_dies_is_counted(root: Path, encoder: Path, local_ray: None) -> None:
    """A loss that isn't finite ends a run; with every run dead there is no result."""
    made = prepared(root, encoder, targets=["people"])
    hot = made._replace(recipe=made.recipe.model_copy(update={"learning_rate": 1e30, "head_learning_rate": 1e30}))
    for names, loss in ((["people/train"], 1.0), (["people/train", "reviews/train"], 1.2)):
        kept(hot.proxy(_equal_mixture(hot, names), 0), root, {"people": loss})
    found = affinity(hot, seeds=1, root=root)
    [reason] = found.died.values()
    assert "loss is nan" in reason or "norm is" in reason
    assert [(row["added"], round(row["change"], 3)) for row in found.rows] == [("reviews/train", 0.2)]
    with pytest.raises(UserError, match="all 3 runs died; the first one"):
        affinity(hot._replace(limit=4), seeds=1, root=root)


def test_the_report_shows_what_helps_what(root: Path) -> None:
    same = {"mixture": "mixed", "fingerprint": "0", "steps": 9, "loss_alone": 1.0}
    clusters = {"reviews/train": 0, "people/train": 1}
    rows = [
        same
        | {"corpus": corpus, "added": added, "cluster": clusters[added], "seed": seed}
        | {"loss_with": 1 + change, "change": change}
        for corpus, added, seed, change in (
            ("people", "reviews/train", 0, -0.3),
            ("people", "reviews/train", 1, -0.1),
            ("reviews", "people/train", 0, 0.1),
        )
    ]
    (root / "affinity").mkdir(exist_ok=True)
    (root / "affinity" / "mixed.json").write_text(json.dumps({"rows": rows}))
    page = html(root)
    assert re.search(r'falls" style="--strength: 60.0%" title="mean of 2 seeds">-20.0 %', page)
    assert re.search(r'rises" style="--strength: 30.0%" title="mean of 1 seed">\+10.0 %', page)
    assert page.count('<td class="n">\n') >= 2  # a source is not added to itself
    assert "help one another: reviews/train; people/train." in page
    in_order = 'reviews<wbr>/<wbr>train<th.*people<wbr>/<wbr>train</tr>.*row">reviews.*row">people'
    assert re.search(in_order, page, re.DOTALL), "rows and columns have one order, by cluster"
