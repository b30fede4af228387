"""Audits split over tasks: the same bytes for any number of partitions, by brute force, and after a crash."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from near_copies import changed, record, sentence
from object_store import ObjectStore
from worlds import put_corpus

from pipelines.audit import contamination as contaminating
from pipelines.audit import duplicates as comparing
from pipelines.audit import exchange, near
from pipelines.audit.exchange import Exchange
from pipelines.audit.ngrams import ngrams
from pipelines.audit.shingles import jaccard, shingles
from pipelines.store.storage import ObjectPath, StorePath
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.record import Record, normal_form

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

RANKS = ["test", "validation", "train"]
N = 5


def made(seed: int, size: int = 60) -> dict[str, list[Record]]:
    """Two corpora with equal and near texts, leaks and contradictions."""
    draw = random.Random(seed)
    texts = [sentence(draw) for _ in range(size)]
    texts += [changed(text, draw.randrange(30)) for text in texts[::2]] + texts[::3]
    corpora: dict[str, list[Record]] = {"a": [], "ab": []}
    for number, words in enumerate(texts):
        name, split = draw.choice(["a", "ab"]), draw.choice(RANKS)
        one = record(name, number, " ".join(words), split=split, labels=[draw.randrange(2)])  # type: ignore[arg-type]
        corpora[name].append(one)
    return corpora


def audited(root: Path) -> dict[str, Any]:
    """The evidence, byte for byte, and the manifests without their time."""
    shutil.rmtree(root / "audits", ignore_errors=True)
    manifests = [comparing.duplicates(root=root), contaminating.contamination(root=root, n=N)]
    files = {path.relative_to(root).as_posix(): path for path in root.glob("audits/**/*") if path.is_file()}
    found = {name: path.read_bytes() for name, path in files.items() if path.suffix == ".parquet"}
    assert not [name for name in files if ".tmp-" in name]
    return {**found, "manifests": [one.model_dump(exclude={"created"}) for one in manifests]}


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1_000_000))
def test_partitions_and_groups_make_no_difference(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("store")
    corpora = made(seed)
    records = [one for of_corpus in corpora.values() for one in of_corpus]
    for name, of_corpus in corpora.items():
        put_corpus(root, name, of_corpus)
    results = []
    for partitions, groups in ((1, 1), (2, 64), (7, 2)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exchange, "GROUPS", groups)
            patch.setattr(exchange, "RECORDS", len(records) // partitions + 1)
            results.append(audited(root))
    assert results[0] == results[1] == results[2]
    rows = sql(root, "SELECT record_id, keeper_id FROM duplicates").to_pylist()
    assert {row["record_id"]: row["keeper_id"] for row in rows} == brute_force(records)
    rows = sql(root, "SELECT record_id, evaluation_id, ngrams, records FROM contamination").to_pylist()
    assert {(*row.values(),) for row in rows} == set(shared(records))


def brute_force(records: list[Record]) -> dict[str, str]:
    """The keeper of each duplicate, from all pairs of texts. All records have the same prompt."""
    firsts: dict[str, Record] = {}
    found = {}
    for one in sorted(records, key=lambda one: (RANKS.index(one.split), one.corpus, one.record_id)):
        if (first := firsts.setdefault(normal_form(one.text), one)) is not one:
            found[one.record_id] = first.record_id
    sets = {one.record_id: shingles(one.text, None) for one in firsts.values()}
    kept: dict[str, set[str]] = {}
    stars: dict[str, str] = {}
    for one, own in sets.items():
        pairs = [(jaccard(own, other), keeper) for keeper, other in kept.items()]
        nearest = max(pairs, default=(0, ""), key=lambda pair: pair[0])  # the first of the nearest
        if nearest[0] >= 0.8:
            stars[one] = nearest[1]
        else:
            kept[one] = own
    return {one: stars.get(keeper, keeper) for one, keeper in found.items()} | stars


def shared(records: list[Record]) -> Iterator[tuple[str, str, int, int]]:
    """For each training record and evaluation split: the record that shares the most n-grams, their number, and
    the number of records that share any."""
    held = [one for one in records if one.split != "train"]
    held.sort(key=lambda one: (one.corpus, one.split, one.record_id))
    for one in records:
        if one.split == "train":
            own, best, count = set(ngrams(one.text, None, N)), {}, Counter[tuple[str, str]]()
            for other in held:
                where = (other.corpus, other.split)
                if common := len(own & set(ngrams(other.text, None, N))):
                    count[where] += 1
                    if where not in best or common > best[where][1]:
                        best[where] = (other.record_id, common)
            for where, (other_id, common) in best.items():
                yield one.record_id, other_id, common, count[where]


def put_small(root: StorePath) -> None:
    for name, records in made(0, 12).items():
        put_corpus(root, name, records)


def test_a_task_that_dies_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies after half of its files, and leaves a partial one."""
    put_small(tmp_path / "whole")
    put_small(tmp_path / "store")
    mark = tmp_path / "died"
    work = near.pair_up

    def dies(between: Exchange, number: int) -> dict[str, int]:
        counts = work(between, number)
        if not mark.exists():
            mark.touch()
            (Path(str(between.folder)) / ".tmp-partial-near-0.parquet").write_bytes(b"PAR1")
            os._exit(1)
        return counts

    monkeypatch.setattr(near, "pair_up", dies)
    died = audited(tmp_path / "store")
    assert mark.exists()
    monkeypatch.undo()
    assert died == audited(tmp_path / "whole")


def test_two_searches_at_the_same_time_share_no_files(remote: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store has no lock. The other search begins and ends in the middle of this one."""
    put_small(remote)
    work, others = comparing.find_copies, []

    def late(between: Exchange, parts: Sequence[StorePath]) -> dict[str, int]:
        monkeypatch.undo()
        others.append(comparing.duplicates(root=remote))
        return work(between, parts)

    monkeypatch.setattr(comparing, "find_copies", late)
    found = comparing.duplicates(root=remote)
    assert [other.counts for other in others] == [found.counts]
    assert not [name for name in remote.sizes() if ".tmp-" in name]


def test_files_of_a_killed_search_are_removed_by_a_later_one(
    remote: ObjectPath, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But only after a day, by the clock of the store: the other search may be alive."""
    put_small(remote)
    left = remote / "audits/duplicates/0123456789abcdef/.tmp-exchange-1/bands-0.parquet"
    object_store.put(left.key, b"PAR1")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 1e11)
        exchange._remove_abandoned(remote / "audits/duplicates")
    comparing.duplicates(root=remote)
    assert left.exists()
    monkeypatch.setattr(exchange, "ABANDONED", -1.0)
    comparing.duplicates(root=remote, near=0.9)
    assert not left.exists()


def test_an_object_store_has_the_same_evidence(
    remote: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several partitions; nothing of the exchange stays."""
    monkeypatch.setattr(exchange, "RECORDS", 10)
    put_small(tmp_path)
    put_small(remote)
    audited(tmp_path)
    found = [comparing.duplicates(root=remote), contaminating.contamination(root=remote, n=N)]
    for one in found:
        assert one.fingerprint == Store(tmp_path).current("audits", one.name)[1].fingerprint
    here = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("audits/*/*/*")}
    assert {name for name in remote.sizes() if name.startswith("audits/")} == here
    for view in ("duplicates", "leaks", "contradictions", "contamination"):
        query = f"SELECT * FROM {view}"
        assert sql(remote, query).equals(sql(tmp_path, query)), view
        assert len(sql(remote, query)) > 0


def test_parts_are_distributed_evenly_to_groups(tmp_path: Path) -> None:
    """To as many as there are partitions, at least 64, and never more than there are parts."""
    parts = [tmp_path / f"part-{i}" for i in range(300)]
    for partitions, count, expected in ((1, 300, 64), (100, 300, 100), (100, 70, 70), (1, 5, 5), (1, 0, 1)):
        groups = [group for (group,) in Exchange(tmp_path, partitions).groups(parts[:count])]
        assert len(groups) == expected
        assert sorted(map(str, chain.from_iterable(groups))) == sorted(map(str, parts[:count]))
        assert max(map(len, groups)) - min(map(len, groups)) <= 1


@pytest.mark.parametrize(
    ("kept", "partitions"), [(0, 1), (99_999, 1), (100_000, 2), (250_000, 3), (1_000_000_000, 512)]
)
def test_partitions_grow_with_the_records_that_were_kept(kept: int, partitions: int, tmp_path: Path) -> None:
    put_corpus(tmp_path, "a", [record("a", 1, "A text.")])
    manifest = Store(tmp_path).current("corpora", "a")[1]
    [counts] = manifest.splits
    splits = [counts.model_copy(update={"kept": part, "records": 10**9}) for part in (kept // 2, kept - kept // 2)]
    with exchange.exchange(tmp_path / "audit", [manifest.model_copy(update={"splits": splits})]) as between:
        assert between.partitions == partitions


def test_a_search_was_killed_only_if_its_youngest_file_is_old(
    remote: ObjectPath, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = remote / "audits/duplicates"
    ages = {
        "0123/.tmp-exchange-alive/bands-0.parquet": 90_000.0,
        "0123/.tmp-exchange-alive/bands-1.parquet": 10.0,
        "4567/.tmp-exchange-killed/bands-0.parquet": 90_000.0,
        "4567/.tmp-exchange-killed/bands-1.parquet": 100_000.0,
        "4567/matches.parquet": 100_000.0,
    }
    for name in ages:
        object_store.put((home / name).key, b"PAR1")
    monkeypatch.setattr(ObjectPath, "ages", lambda self: ages)
    with exchange.exchange(home / "89ab", []):
        pass
    assert home.sizes().keys() == {name for name in ages if "killed" not in name}


def test_a_temporary_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "it's"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with exchange.database() as (connection, scratch):
        assert connection.execute("SELECT current_setting('temp_directory')").fetchone() == (str(scratch),)
