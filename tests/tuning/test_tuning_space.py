"""Weights of a mixture: their bounds, how they are drawn, and the mixture that they make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import corpus, put_corpus

from pipelines.mixtures.mix import mix
from pipelines.tuning.space import Space, drawn_shares, pool_of, space, weighted, within
from ubert.schema.manifest import RealisedSource
from ubert.schema.specs.mixture import Mixture, MixtureSource

SIZES = {"large": 400, "middle": 60, "small": 10}
CAPPED = MixtureSource(corpus="large", cap=100)
INSIDE = Mixture(name="inside", sources=[MixtureSource(corpus="middle"), MixtureSource(corpus="small")])
MIXTURES = {
    "flat": Mixture(
        name="flat", policy="temperature", size=300, sources=[MixtureSource(corpus=name) for name in SIZES]
    ),
    "capped": Mixture(name="capped", sources=[CAPPED, MixtureSource(corpus="small", max_copies=2)]),
    "nested": Mixture(name="nested", sources=[CAPPED, MixtureSource(mixture=INSIDE)]),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    for name, size in SIZES.items():
        put_corpus(folder, name, corpus(name, size))
    return folder


def bounds(name: str, root: Path) -> Space:
    mixture = MIXTURES[name].model_copy(update={"duplicates": "keep"})
    return space(mixture, mix(mixture, root=root, dry_run=True))


def test_natural_shares_count_records_and_own_shares_are_those_of_the_policy(root: Path) -> None:
    found = bounds("flat", root)
    assert found.names == ["large/train", "middle/train", "small/train"]
    assert found.natural_K == pytest.approx(np.array([400, 60, 10]) / 470)
    roots = np.sqrt([400, 60, 10])
    assert found.own_K == pytest.approx(roots / roots.sum(), abs=1 / found.size)
    assert bounds("capped", root).natural_K == pytest.approx([100 / 110, 10 / 110])


@pytest.mark.parametrize("name", ["capped", "nested"])
def test_the_bounds_can_be_drawn_and_are_those_of_copies(name: str, root: Path) -> None:
    """At each bound `mix` accepts the weights, which it refuses where a source can't give its share."""
    found = bounds(name, root)
    for shares in np.eye(len(found.names)):
        inside = within(found, shares)
        mixture = weighted(MIXTURES[name], found.size, inside, name=name)
        drawn = mix(mixture.model_copy(update={"duplicates": "keep"}), root=root, dry_run=True)
        assert sum(source.draws for source in drawn.sources) == found.size
        assert drawn.sources[0].draws / found.size == pytest.approx(inside[0], abs=2 / found.size)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(0, 2**16))
def test_shares_sum_to_one_within_their_bounds(shares: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    own = random.dirichlet(np.ones(4))
    least, most = own * random.uniform(0, 1, 4), np.clip(own + random.uniform(0, 1, 4), 0, 1)
    made = Space([*"abcd"], own, own, least, most, 1000)
    for found in (within(made, np.array(shares)), drawn_shares(made, seed, 0)):
        assert found.sum() == pytest.approx(1, abs=1e-9)
        assert (least <= found).all() and (found <= most).all()


def test_draws_depend_on_their_key_alone_and_spread_around_the_natural_shares(root: Path) -> None:
    found = bounds("flat", root)
    shares = np.array([drawn_shares(found, 0, trial) for trial in range(300)])
    assert (drawn_shares(found, 0, 7) == shares[7]).all() and (shares[7] != shares[8]).any()
    assert np.argsort(shares.mean(0)).tolist() == [2, 1, 0]
    assert (shares.std(0) > 0.03).all()


def test_the_weights_take_the_place_of_the_policy_and_of_nothing_else(root: Path) -> None:
    mixture = MIXTURES["flat"].model_copy(update={"leaks": "allow", "seed": 3, "hold_out": ["x*"]})
    made = weighted(mixture, 50, [0.5, 0.3, 0.2], name="found", description="It was found.")
    assert (made.policy, made.size, made.name, made.description) == ("equal", 50, "found", "It was found.")
    assert [source.weight for source in made.sources] == [0.5, 0.3, 0.2]
    assert (made.leaks, made.seed, made.hold_out) == ("allow", 3, ["x*"])


def test_bounds_leave_each_corpus_a_draw_and_keep_to_its_copies(root: Path) -> None:
    """A mixture among the sources divides its draws as it does now, 60 to 10."""
    capped, nested = bounds("capped", root), bounds("nested", root)
    assert (capped.size, nested.size) == (110, 170)
    assert capped.least_K == pytest.approx([1 / 110, 1 / 110])
    assert capped.most_K == pytest.approx([1, 19 / 110])
    assert nested.natural_K == pytest.approx([100 / 170, 70 / 170])
    assert nested.least_K == pytest.approx([1 / 170, 7 / 170])


def test_the_pool_of_a_source_is_what_was_not_dropped_up_to_its_cap() -> None:
    dropped = {"dropped_leaks": 1, "dropped_duplicates": 2, "dropped_held_out": 4, "dropped_suspects": 8}
    drawn = {"records": 1, "draws": 1, "epochs": 1.0, "characters": 1, "phases": [1]}
    words = {"corpus": "c", "split": "train", "corpus_fingerprint": "0", "available": 100}
    source = RealisedSource.model_validate({**words, **dropped, **drawn})
    for cap, expected in ((None, 85), (50, 50), (90, 85)):
        assert pool_of(MixtureSource(corpus="c", cap=cap), source) == expected
