"""Searches over mixtures: what runs measure, what is stored, and the report of the result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
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
from pipelines.mixtures.mix import mix
from pipelines.report.page import html
from pipelines.specs import mixture as load_mixture
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from pipelines.training import short_run
from pipelines.tuning.affinity import _equal_mixture, affinity
from pipelines.tuning.clusters import clustered
from pipelines.tuning.fit import Fit, Rank, best, fit, rank
from pipelines.tuning.heat_map import heat_map
from pipelines.tuning.page import as_yaml, write
from pipelines.tuning.proxy import Proxy, explained, place_of, run, run_all
from pipelines.tuning.setup import Setup, proxy_recipe, setup
from pipelines.tuning.space import Space, drawn_shares, space, weighted
from pipelines.tuning.tune import MIN_TRIALS, Confirmed, Tuned, tune, verdict
from ubert.schema.errors import UserError
from ubert.schema.record import Record, Split
from ubert.schema.specs.mixture import Mixture, MixtureSource
from ubert.schema.specs.recipe import Recipe, Replay

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


def test_the_loss_is_that_of_validation_records(
    root: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Record] = []

    def shards_of(records: list[Record], *given: Any) -> Path:
        seen.extend(records)
        return short_run.shards_of(records, *given)

    monkeypatch.setattr("pipelines.tuning.proxy.shards_of", shards_of)
    run(prepared(root, encoder).proxy(mixed(*NAMES), 0), root)
    assert len(seen) == 5 * len(NAMES) and {one.split for one in seen} == {"validation"}


def test_runs_are_distinguished_by_what_they_are_made_of_and_not_by_what_is_asked(
    root: Path, encoder: Path
) -> None:
    made, others = prepared(root, encoder), prepared(root, encoder, targets=["reviews"])
    proxy = made.proxy(mixed(*NAMES), 0)
    assert proxy.key == others.proxy(mixed(*NAMES), 0).key
    longer = prepared(root, encoder, steps=3).proxy(mixed(*NAMES), 0)
    lighter = made.proxy(weighted(mixed(*NAMES), 120, [0.5, 0.3, 0.2], name="mixed"), 0)
    varied = [made.proxy(mixed(*NAMES), 1), longer, lighter, proxy._replace(limit=6), proxy._replace(weights="0")]
    assert len({proxy.key, *(one.key for one in varied)}) == 6


def test_names_and_the_order_of_what_is_measured_tell_no_runs_apart(root: Path, encoder: Path) -> None:
    proxy = prepared(root, encoder).proxy(mixed(*NAMES), 0)
    renamed = proxy.recipe.model_copy(update={"name": "x", "description": "y", "mixture": "z"})
    assert proxy._replace(recipe=renamed, measured=proxy.measured[::-1]).key == proxy.key
    slower = proxy.recipe.model_copy(update={"learning_rate": 1e-5})
    changed: list[dict[str, Any]] = [{"recipe": slower}, {"origin": "0"}, {"measured": proxy.measured[1:]}]
    assert len({proxy.key, *(proxy._replace(**one).key for one in changed)}) == 4


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
        (mixed("reviews", phases=[{"share": 1.0}]), {}, None, "mixture mixed has `phases`"),
        (
            mixed("reviews", "people", "trained"),
            {},
            ["people", "trained"],
            r"corpus trained has no validation split .*--for people\), or list",
        ),
        (mixed("reviews"), {"ancestor": "universal-small"}, None, "no `from`"),
        (mixed("reviews"), {"continue_from": "tiny/step-000003"}, None, "no `from`, `continue_from`"),
        (mixed("reviews"), {"replay": Replay(mixture="old", share=0.5)}, None, "no `from`, .* `replay`"),
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
    assert found.true_H == pytest.approx(np.log(losses * noise)[3::4, :2].mean(1))
    assert found.kind == max(found.validated, key=lambda kind: found.validated[kind])
    assert found.corpora.keys() == {*NAMES} and found.corpora["people"].correlation > 0.8
    chosen = best(found, open_space(3), NAMES, ["people", "reviews"], 0)
    assert chosen.sum() == pytest.approx(1) and chosen[2] < 0.1
    even, better = (true_losses(one) for one in (np.full(3, 1 / 3), chosen))
    assert better["people"] * better["reviews"] < 0.95 * even["people"] * even["reviews"]


def test_a_fit_of_noise_is_reported_as_chance() -> None:
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
def test_an_interrupted_search_resumes_counts_what_died_and_writes_what_it_found(
    root: Path, encoder: Path, tmp_path: Path, local_ray: None
) -> None:
    """All trials but one are there already, and the losses of that world are known."""
    made = prepared(root, encoder)
    bounds = space(made.mixture, made.drawn)
    for trial in range(MIN_TRIALS + 14):
        shares = drawn_shares(bounds, 0, 0, trial)
        proxy = made.proxy(weighted(made.mixture, bounds.size, shares, name="mixed"), 0)
        if trial != 5:
            kept(proxy, root, true_losses(shares))
    specs, out = specs_of(tmp_path / "specs", encoder, mixed(*NAMES)), tmp_path / "mixed-found.yaml"
    said = asked("tune", root, specs, "--trials", str(MIN_TRIALS + 14), "--seeds", "2", "--out", str(out))
    assert f"{MIN_TRIALS + 14} trials" in said and "died" not in said
    assert len([*(root / "proxies").glob("*.json")]) == MIN_TRIALS + 14 + 4, "one trial and four confirming runs"

    (specs / "mixtures" / out.name).write_text(out.read_text())
    found = load_mixture("mixed-found", specs)
    weights = {source.corpus: source.weight for source in found.sources}
    assert weights["useless"] == min(weights.values()) < 0.2
    [evidence] = (root / "tunings").glob("*.json")
    assert (
        evidence.stem in found.description and len(json.loads(evidence.read_text())["trials"]) == MIN_TRIALS + 14
    )
    page = out.with_suffix(".md").read_text()
    assert f"The evidence is {evidence.stem}" in page and "mixed-found.svg" in page
    assert "<svg" in out.with_suffix(".svg").read_text()


@pytest.mark.slow
@pytest.mark.ray
def test_affinity_is_a_view_a_heat_map_and_groups_and_resumes(
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
    with pytest.raises(UserError, match="all 3 runs failed; the first one"):
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
    assert "harm one another least: reviews/train; people/train." in page
    in_order = 'reviews<wbr>/<wbr>train<th.*people<wbr>/<wbr>train</tr>.*row">reviews.*row">people'
    assert re.search(in_order, page, re.DOTALL), "rows and columns have one order, by cluster"


Jobs = Sequence[tuple[Proxy, Path]]


def finishing(
    root: Path, monkeypatch: pytest.MonkeyPatch, losses: Callable[[Proxy], dict[str, float]], dying: set[str]
) -> list[list[Proxy]]:
    """Let runs have these losses, but for those that die, by key. Return the runs of each search for results; the
    last of them finishes first."""
    searches: list[list[Proxy]] = []

    def completed(work: object, jobs: Jobs, address: str | None = None) -> Iterator[tuple[int, object]]:
        searches.append([proxy for proxy, _ in jobs])
        for index, (proxy, _) in reversed([*enumerate(jobs)]):
            if proxy.key in dying:
                yield index, UserError(f"too hot with seed {proxy.recipe.seed}")
            else:
                kept(proxy, root, losses(proxy))
                yield index, {}

    monkeypatch.setattr("pipelines.tuning.proxy.completed", completed)
    return searches


def test_results_are_those_of_their_runs_and_each_run_is_made_once(
    root: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepared(root, encoder)
    proxies = [made.proxy(mixed(*NAMES), seed) for seed in (0, 1, 2, 3, 1)]
    kept(proxies[0], root, {"people": 0.5})
    dying = {proxies[2].key, proxies[3].key}
    searches = finishing(root, monkeypatch, lambda proxy: {"people": 1 / 4}, dying)
    found = run_all(proxies, root, None, "runs")
    assert searches == [proxies[1:4]]
    assert found.losses == {proxies[0].key: {"people": 0.5}, proxies[1].key: {"people": 0.25}}
    assert found.died == {proxies[seed].key: f"too hot with seed {seed}" for seed in (2, 3)}
    assert run_all([proxies[0], proxies[2]], root, None, "runs").died.keys() == {proxies[2].key}
    with pytest.raises(UserError, match="all 2 runs failed; the first one: too hot with seed 3"):
        run_all(proxies[2:4], root, None, "runs")


def test_runs_that_failed_are_counted_and_each_reason_is_reported_once() -> None:
    assert explained({"a": "hot"}) == "1 run failed: hot"
    assert explained({"a": "hot", "b": "cold", "c": "hot"}) == "3 runs failed: hot; cold"


def test_affinity_is_the_mean_change_over_seeds(root: Path, encoder: Path, tmp_path: Path) -> None:
    """All runs are there already. No run of the useless corpus alone is needed."""
    made = prepared(root, encoder)
    losses: dict[str, list[dict[str, float]]] = {
        "people": [{"people": 1.0}, {"people": 2.0}],
        "reviews": [{"reviews": 1.0}, {"reviews": 2.0}],
        "people reviews": [{"people": 1.1, "reviews": 0.8}, {"people": 2.6, "reviews": 1.4}],
        "people useless": [{"people": 1.5}, {"people": 2.0}],
        "reviews useless": [{"reviews": 1.2}, {"reviews": 2.2}],
    }
    for sources, of_seeds in losses.items():
        mixture = _equal_mixture(made, [f"{name}/train" for name in sources.split()])
        for seed, of_run in enumerate(of_seeds):
            kept(made.proxy(mixture, seed), root, of_run)
    found = affinity(made, seeds=2, root=root)
    changes = {
        (corpus, added): found.change_CK[c, k]
        for c, corpus in enumerate(found.corpora)
        for k, added in enumerate(found.sources)
        if not np.isnan(found.change_CK[c, k])
    }
    assert changes == pytest.approx(
        {
            ("people", "reviews/train"): 0.2,
            ("people", "useless/train"): 0.25,
            ("reviews", "people/train"): -0.25,
            ("reviews", "useless/train"): 0.15,
        }
    )
    assert sorted(map(sorted, found.clusters)) == [["people/train", "reviews/train"], ["useless/train"]]
    assert found.corpora == [name.split("/")[0] for name in found.sources if name != "useless/train"]
    [row] = [row for row in found.rows if (row["added"], row["seed"]) == ("people/train", 1)]
    assert (row["corpus"], row["loss_alone"], row["loss_with"], row["steps"]) == ("reviews", 2.0, 1.4, 2)
    assert all("useless" not in row["corpus"] for row in found.rows) and len(found.rows) == 8
    assert {(row["added"], row["cluster"]) for row in found.rows} == {
        (name, number) for number, members in enumerate(found.clusters) for name in members
    }
    assert json.loads((root / "affinity" / "mixed.json").read_text())["rows"] == found.rows
    with pytest.raises(UserError, match=r"map.nothing: cannot be written"):
        heat_map(found, tmp_path / "map.nothing")


def test_affinity_needs_a_source_to_add_and_one_to_add_it_to(root: Path, encoder: Path) -> None:
    given: dict[str, Any] = {"recipe": make_recipe(encoder), "steps": 2, "limit": 5, "root": root}
    alone = setup(mixed("people"), targets=None, **given)
    outside = setup(mixed("people", "useless"), targets=["people", "reviews"], **given)
    with pytest.raises(UserError, match="mixture mixed has only one source, so nothing can be added"):
        affinity(alone, seeds=1, root=root)
    with pytest.raises(UserError, match="corpus reviews is not a source of mixture mixed"):
        affinity(outside, seeds=1, root=root)
    with pytest.raises(UserError, match="mixture mixed has only one source, so there are no weights to find"):
        tune(alone, trials=20, seeds=2, seed=0, root=root)
    with pytest.raises(UserError, match=f"--trials 2: a fit needs at least {MIN_TRIALS}"):
        tune(alone, trials=2, seeds=2, seed=0, root=root)


def test_sources_have_equal_draws_whatever_their_sizes_and_weights(root: Path, encoder: Path) -> None:
    sources = [MixtureSource(corpus="people", weight=3), MixtureSource(corpus="trained", cap=7)]
    mixture = Mixture(name="mixed", leaks="allow", duplicates="keep", sources=sources)
    made = setup(mixture, make_recipe(encoder), steps=2, targets=["people"], limit=5, root=root)
    for names, draws in (["people"], [40]), (["trained"], [40]), (["people", "trained"], [40, 40]):
        equal = _equal_mixture(made, [f"{name}/train" for name in names])
        assert [source.draws for source in mix(equal, root=root, dry_run=True).sources] == draws


def test_all_corpora_that_can_be_are_measured_and_the_targets_are_those_asked_for(
    root: Path, encoder: Path
) -> None:
    def measured(mixture: Mixture, targets: list[str] | None) -> tuple[list[tuple[str, str]], list[str]]:
        made = setup(mixture, make_recipe(encoder), steps=2, targets=targets, limit=5, root=root)
        return [*made.measured], made.targets

    version = {name: Store(root).current("corpora", name)[1].fingerprint for name in NAMES}
    assert measured(mixed(*NAMES), None) == ([*version.items()], [*NAMES])
    both = [(name, version[name]) for name in ("reviews", "people")]
    assert measured(mixed("reviews", "trained"), ["people"]) == (both, ["people"])


def test_the_recipe_is_the_one_named_or_the_mixtures_or_a_default(encoder: Path, tmp_path: Path) -> None:
    specs = specs_of(tmp_path, encoder, mixed(*NAMES))
    found = proxy_recipe(None, "mixed", specs)
    assert found == proxy_recipe("mixed", "other", specs) and found.encoder == str(encoder)
    assert proxy_recipe(None, "other", specs) == Recipe(name="other", mixture="other", steps=1)


def test_ranks_count_only_in_the_right_direction() -> None:
    rising, same = np.arange(8.0), np.ones(8)
    assert rank(rising, rising**2).correlation == pytest.approx(1) and rank(rising, rising**2).chance < 0.01
    assert rank(rising, -rising).correlation == pytest.approx(-1) and rank(rising, -rising).chance > 0.99
    assert rank(rising, same) == rank(same, rising) == Rank(0.0, 1.0)


@pytest.mark.parametrize(("count", "orders"), [(3, 6), (4, 24), (5, 120)])
def test_a_perfect_rank_of_few_is_one_order_of_all(count: int, orders: int) -> None:
    assert rank(np.arange(float(count)), np.arange(count) ** 2.0).chance == pytest.approx(1 / orders)
    assert rank(np.arange(float(count)), -np.arange(float(count))).chance == 1


def test_a_search_compares_what_it_found_with_what_was_written(
    root: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With seeds that no trial had; each makes the found mixture a little worse."""
    monkeypatch.setattr("pipelines.tuning.fit.CANDIDATES", 60)
    monkeypatch.setattr("pipelines.tuning.fit.BEST", 5)
    made = prepared(root, encoder)
    bounds = space(made.mixture, made.drawn)
    shares = drawn_shares(bounds, 0, 0, 5)
    dead = made.proxy(weighted(made.mixture, bounds.size, shares, name="mixed"), 0).key

    def losses(proxy: Proxy) -> dict[str, float]:
        weights = np.array([source.weight for source in proxy.mixture.sources])
        worse = 1 + proxy.recipe.seed / 1000 if proxy.mixture.policy == "equal" else 1
        return {name: loss * worse for name, loss in true_losses(weights / weights.sum()).items()}

    searches = finishing(root, monkeypatch, losses, {dead})
    few = rf"{MIN_TRIALS - 1} trials finished \(1 run failed: too hot with seed 0\), but a fit needs {MIN_TRIALS}"
    with pytest.raises(UserError, match=few):
        tune(made, trials=MIN_TRIALS, seeds=3, seed=0, root=root)
    tuned = tune(made, trials=MIN_TRIALS + 4, seeds=3, seed=0, root=root)
    assert (tuned.trials, tuned.died) == (MIN_TRIALS + 3, {dead: "too hot with seed 0"})
    assert [len(proxies) for proxies in searches] == [MIN_TRIALS, 5, 6]
    assert [proxy.recipe.seed for proxy in searches[-1]] == [1, 1, 2, 2, 3, 3]

    own, found = true_losses(np.full(3, 1 / 3)), true_losses(np.array(tuned.shares))
    assert tuned.confirmed.own == pytest.approx(own)
    assert tuned.confirmed.found == pytest.approx({name: loss * 1.002 for name, loss in found.items()}, rel=1e-4)
    ratios = [found[name] * (1 + seed / 1000) / own[name] for name in made.targets for seed in (1, 2, 3)]
    assert tuned.confirmed.change == pytest.approx(np.log(ratios).mean(), rel=1e-4)
    assert tuned.confirmed.seeds == 3 and tuned.is_better and sum(tuned.shares) == pytest.approx(1)
    evidence = json.loads((root / "tunings" / f"{tuned.evidence}.json").read_text())
    assert len(evidence["trials"]) == MIN_TRIALS + 3 and evidence["died"] == ["too hot with seed 0"]
    assert evidence["shares"] == dict(zip([f"{name}/train" for name in NAMES], tuned.shares, strict=True))


def tuned_by_hand(root: Path, encoder: Path) -> Tuned:
    names = [f"{name}/train" for name in NAMES]
    natural, own = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    ranks = {name: Rank(i / 4, i / 10) for i, name in enumerate(NAMES)}
    fitted = Fit("linear", {"linear": 0.75, "boosted": 0.5}, Rank(0.5, 0.01), ranks, [0.1, 0.2], [0.1, 0.3], None)
    losses = {"people": 2.0, "reviews": 1.0, "useless": 4.0}, {"people": 1.0, "reviews": 1.0, "useless": 5.0}
    return Tuned(
        setup=prepared(root, encoder),
        space=open_space(3)._replace(names=names, natural_K=natural, own_K=own),
        fit=fitted,
        shares=[0.5, 0.375, 0.125],
        confirmed=Confirmed(*losses, -0.1, 0.01, 3),
        trials=16,
        died={"0": "too hot"},
        evidence="0123",
    )


@pytest.mark.parametrize(
    ("change", "chance", "better", "said"),
    [
        (-0.1, 0.049, True, "9.5% lower than that of mixed"),
        (-0.1, 0.05, False, "by -9.5%, p = 0.05"),
        (0.1, 0.01, False, "by +10.5%, p = 0.01"),
    ],
)
def test_a_mixture_is_better_if_its_loss_is_lower_and_not_by_chance(
    change: float, chance: float, better: bool, said: str, root: Path, encoder: Path
) -> None:
    tuned = tuned_by_hand(root, encoder)
    tuned = tuned._replace(confirmed=tuned.confirmed._replace(change=change, chance=chance))
    assert tuned.is_better == better and said in verdict(tuned)
    assert tuned.fit._replace(held_back=Rank(0.5, chance)).is_chance == (chance >= 0.05)


def test_the_page_of_a_search_has_its_numbers_and_the_mixture_can_be_loaded(
    root: Path, encoder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "specs" / "mixtures" / "better.yaml"
    out.parent.mkdir(parents=True)
    written = write(tuned_by_hand(root, encoder), out)
    assert [path.name for path in written] == ["better.yaml", "better.md", "better.svg"]
    found = load_mixture("better", tmp_path / "specs")
    assert [(source.corpus, source.weight) for source in found.sources] == list(
        zip(NAMES, [0.5, 0.375, 0.125], strict=True)
    )
    assert (found.policy, found.size, found.leaks, found.duplicates) == ("equal", 1000, "allow", "keep")
    lines = written[1].read_text().splitlines()
    for line in (
        "1 run failed: too hot",
        "| source | natural | mixed | found |",
        "| people/train | 50.0% | 25.0% | 50.0% |",
        "| reviews/train | 25.0% | 50.0% | 37.5% |",
        "| corpus | mixed | found | change |",
        "| **people** | 2.0000 | 1.0000 | -50.0% |",
        "| **reviews** | 1.0000 | 1.0000 | +0.0% |",
        "| useless | 4.0000 | 5.0000 | +25.0% |",
        "| reviews | 0.25 | 0.1 |",
    ):
        assert line in lines


def test_the_yaml_of_a_mixture_defines_the_mixtures_in_it(tmp_path: Path) -> None:
    sources = [MixtureSource(mixture=mixed("people"), weight=2), MixtureSource(corpus="reviews", cap=3)]
    outer = Mixture(name="outer", description="Two.", policy="equal", size=9, leaks="allow", sources=sources)
    content = yaml.safe_load(as_yaml(outer))
    assert list(content) == ["name", "description", "policy", "size", "leaks", "sources"]
    inner = {"name": "mixed", "leaks": "allow", "duplicates": "keep", "sources": [{"corpus": "people"}]}
    assert content["sources"] == [{"mixture": inner, "weight": 2.0}, {"corpus": "reviews", "cap": 3}]
    (tmp_path / "mixtures").mkdir()
    (tmp_path / "mixtures" / "outer.yaml").write_text(as_yaml(outer))
    assert load_mixture("outer", tmp_path) == outer
