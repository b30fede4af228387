"""Records that a mixture drops: they are counted, listed, and never more than its YAML requires."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from near_copies import PLACES, changed, record, sentence
from worlds import put_corpus

from pipelines import cli
from pipelines.audit.contamination import contamination
from pipelines.audit.duplicates import duplicates
from pipelines.mixtures.mix import composition, mix
from pipelines.mixtures.sql import explain
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.manifest import MixtureManifest, RealisedSource
from ubert.schema.specs.mixture import Mixture

NAMES: dict[str, Any] = {"task": "ner", "labels": [], "categories": PLACES}
NEAR = sentence(random.Random(0))
LONG = sentence(random.Random(1), size=14)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`topics` trains on texts that `names` tests, and repeats itself; `more` repeats `topics`."""
    put_corpus(
        tmp_path,
        "topics",
        [
            record("topics", 1, "The cat sat."),  # tested by names
            record("topics", 2, "A dog lay."),
            record("topics", 3, "a  DOG lay."),
            record("topics", 4, " ".join(NEAR)),  # near to what names tests
            record("topics", 5, " ".join([*LONG, "and", "other", "words", "of", "its", "own", "after", "these"])),
            record("topics", 6, "The end."),
            record("topics", 7, "Held out.", split="validation"),
        ],
    )
    put_corpus(tmp_path, "more", [record("more", 1, "A dog lay."), record("more", 2, "More of it.")])
    put_corpus(
        tmp_path,
        "names",
        [
            record("names", 1, "the cat sat.", split="test", **NAMES),
            record("names", 2, " ".join(changed(NEAR, 7)), split="test", **NAMES),
            record("names", 3, " ".join(["here", *LONG, "ends"]), split="validation", **NAMES),
            record("names", 4, "A dog lay.", **NAMES),
        ],
    )
    return tmp_path


def mixture(*sources: str | dict[str, Any], **more: Any) -> Mixture:
    named = [{"corpus": source} if isinstance(source, str) else source for source in sources]
    return Mixture.model_validate({"name": "m", "sources": named, **more})


def drawn(root: Path, manifest: MixtureManifest) -> set[str]:
    return set(sql(root, manifest.sql).column("record_id").to_pylist())


def losses(manifest: MixtureManifest) -> list[tuple[int, int, int, int]]:
    def numbers(source: RealisedSource) -> tuple[int, int, int, int]:
        return source.available, source.dropped_leaks, source.dropped_duplicates, source.records

    return [numbers(source) for source in manifest.sources]


def test_a_text_that_one_corpus_tests_is_not_drawn_from_another(root: Path) -> None:
    manifest = mix(mixture("topics"), root=root)
    assert losses(manifest) == [(6, 1, 1, 4)]
    assert drawn(root, manifest) == {f"topics/train/{n}" for n in (2, 4, 5, 6)}
    rows = sql(root, "SELECT mixture, record_id, kept_id, reason, kind FROM dropped").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("m", "topics/train/1", "names/test/1", "leak", "exact"),
        ("m", "topics/train/3", "topics/train/2", "duplicate", "exact"),
    ]


@pytest.mark.usefixtures("local_ray")
def test_a_text_is_the_same_with_another_pair_or_none(root: Path) -> None:
    put_corpus(root, "asked", [record("asked", 1, "Held out, too.", split="test", pair="Which?")])
    texts = ["the cat SAT.", "Held out, too.", "Which?", "Nobody tests this."]
    put_corpus(root, "pairs", [record("pairs", n, text, pair="Why?") for n, text in enumerate(texts)])
    put_corpus(root, "alone", [record("alone", n, text) for n, text in enumerate(texts)])
    manifest = mix(mixture("pairs", "alone"), root=root)
    assert losses(manifest) == [(4, 2, 0, 2), (4, 2, 0, 2)]
    assert drawn(root, manifest) == {f"{name}/train/{n}" for name in ("pairs", "alone") for n in (2, 3)}
    duplicates(root=root)
    leaks = sql(root, "SELECT record_id FROM leaks WHERE kind = 'exact'").column("record_id").to_pylist()
    assert {f"{name}/train/{n}" for name in ("pairs", "alone") for n in (0, 1)} < {*leaks}


def test_splits_of_a_mixture_inside_do_not_guard_either(root: Path) -> None:
    inside = {"mixture": {"name": "inside", "sources": [{"corpus": "names", "split": "test"}]}}
    assert losses(mix(mixture("topics", inside), root=root)) == [(6, 0, 1, 5), (2, 0, 0, 2)]


def test_across_corpora_the_first_of_a_text_stays_and_other_tasks_keep_theirs(root: Path) -> None:
    manifest = mix(mixture("topics", "more", "names"), root=root)
    assert losses(manifest) == [(6, 1, 2, 3), (2, 0, 0, 2), (1, 0, 0, 1)]
    assert {"more/train/1", "names/train/4"} <= drawn(root, manifest)
    assert "topics/train/2" not in drawn(root, manifest)


def test_a_duplicate_of_what_is_not_drawn_is_drawn(root: Path) -> None:
    """The keeper is one of those that match, whatever else the store holds."""
    source = {"corpus": "topics", "where": "record_id <> 'topics/train/2'"}
    assert "topics/train/3" in drawn(root, mix(mixture(source), root=root))


def test_words_in_the_mixture_allow_keep_and_refuse(root: Path) -> None:
    assert losses(mix(mixture("topics", leaks="allow"), root=root)) == [(6, 0, 1, 5)]
    assert losses(mix(mixture("topics", duplicates="keep"), root=root)) == [(6, 1, 0, 5)]
    assert losses(mix(mixture("topics", leaks="allow", duplicates="keep"), root=root)) == [(6, 0, 0, 6)]
    with pytest.raises(UserError, match=r"1 records are .* topics/train/1 .*names/test/1.*`leaks: drop`"):
        mix(mixture("topics", leaks="refuse"), root=root)
    assert losses(mix(mixture("more", leaks="refuse"), root=root)) == [(2, 0, 0, 2)]


def test_splits_that_a_mixture_draws_itself_do_not_guard(root: Path) -> None:
    tested = {"corpus": "names", "split": "test"}
    manifest = mix(mixture("topics", tested), root=root)
    assert losses(manifest) == [(6, 0, 1, 5), (2, 0, 0, 2)]
    assert {"topics/train/1", "names/test/1"} <= drawn(root, manifest)


def test_a_validation_record_is_held_against_tests(root: Path) -> None:
    put_corpus(root, "last", [record("last", 1, "held out.", split="test")])
    held = {"corpus": "topics", "split": "validation"}
    with pytest.raises(UserError, match="of 1 records that match, 1 are dropped as leaks, 0 as duplicates"):
        mix(mixture(held), root=root)


def test_a_dry_run_says_what_would_be_dropped_and_writes_nothing(root: Path) -> None:
    assert losses(mix(mixture("topics"), root=root, dry_run=True)) == [(6, 1, 1, 4)]
    assert not (root / "mixtures").exists()
    assert "ANTI JOIN" in explain(mixture("topics"))
    assert "ANTI JOIN" not in explain(mixture("topics", leaks="allow", duplicates="keep"))


def test_a_corpus_that_changes_nothing_changes_no_mixture_and_one_that_leaks_does(root: Path) -> None:
    first = mix(mixture("topics"), root=root)
    put_corpus(root, "other", [record("other", 1, "Of no concern.", split="test")])
    assert mix(mixture("topics"), root=root) == first
    put_corpus(root, "other", [record("other", 1, "The end.", split="test")])
    assert losses(mix(mixture("topics"), root=root)) == [(6, 2, 1, 3)]


@pytest.mark.usefixtures("local_ray")
def test_audited_evidence_counts_near_texts_and_shared_ngrams_too(root: Path) -> None:
    chosen = mixture("topics", evidence="audited")
    with pytest.raises(UserError, match="no audit of duplicates yet; run `ubert duplicates`"):
        mix(chosen, root=root)
    duplicates(root=root)
    with pytest.raises(UserError, match="no audit of contamination yet; run `ubert contamination`"):
        mix(chosen, root=root)
    contamination(root=root, against=["names/test"])
    with pytest.raises(UserError, match="audit of contamination leaves out names/validation, topics/validation"):
        mix(chosen, root=root)
    contamination(["topics"], root=root)
    with pytest.raises(UserError, match="does not cover the current version of more; run `ubert contamination`"):
        mix(chosen, root=root)
    contamination(["topics", "more"], root=root)
    with pytest.raises(UserError, match="audit of contamination leaves out names; run"):
        mix(chosen, root=root)
    contamination(root=root)
    assert losses(mix(chosen, root=root)) == [(6, 3, 1, 2)]
    rows = sql(root, "SELECT record_id, kept_id, kind FROM dropped WHERE kind <> 'exact' ORDER BY record_id")
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("topics/train/4", "names/test/2", "near"),
        ("topics/train/5", "names/validation/3", "n-gram"),
    ]
    put_corpus(root, "more", [record("more", 1, "Changed.")])
    with pytest.raises(UserError, match="the audit of duplicates does not cover the current version of more"):
        mix(chosen, root=root)


@pytest.mark.usefixtures("local_ray")
def test_a_near_duplicate_is_dropped_only_beside_its_keeper(root: Path) -> None:
    put_corpus(root, "copies", [record("copies", 1, " ".join(changed(LONG * 3, 2)))])
    put_corpus(root, "later", [record("later", 1, " ".join(LONG * 3)), record("later", 2, "Alone.")])
    duplicates(root=root)
    contamination(root=root, n=99)
    both = mix(mixture("copies", "later", evidence="audited"), root=root)
    assert losses(both) == [(1, 0, 0, 1), (2, 0, 1, 1)]
    alone = mix(mixture("later", evidence="audited"), root=root)
    assert losses(alone) == [(2, 0, 0, 2)]


@pytest.mark.usefixtures("local_ray")
def test_a_near_duplicate_of_a_held_out_record_is_drawn(root: Path) -> None:
    copies = [" ".join(NEAR), " ".join(changed(NEAR, len(NEAR) - 1)), "Alone."]
    put_corpus(root, "copies", [record("copies", number, text) for number, text in enumerate(copies)])
    put_corpus(root, "withheld", [record("withheld", 1, " ".join(changed(NEAR, 0)))])  # near only to the first
    duplicates(root=root)
    contamination(root=root, n=99)
    chosen = {"evidence": "audited", "leaks": "allow"}
    assert losses(mix(mixture("copies", **chosen), root=root)) == [(3, 0, 1, 2)]
    held = mix(mixture("copies", **chosen, hold_out=["withheld"]), root=root)
    assert drawn(root, held) == {"copies/train/1", "copies/train/2"}
    assert (held.sources[0].dropped_held_out, losses(held)) == (1, [(3, 0, 0, 2)])


@pytest.mark.usefixtures("local_ray")
def test_a_where_may_look_at_an_audit_and_sees_the_present_one(root: Path) -> None:
    duplicates(root=root)
    where = "record_id NOT IN (SELECT record_id FROM contradictions)"
    source = {"corpus": "topics", "where": where}
    first = mix(mixture(source), root=root)
    put_corpus(root, "odd", [record("odd", 1, "The end.", labels=[1])])
    duplicates(root=root)
    put_corpus(root, "a", [record("a", 1, "The end.", labels=[1])])
    duplicates(root=root)
    second = mix(mixture(source), root=root)
    assert (losses(first), losses(second)) == ([(6, 1, 1, 4)], [(5, 1, 1, 3)])


def test_a_mixture_may_ask_for_licences(root: Path) -> None:
    for name, licence, kind in (("topics", "MIT", "permissive"), ("more", "not stated (GLUE)", "unstated")):
        directory, manifest = Store(root).current("corpora", name)
        told = manifest.model_copy(update={"licence": licence, "licence_class": kind})
        assert Store(root).publish("corpora", told) == directory
    assert mix(mixture("topics", licences=["commercial"]), root=root).sources[0].records == 4
    with pytest.raises(UserError) as refused:
        mix(mixture("topics", "more", "names", licences=["commercial"]), root=root)
    [line, other] = lines = str(refused.value).splitlines()
    assert all(each.startswith("mixture ") and each.endswith(" and ingest it again") for each in lines)
    assert "the licence of more is 'not stated (GLUE)' (unstated)" in line
    assert "`licences` allows commercial" in line
    assert "`licence_class` in the spec of more" in line
    assert "the licence of names" in other
    for words in (["commercial", "unstated"], ["permissive", "not stated (GLUE)"], []):
        mix(mixture("topics", "more", licences=words), root=root)
    with pytest.raises(UserError, match="`licences` allows public-domain"):
        mix(mixture("topics", licences=["public-domain"]), root=root)
    view = sql(root, "SELECT DISTINCT corpus, licence_class FROM corpora WHERE corpus <> 'names' ORDER BY corpus")
    assert [tuple(row.values()) for row in view.to_pylist()] == [("more", "unstated"), ("topics", "permissive")]


@pytest.mark.usefixtures("local_ray")
def test_audited_evidence_does_not_guard_splits_that_a_mixture_draws_itself(root: Path) -> None:
    duplicates(root=root)
    contamination(root=root)
    tested, validated = ({"corpus": "names", "split": split} for split in ("test", "validation"))
    both = mix(mixture("topics", tested, validated, evidence="audited"), root=root)
    assert losses(both) == [(6, 0, 1, 5), (2, 0, 0, 2), (1, 0, 0, 1)]
    one = mix(mixture("topics", tested, evidence="audited"), root=root)
    assert losses(one) == [(6, 1, 1, 4), (2, 0, 0, 2)]
    other = mix(mixture("topics", validated, evidence="audited"), root=root)
    assert losses(other) == [(6, 2, 1, 3), (1, 0, 0, 1)]


def test_a_split_is_not_held_against_splits_of_its_own_rank_or_later(root: Path) -> None:
    text = "the cat sat."
    later = [record("last", 1, text, split="test"), record("last", 2, text, split="validation")]
    put_corpus(root, "last", later)
    assert losses(mix(mixture({"corpus": "names", "split": "test"}), root=root)) == [(2, 0, 0, 2)]


@pytest.mark.parametrize("part", [1, 2, 5])
def test_repeats_are_found_in_parts_of_any_size(part: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.mixtures.guard.PART", part)
    manifest = mix(mixture("topics", "more", "names"), root=root)
    assert losses(manifest) == [(6, 1, 2, 3), (2, 0, 0, 2), (1, 0, 0, 1)]


def test_the_composition_has_what_each_source_lost(root: Path) -> None:
    table = composition(mix(mixture("topics", "more", "names"), root=root))
    lost = table.select(["source", "available", "leaks", "repeats", "records", "draws"]).to_pylist()
    assert [tuple(row.values()) for row in lost] == [
        ("topics/train", 6, 1, 2, 3, 3),
        ("more/train", 2, 0, 0, 2, 2),
        ("names/train", 1, 0, 0, 1, 1),
        ("(all)", 9, 1, 2, 6, 6),
    ]
    whole = composition(mix(mixture("more"), root=root)).column_names
    assert whole == ["source", "available", "records", "draws", "epochs", "tokens", "share"]


def test_suspects_that_are_not_known_name_the_command_that_finds_them(root: Path) -> None:
    with pytest.raises(UserError, match=r"^mixture m: suspects: drop: .* run `ubert suspects topics`"):
        mix(mixture("topics", suspects="drop"), root=root)


pairs_ = st.sampled_from([None, None, "Why?", "Which?"])
splits_ = st.sampled_from(["train", "train", "test", "validation"])
rows_ = st.tuples(st.sampled_from(["a", "b", "c"]), splits_, st.integers(0, 5), st.booleans(), pairs_)


@settings(max_examples=15)
@given(rows=st.lists(rows_, min_size=1, max_size=30))
def test_what_is_drawn_is_no_test_text_and_no_text_twice(
    rows: list[tuple[str, Any, int, bool, str | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    records = [
        record(name, n, f"Text {text}.", split=split, pair=pair, **(NAMES if ner else {}))
        for n, (name, split, text, ner, pair) in enumerate(rows)
    ]
    corpora = {one.corpus for one in records}
    for name in corpora:
        put_corpus(root, name, [one for one in records if one.corpus == name])
    trained = sorted({one.corpus for one in records if one.split == "train"})
    tested = {one.text for one in records if one.split != "train"}
    clean = [one for one in records if one.split == "train" and one.text not in tested]
    left = {(one.text, one.pair or "", one.task) for one in clean}
    spare = [name for name in trained if any(one.corpus == name and one.split == "train" for one in records)]
    try:
        manifest = mix(mixture(*spare), root=root) if spare else None
    except UserError as error:
        assert "so none is left" in str(error)
        return
    if manifest:
        found = [one for one in records if one.record_id in drawn(root, manifest)]
        assert not {one.text for one in found} & tested
        assert sorted((one.text, one.pair or "", one.task) for one in found) == sorted(left)
        for available, leaks, repeats, kept in losses(manifest):
            assert available == leaks + repeats + kept


@pytest.mark.usefixtures("local_ray")
def test_commands_say_what_they_found_and_dropped(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "specs" / "mixtures").mkdir(parents=True)
    (root / "specs" / "mixtures" / "m.yaml").write_text("name: m\nsources: [{corpus: topics}]\n")

    def ubert(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ubert", *arguments, "--root", str(root)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), " ".join((printed.out + printed.err).split())

    code, said = ubert("duplicates")
    assert code == 0
    assert "13 records, 9 texts" in said
    assert "2 exact, 0 near, 2 leaks, 0 contradictions" in said
    assert ubert("contamination", "-n", "12")[1].startswith("contamination: 4 evaluation records, 3 matches")
    code, said = ubert("mix", "m", "--dry-run", "--specs", str(root / "specs"))
    assert code == 0
    assert "source available leaks repeats records draws epochs tokens share" in said
    assert "topics/train 6 1 1 4 4 1.0" in said
    assert ubert("contamination", "--against", "nothing")[0] == 1
