"""Mixtures: the draw is exact, the same every time, and refused where it cannot be what was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import corpus, put_corpus

from pipelines.mix import MEMBERS, mix, quotas
from pipelines.mixture_sql import explain
from pipelines.store import Store
from pipelines.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.manifest import MixtureManifest
from ubert.schema.mixture import Mixture


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(tmp_path, "big", [*corpus("big", 1000), *corpus("big", 50, "test")])
    put_corpus(tmp_path, "small", corpus("small", 10))
    return tmp_path


def mixture(*sources: dict[str, Any], **more: Any) -> Mixture:
    """Unguarded: the texts of these corpora are all in one another (`test_guard.py` is about that)."""
    unguarded = {"leaks": "allow", "duplicates": "keep"}
    return Mixture.model_validate({"name": "m", "sources": sources or ({"corpus": "big"},), **unguarded, **more})


def members(root: Path, manifest: MixtureManifest) -> list[dict[str, Any]]:
    path = Store(root).directory("mixtures", manifest.name, manifest.fingerprint) / "members.parquet"
    table = pq.read_table(path)
    assert table.schema.equals(MEMBERS)
    return table.to_pylist()


def test_without_a_policy_every_record_is_drawn_once(root: Path) -> None:
    rows = members(root, mix(mixture({"corpus": "big"}, {"corpus": "small"}), root=root))
    assert {row["copies"] for row in rows} == {1}
    assert len({row["record_id"] for row in rows}) == len(rows) == 1010


def test_the_draw_of_a_seed_is_frozen(root: Path) -> None:
    """These are the first records that seed 7 has always drawn.

    Whoever breaks this test has changed which records every published mixture holds: runs are no longer
    comparable with earlier ones, and no mixture can be made again. Change the draw (the key of a record, the
    factors that the seed gives, the order) only with a new schema version.
    """
    rows = members(root, mix(mixture({"corpus": "big"}, size=5, seed=7), root=root))
    assert [row["record_id"] for row in rows] == [
        "big/train/450",
        "big/train/214",
        "big/train/944",
        "big/train/702",
        "big/train/532",
    ]


def test_copies_add_up_to_the_quota_and_differ_by_one_at_most(root: Path) -> None:
    manifest = mix(mixture({"corpus": "small"}, {"corpus": "big"}, policy="equal", size=50), root=root)
    assert [(source.available, source.records, source.draws) for source in manifest.sources] == [
        (10, 10, 25),
        (1000, 25, 25),
    ]
    rows = members(root, manifest)
    small = sorted(row["copies"] for row in rows if row["corpus"] == "small")
    assert small == [2] * 5 + [3] * 5
    assert [row["copies"] for row in rows if row["corpus"] == "big"] == [1] * 25


def test_members_are_sorted_by_corpus_split_and_key(root: Path) -> None:
    sources = [{"corpus": "small"}, {"corpus": "big", "split": "test"}, {"corpus": "big"}]
    rows = members(root, mix(mixture(*sources), root=root))
    places = [(row["corpus"], row["split"], row["key"]) for row in rows]
    assert places == sorted(places)


def test_a_cap_takes_the_same_first_records_as_a_size(root: Path) -> None:
    capped = members(root, mix(mixture({"corpus": "big", "cap": 20}), root=root))
    sized = members(root, mix(mixture({"corpus": "big"}, size=20), root=root))
    assert capped == sized
    repeated = members(root, mix(mixture({"corpus": "big", "cap": 20}, size=30), root=root))
    assert [row["record_id"] for row in repeated] == [row["record_id"] for row in capped]
    assert [row["copies"] for row in repeated] == [2] * 10 + [1] * 10


def test_seeds_draw_different_records(root: Path) -> None:
    draws = [
        {
            row["record_id"]
            for row in members(root, mix(mixture({"corpus": "big"}, size=100, seed=seed), root=root))
        }
        for seed in range(4)
    ]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert 1 <= len(one & other) <= 30  # 10 by chance


def test_where_chooses_among_the_records(root: Path) -> None:
    where = "labels[1] = 1 AND text LIKE '%9' -- ends in nine"
    rows = members(root, mix(mixture({"corpus": "big", "where": where}), root=root))
    assert len(rows) == 100
    assert all(row["record_id"].endswith("9") for row in rows)
    among = "record_id IN (SELECT record_id FROM labels WHERE category = 'odd')"
    assert mix(mixture({"corpus": "big", "where": among}), root=root).sources[0].available == 500


def test_a_mixture_drawn_already_is_left_as_it_is(root: Path) -> None:
    first = mix(mixture(size=10), root=root)
    path = Store(root).current("mixtures", "m")[0] / "members.parquet"
    before = path.stat().st_mtime_ns
    assert mix(mixture(size=10, description="in other words"), root=root) == first
    assert path.stat().st_mtime_ns == before
    mix(mixture(size=11), root=root)
    assert mix(mixture(size=10), root=root).fingerprint == first.fingerprint
    assert Store(root).current("mixtures", "m")[1].fingerprint == first.fingerprint


def test_a_changed_corpus_is_drawn_from_anew(root: Path) -> None:
    first = mix(mixture(size=10), root=root)
    put_corpus(root, "big", corpus("big", 500))
    second = mix(mixture(size=10), root=root)
    assert first.fingerprint != second.fingerprint
    assert second.sources[0].available == 500


def test_a_dry_run_says_the_same_and_writes_nothing(root: Path) -> None:
    dry = mix(mixture(size=10), root=root, dry_run=True)
    assert not (root / "mixtures").exists()
    assert mix(mixture(size=10), root=root).sources == dry.sources


def test_the_sql_of_the_manifest_draws_the_members(root: Path) -> None:
    manifest = mix(mixture({"corpus": "big"}, {"corpus": "small"}, policy="equal", size=60), root=root)
    assert sql(root, manifest.sql).to_pylist() == members(root, manifest)
    assert "FROM records WHERE corpus = 'big' AND split = 'train'" in explain(mixture({"corpus": "big"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": [{"corpus": "none"}]}, "ubert ingest none"),
        ({"sources": [{"corpus": "small", "split": "test"}]}, "small/test: the split has no record"),
        (
            {"sources": [{"corpus": "big", "where": "text = 'x'"}]},
            "big/train: `where: text = 'x'` matches no record",
        ),
        ({"sources": [{"corpus": "big", "where": "colour = 1"}]}, 'big/train: where: .*"colour" not found'),
        ({"sources": [{"corpus": "big", "where": "count(*) > 1"}]}, "big/train: where: .*aggregates"),
        ({"sources": [{"corpus": "big", "where": "random() < 0.5"}]}, "big/train: where: random differs"),
        ({"sources": [{"corpus": "big", "where": "current_date > '2000-01-01'"}]}, "current_date differs"),
        ({"sources": [{"corpus": "big", "where": "localtime > '00:00'"}]}, "localtime differs"),
        (
            {"sources": [{"corpus": "small"}], "size": 100},
            "small/train: 100 of 100 draws .* 10 records, .* `max_copies` to 10, or lower `size` to 40",
        ),
        (
            {"sources": [{"corpus": "small"}, {"corpus": "big"}], "size": 20},
            r"small/train: 0 of 20 draws .* raise `size` to 101",
        ),
    ],
)
def test_what_cannot_be_met_is_refused_with_the_number_to_change(
    changes: dict[str, Any], message: str, root: Path
) -> None:
    with pytest.raises(UserError, match=message):
        mix(mixture(*changes.pop("sources"), **changes), root=root)
    assert not (root / "mixtures/m").exists()


@pytest.mark.parametrize(
    "where",
    [
        "true) UNION ALL SELECT 1, 1, 1, 1, 1 FROM (SELECT 1",
        "true); DROP VIEW records; --",
        "true; SELECT 1",
        "true /*",
        "true UNION SELECT 1",
        "true, false",
        "text IN (SELECT content FROM read_text('{secret}'))",
        "EXISTS (SELECT * FROM '{secret}')",
        "record_id IN (SELECT * FROM query('COPY records TO ''{secret}'''))",
        "",
        " ",
    ],
)
def test_where_cannot_leave_its_place(where: str, root: Path) -> None:
    secret = root / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="mixture m: source big/train: where"):
        mix(mixture({"corpus": "big", "where": where.format(secret=secret)}), root=root)
    assert secret.read_text() == "a,b\n1,2\n"


def test_where_sees_the_corpora_of_its_mixture_alone(root: Path) -> None:
    """What it saw of others would not be in the mixture's fingerprint."""
    where = "EXISTS (SELECT * FROM records WHERE corpus = 'small')"
    with pytest.raises(UserError, match="matches no record"):
        mix(mixture({"corpus": "big", "where": where}), root=root)


policies = st.sampled_from(["proportional", "temperature", "equal"])
pools_ = st.lists(st.integers(1, 10**7), min_size=1, max_size=8)


@given(pools=pools_, policy=policies, temperature=st.floats(1, 10), size=st.integers(1, 10**7), seed=st.randoms())
def test_quotas_are_exact_and_do_not_depend_on_the_order(
    pools: list[int], policy: str, temperature: float, size: int, seed: Any
) -> None:
    sources = [{"corpus": f"c{i}", "max_copies": 10**9} for i in range(len(pools))]
    order = list(range(len(pools)))
    seed.shuffle(order)
    one = mixture(*sources, policy=policy, temperature=temperature, size=size)
    other = mixture(*[sources[i] for i in order], policy=policy, temperature=temperature, size=size)
    try:
        draws = quotas(one, pools)
    except UserError as error:
        assert "raise `size`" in str(error)
        return
    assert sum(draws) == size
    assert quotas(other, [pools[i] for i in order]) == [draws[i] for i in order]
    weights = {
        "proportional": pools,
        "temperature": [pool ** (1 / temperature) for pool in pools],
        "equal": [1] * len(pools),
    }[policy]
    for draw, weight in zip(draws, weights, strict=True):
        assert abs(draw - size * weight / sum(weights)) <= 1.001


@given(pools=pools_, copies=st.integers(1, 5), size=st.integers(1, 10**8), policy=policies)
def test_the_size_that_an_error_names_is_one_that_works(
    pools: list[int], copies: int, size: int, policy: str
) -> None:
    sources = [{"corpus": f"c{i}", "max_copies": copies} for i in range(len(pools))]
    for _ in range(2 * len(pools)):
        try:
            draws = quotas(mixture(*sources, policy=policy, size=size), pools)
        except UserError as error:
            if "lower `size`" not in str(error):
                return
            size = int(str(error).rsplit("`size` to ", 1)[1])
            if size == 0:
                return
        else:
            assert all(draw <= pool * copies for draw, pool in zip(draws, pools, strict=True))
            return
    pytest.fail("the errors lead nowhere")
