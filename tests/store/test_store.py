"""The store: a file or a directory is complete, or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.store import storage
from pipelines.store.storage import ObjectPath, StorePath, endpoint, explained, on_disk, persistent
from pipelines.store.store import Store, atomic, link, now
from ubert.schema.errors import UserError
from ubert.schema.manifest import (
    ATTEMPT,
    MANIFEST,
    SCHEMA_VERSION,
    CorpusManifest,
    MixtureManifest,
    RealisedSource,
    fingerprint,
    read_manifest,
)


def manifest(fingerprint: str, created: str, name: str = "toy") -> CorpusManifest:
    return CorpusManifest(
        name=name,
        fingerprint=fingerprint,
        created=created,
        task="text",
        language="en",
        licence="CC0",
        upstream=None,
        splits=[],
        parts=[],
        reject_parts=[],
        mismatch_parts=[],
    )


def test_a_failure_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic(path) as temporary:
        temporary.write_text("old")
    with pytest.raises(RuntimeError), atomic(path) as temporary:
        temporary.write_text("new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_not_visible_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    with atomic(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
    assert path.read_text() == "half"


def test_the_current_one_is_the_newest_that_is_finished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("corpora", manifest("bb", "2026-01-01"))
    store.publish("corpora", manifest("aa", "2026-01-02"))
    store.directory("corpora", "toy", "cc").mkdir()  # no manifest: does not exist
    assert store.current("corpora", "toy")[1].fingerprint == "aa"
    assert store.names("corpora") == ["toy"]
    store.publish("corpora", manifest("bb", "2026-01-03"))
    assert store.current("corpora", "toy") == (tmp_path / "corpora/toy/bb", manifest("bb", "2026-01-03"))


@pytest.mark.parametrize("file", [MANIFEST, ATTEMPT])
def test_what_is_published_is_the_newest_after_the_clock_was_set_back(tmp_path: Path, file: str) -> None:
    store = Store(tmp_path)
    store.publish("corpora", manifest("aa", "2036-01-01T00:00:00.000000+00:00"), file)
    store.publish("corpora", manifest("bb", now()))
    _, current = store.current("corpora", "toy")
    assert (current.fingerprint, current.created) == ("bb", "2036-01-01T00:00:00.000001+00:00")
    assert store.attempt("toy") is None


def test_of_two_at_one_time_the_last_that_is_published_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("bb", "aa"):
        store.publish("corpora", manifest(name, "2026-01-01T00:00:00.000000+00:00"))
    assert store.current("corpora", "toy")[1].fingerprint == "aa"


def test_what_is_made_again_counts_before_a_later_attempt(tmp_path: Path) -> None:
    store, made = Store(tmp_path), manifest("aa", "2026-01-01")
    store.publish("corpora", made)
    assert store.again("corpora", made) == made, "it is the current one already"
    store.publish("corpora", manifest("bb", "2026-01-02"), ATTEMPT)
    assert store.attempt("toy")
    assert store.again("corpora", made).created > "2026-01-02"
    assert store.attempt("toy") is None


def test_what_another_version_made_counts_until_this_one_made_something(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("corpora", manifest("aa", "2026-01-02").model_copy(update={"schema_version": 1}))
    with pytest.raises(UserError, match=r"schema version 1, expected \d+; run its job again"):
        store.current("corpora", "toy")
    store.publish("corpora", manifest("bb", "2026-01-01"))
    assert store.current("corpora", "toy")[1].fingerprint == "bb"
    store.publish("corpora", manifest("cc", "2026-01-03").model_copy(update={"schema_version": 1}), ATTEMPT)
    assert store.attempt("toy") is None
    assert store.again("corpora", manifest("bb", "2026-01-01")).created == "2026-01-01"


def mixture(name: str, created: str, **stated: Any) -> MixtureManifest:
    return MixtureManifest(name=name, fingerprint="aa", created=created, sql="SELECT 1", sources=[], **stated)


def test_the_current_ones_of_a_kind_are_the_newest_of_each_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, made in (("b", "aa"), ("a", "bb"), ("a", "aa"), ("b", "bb"), ("a", "cc")):
        path = store.publish("corpora", manifest(made, "2026-01-01", name)) / MANIFEST
        if made != "cc":  # the others are of one time
            path.write_text(manifest(made, "2026-01-01", name).model_dump_json())
    found = store.currents("corpora")
    assert [(name, made.fingerprint) for name, (_, made) in found.items()] == [("a", "cc"), ("b", "bb")]
    assert found == {name: store.current("corpora", name) for name in ("a", "b")}
    assert store.currents("shards") == {}


def test_what_only_another_version_made_is_current_neither_alone_nor_with_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("old", "both"):
        store.publish("mixtures", mixture(name, "2026-01-02", schema_version=1))
    store.publish("mixtures", mixture("both", "2026-01-01").model_copy(update={"fingerprint": "bb"}))
    assert store.currents("mixtures") == {"both": store.current("mixtures", "both")}


def test_a_corpus_that_only_another_version_made_is_not_left_out(tmp_path: Path) -> None:
    """An audit, or a mixture that holds it out, would miss its records."""
    store = Store(tmp_path)
    store.publish("corpora", manifest("aa", "2026-01-02", "old").model_copy(update={"schema_version": 1}))
    store.publish("corpora", manifest("aa", "2026-01-02", "new"))
    with pytest.raises(UserError, match=r"old/aa/manifest\.json: schema version 1, expected \d+; run"):
        store.currents("corpora")
    store.publish("corpora", manifest("bb", "2026-01-01", "old"))
    assert [*store.currents("corpora")] == ["new", "old"]


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", f'{{"schema_version": {SCHEMA_VERSION}}}'])
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = Store(tmp_path).publish("corpora", manifest("aa", "2026-01-02")) / MANIFEST
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        read_manifest(CorpusManifest, path.parent)
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("kind", "command"),
    [("corpora", "ubert ingest toy"), ("mixtures", "ubert mix toy"), ("shards", "ubert shard toy")],
)
def test_what_is_missing_names_the_command_that_makes_it(tmp_path: Path, kind: str, command: str) -> None:
    with pytest.raises(UserError, match=command):
        Store(tmp_path).current(kind, "toy")  # type: ignore[call-overload]


def test_a_misspelt_name_is_told_the_nearest_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("tickets", "reviews"):
        store.publish("corpora", manifest("aa", "2026-01-01", name))
    with pytest.raises(UserError, match=r"nothing here yet; did you mean tickets\? Or make it with `ubert ingest"):
        store.current("corpora", "ticket")


def test_residue_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.publish("corpora", manifest("aa", "2026-01-01")) / "part"
    residue: list[Path] = []
    with atomic(path) as temporary:
        temporary.write_text("half")
        residue.append(temporary.with_name(temporary.name + "-of-a-killed-run"))
        residue[0].write_text("half")
    with store.working_on("corpora", "toy"):
        assert not residue[0].exists()
        assert path.read_text() == "half"
        residue[0].write_text("of a worker that is killed now")
    assert not residue[0].exists()


def test_only_one_process_writes_a_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.working_on("corpora", "toy"):
        with pytest.raises(UserError, match="another process"), store.working_on("corpora", "toy"):
            pass
        with store.working_on("corpora", "other"):
            pass
    with store.working_on("corpora", "toy"):
        pass


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """A store below a regular file cannot be written, not even by root."""
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "store")
    with pytest.raises(UserError, match=r"cannot write to the store: Not a directory.*--root"):
        store.publish("corpora", manifest("aa", "2026-01-01"))
    with pytest.raises(UserError, match="cannot write to the store"), store.working_on("corpora", "toy"):
        pass


def test_a_fingerprint_depends_on_values_and_not_on_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    others = ({"a": 1, "b": [3]}, {"a": 2, "b": [2]}, {"a": 1}, [1, [2]])
    assert len({fingerprint(other) for other in ({"a": 1, "b": [2]}, *others)}) == 5


def test_only_what_is_finished_has_a_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, file in (("b", MANIFEST), ("a", MANIFEST), ("c", ATTEMPT)):
        store.publish("corpora", manifest("aa", "2026-01-01", name), file)
    assert store.names("corpora") == ["a", "b"]


@pytest.mark.parametrize("links", [True, False])
def test_a_second_name_has_the_content_on_a_disk_with_and_without_links(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    if not links:
        monkeypatch.setattr("os.link", refuse)
    old, new = tmp_path / "old", tmp_path / "folder" / "new"
    old.write_text("content")
    link(old, new)
    assert (new.read_text(), new.samefile(old)) == ("content", links)
    assert [path.name for path in new.parent.iterdir()] == ["new"]


def test_runs_of_an_object_store_are_in_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert on_disk(ObjectPath("bucket/a")) == tmp_path / "home/.local/share/ubert/bucket/a"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert on_disk(ObjectPath("bucket/a")) == tmp_path / "data/ubert/bucket/a"
    assert on_disk(Path("store")) == tmp_path / "store"


def test_the_address_of_the_object_store_alone_comes_before_that_of_all_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    assert endpoint() == "http://all"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://objects")
    assert endpoint() == "http://objects"


def test_a_failure_that_passes_is_retried_and_any_other_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0))

    def attempts(*failures: str) -> int:
        """How many attempts a read takes that fails so."""
        left, count = [*failures], 0

        def read() -> int:
            nonlocal count
            count += 1
            if left:
                raise UserError(left.pop(0))
            return count

        return persistent(read)

    assert (attempts(), attempts("INTERNAL_FAILURE", "an INTERNAL_FAILURE")) == (1, 3)
    with pytest.raises(UserError, match="third"):
        attempts("INTERNAL_FAILURE", "INTERNAL_FAILURE", "third INTERNAL_FAILURE")
    with pytest.raises(UserError, match="ACCESS_DENIED"):
        attempts("ACCESS_DENIED")


def test_only_a_failing_object_store_points_to_its_variables() -> None:
    places: list[StorePath] = [Path("here"), ObjectPath("bucket")]
    for place in places:
        with pytest.raises(UserError, match=f"^{place}: ") as error, explained(place):
            raise OSError("broken")
        assert ("AWS_" in str(error.value)) == isinstance(place, ObjectPath)
        with pytest.raises(FileNotFoundError), explained(place):
            raise FileNotFoundError


def test_a_fingerprint_has_16_hex_digits_of_any_text() -> None:
    for parts in ((), ("é",), ("\ud800",), (0.5, None)):
        assert len(fingerprint(*parts)) == 16 and int(fingerprint(*parts), 16) >= 0
    assert fingerprint("a", "b") != fingerprint("ab")


def test_dropped_records_are_counted_over_all_reasons_and_sources() -> None:
    dropped = {"dropped_leaks": 1, "dropped_duplicates": 10, "dropped_held_out": 100, "dropped_suspects": 1000}
    drawn: dict[str, Any] = {"available": 5000, "records": 1, "draws": 1, "epochs": 1.0, "characters": 1}
    sources = [
        RealisedSource(corpus="toy", split=split, corpus_fingerprint="aa", phases=[1, 0], **drawn, **counts)
        for split, counts in (("train", dropped), ("test", {"dropped_leaks": 20_000}))
    ]
    mixed = MixtureManifest(name="m", fingerprint="aa", created="2026-01-01", sql="SELECT 1", sources=sources)
    assert ([source.dropped for source in sources], mixed.dropped, mixed.phases) == ([1111, 20_000], 21_111, 2)
