"""A run in an object store continues on a machine that has none of its files."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from object_store import ObjectStore
from tiny_run import World, losses, make_recipe, make_world
from waiting import wait_for

from pipelines.store.storage import ObjectPath, upload
from pipelines.store.warehouse import sql
from pipelines.training import lease
from pipelines.training.driven_run import StoredRun, download, driving
from pipelines.training.remote_logs import RemoteLog
from pipelines.training.remote_run import Mirror, pull, push_dynamics
from ubert.schema.errors import UserError
from ubert.training import loop, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log

OTHER = {"word": "another", "host": "elsewhere", "process": 1, "renewed": 0}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def train(world: World, there: ObjectPath, run: Path, until: int = 8, **changed: object) -> None:
    """What rank 0 does, from nothing but what the store has, up to a step."""
    pull(there, run)
    reached = checkpoint.latest(run)
    done = checkpoint.read_state(reached).step if reached else 0
    steps = iter(range(done + 1, 9))
    recipe = make_recipe(world.encoder, name="tiny", **changed)
    with lease.holding(there) as word:
        mirror = Mirror(there, run, word)
        mirror.restart(done)
        with mirror.following(), suppress(KeyboardInterrupt):
            loop.train(
                recipe,
                shards=world.shards,
                run=run,
                leaving=lambda: next(steps) == until,
                written=mirror.push,
            )


def test_a_fresh_machine_resumes_with_the_same_losses(remote: ObjectPath, world: World, tmp_path: Path) -> None:
    there, one, other = remote / "runs" / "tiny", tmp_path / "one" / "tiny", tmp_path / "other" / "tiny"
    loop.train(make_recipe(world.encoder), shards=world.shards, run=tmp_path / "whole")
    train(world, there, one, 5)
    (one / "checkpoints/step-000005/state.json").unlink()  # this disk is not looked at any more
    train(world, there, other)
    assert losses(other) == losses(tmp_path / "whole")
    manifest = run_directory.finished(other)
    assert manifest and manifest.checkpoint == "checkpoints/step-000008"
    steps = sorted(path.parent.name for path in there.glob("checkpoints/*/state.json"))
    assert steps == sorted(path.name for path in (other / "checkpoints").iterdir())
    pull(there, one)
    assert losses(one) == losses(other) and checkpoint.latest(one).name == "step-000008"


def test_training_dynamics_are_those_of_an_uninterrupted_run(
    remote: ObjectPath, world: World, tmp_path: Path
) -> None:
    query = "SELECT record_id, epoch, step, round(loss, 3) AS loss FROM dynamics ORDER BY ALL"
    disk = tmp_path / "disk"
    loop.train(make_recipe(world.encoder, dynamics=True), shards=world.shards, run=disk / "runs" / "tiny")
    there = remote / "runs" / "tiny"
    train(world, there, tmp_path / "one" / "tiny", 5, dynamics=True)
    stale = next((tmp_path / "one" / "tiny" / "dynamics").iterdir())
    upload(stale, there / "dynamics" / "00000007-1.parquet")  # of a worker that died before the next checkpoint
    train(world, there, tmp_path / "other" / "tiny", dynamics=True)
    found = sql(remote, query, [])
    assert found.num_rows and found == sql(disk, query, [])


def test_a_machine_that_comes_back_adds_no_dynamics_of_steps_that_others_repeated(
    remote: ObjectPath, world: World, tmp_path: Path
) -> None:
    there, left = remote / "runs" / "tiny", tmp_path / "left" / "tiny"
    train(world, there, tmp_path / "one" / "tiny", 3, dynamics=True)
    pull(there, left)
    (left / "dynamics").mkdir()
    (left / "dynamics" / "00000004-1.parquet").touch()
    train(world, there, tmp_path / "one" / "tiny", 6, dynamics=True)
    before = (there / "dynamics").sizes()
    assert before
    pull(there, left)
    push_dynamics(there, left)
    assert (there / "dynamics").sizes() == before


def test_thresholds_that_were_fitted_later_reach_other_machines(
    remote: ObjectPath, world: World, tmp_path: Path
) -> None:
    there, fitted = remote / "runs" / "tiny", "checkpoints/step-000003/thresholds.json"
    train(world, there, tmp_path / "one", 3)
    pull(there, tmp_path / "other")
    upload(world.encoder / "config.json", there / fitted)
    pull(there, tmp_path / "other")
    assert (tmp_path / "other" / fitted).read_bytes() == (world.encoder / "config.json").read_bytes()


def test_what_was_not_put_whole_is_not_there(
    remote: ObjectPath, object_store: ObjectStore, world: World, tmp_path: Path
) -> None:
    there, run = remote / "runs" / "tiny", tmp_path / "tiny"
    train(world, there, run, 3)

    def refused(method: str, path: str) -> str | None:
        return "403" if method in ("PUT", "POST") and "step-000006/model.safetensors" in path else None

    with (
        object_store.failing(refused),
        pytest.raises(UserError, match=r"the store fails.*run the same command again"),
    ):
        train(world, there, run, 6)
    pull(there, tmp_path / "fresh" / "tiny")
    assert checkpoint.latest(tmp_path / "fresh" / "tiny").name == "step-000003"
    train(world, there, run, 6)
    assert (there / "checkpoints/step-000006/state.json").exists()


def test_a_damaged_checkpoint_of_the_store_is_left_out(remote: ObjectPath, world: World, tmp_path: Path) -> None:
    there = remote / "runs" / "tiny"
    train(world, there, tmp_path / "one", 6)
    (there / "checkpoints/step-000006/optimizer.safetensors").unlink()
    pull(there, tmp_path / "other")
    assert checkpoint.latest(tmp_path / "other").name == "step-000003"


def test_a_second_process_is_refused_until_the_first_is_silent(
    remote: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = remote / "runs" / "tiny"
    with lease.holding(run) as first:
        refusal = (
            r"process \d+ on .* trains this run.* delete .*/lock.json or wait \d+ s, then run the same command"
        )
        with pytest.raises(UserError, match=refusal), lease.holding(run):
            pass
        lease.check(run, first)
        monkeypatch.setattr(lease, "LASTS", -1.0)
        with lease.holding(run) as second:
            lease.check(run, second)
            with pytest.raises(UserError, match=r"the lock of this run was lost to .* \(process \d+\)"):
                lease.check(run, first)
    assert not (run / lease.FILE).exists()


def test_the_lock_is_renewed_also_where_an_answer_is_lost(
    remote: ObjectPath, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = remote / "runs" / "tiny"
    monkeypatch.setattr(lease, "RENEWED", 0.01)
    faults = iter(["500", None, "503"])
    with object_store.failing(lambda method, path: next(faults, None)), lease.holding(run) as word:
        wait_for(lambda: lease._read(run).content["renewed"] >= 3)
        lease.check(run, word)


def overtake_second_write(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let another process write the lock just before it is written for the second time. The event is set after
    both writes."""
    put, attempts, written = lease._put, list[dict[str, str]](), threading.Event()

    def overtaken(run: ObjectPath, content: dict[str, Any], **condition: str) -> str | None:
        attempts.append(condition)
        if len(attempts) != 2:
            return put(run, content, **condition)
        put(run, OTHER)
        version = put(run, content, **condition)
        written.set()
        return version

    monkeypatch.setattr(lease, "_put", overtaken)
    return written


def word_of(run: ObjectPath) -> str | None:
    lock = lease._read(run)
    return lock and lock.content["word"]


def test_a_holder_does_not_remove_a_lock_that_it_lost(remote: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    run = remote / "runs" / "tiny"
    monkeypatch.setattr(lease, "LASTS", -1.0)
    with ExitStack() as second:
        with lease.holding(run):
            token = second.enter_context(lease.holding(run))
        lease.check(run, token)


def test_a_holder_does_not_renew_a_lock_that_it_lost(remote: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    run = remote / "runs" / "tiny"
    monkeypatch.setattr(lease, "RENEWED", 0.01)
    written = overtake_second_write(monkeypatch)
    with lease.holding(run):
        wait_for(written.is_set)
        assert word_of(run) == "another"
    assert word_of(run) == "another"


def test_only_the_quicker_process_takes_over_a_silent_lock(
    remote: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = remote / "runs" / "tiny"
    lease._put(run, {**OTHER, "word": "silent"})
    monkeypatch.setattr(lease, "LASTS", -1.0)
    written = overtake_second_write(monkeypatch)
    with pytest.raises(UserError, match="trains this run"), lease.holding(run):
        pass
    assert written.is_set() and word_of(run) == "another"


def test_a_machine_that_lost_the_lock_uploads_nothing(remote: ObjectPath, tmp_path: Path) -> None:
    there, path = remote / "runs" / "tiny", tmp_path / log.JSONL
    path.parent.mkdir()
    for file in (path, tmp_path / "recipe.yaml"):
        file.write_text("one\n", encoding="utf-8")
    with lease.holding(there):
        before = there.sizes()
        with pytest.raises(UserError, match="was lost to"):
            Mirror(there, tmp_path, "another").push()
        assert there.sizes() == before


def test_logs_follow_in_pieces_and_begin_anew_where_a_run_does(remote: ObjectPath, tmp_path: Path) -> None:
    there, path = remote / "runs" / "tiny", tmp_path / "run" / log.JSONL
    seen = tmp_path / "seen" / log.JSONL
    path.parent.mkdir(parents=True)
    reader = RemoteLog(there, tmp_path / "seen")
    mirror = Mirror(there, tmp_path / "run", "")
    for text in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write(text[len(path.read_text("utf-8")) :])
        mirror.push_logs()
        reader.update()
        assert seen.read_text("utf-8") == text
    assert len(there.sizes()) == 3
    path.with_name("new").write_text("one\nother\n", encoding="utf-8")
    path.with_name("new").replace(path)
    mirror.push_logs()
    reader.update()
    assert seen.read_text("utf-8") == "one\nother\n" and len(there.sizes()) == 1


def test_a_wish_to_stop_reaches_the_machine_that_trains(
    remote: ObjectPath, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.training.remote_run.POLL", 0.01)
    recipe = make_recipe(world.encoder)
    driven = StoredRun(remote, tmp_path / "driver" / "tiny", recipe, "", tmp_path / "logs")
    mirror = Mirror(remote / "runs" / "tiny", tmp_path / "tiny", "")
    (tmp_path / "tiny").mkdir()
    with mirror.following():
        driven.request(run_directory.STOP)
        wait_for((tmp_path / "tiny" / run_directory.STOP).exists)
    driven.withdraw(run_directory.STOP)
    assert not (remote / "runs" / "tiny" / run_directory.STOP).exists()


def test_a_wish_to_stop_in_the_store_reaches_the_driver_on_another_machine(
    remote: ObjectPath, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    with (
        driving(remote, "tiny", make_recipe(Path("unused"))) as driven,
        run_directory.stopping(driven.run) as stop_requested,
    ):
        driven.download()
        assert not stop_requested()
        upload(tmp_path / "empty", remote / "runs" / "tiny" / run_directory.STOP)
        driven.download()
        assert stop_requested()


def test_checkpoints_that_were_not_uploaded_yet_stay(remote: ObjectPath, world: World, tmp_path: Path) -> None:
    there, run = remote / "runs" / "tiny", tmp_path / "tiny"
    train(world, there, run, 3)
    recipe = make_recipe(world.encoder, keep_checkpoints=9)
    loop.train(recipe, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    pull(there, run)
    assert checkpoint.latest(run) == run / "checkpoints/step-000008" and len(losses(run)) == 8
    assert run_directory.finished(run)


def test_a_restart_removes_what_is_repeated_from_the_store(remote: ObjectPath, tmp_path: Path) -> None:
    there, run, file = remote / "runs" / "tiny", tmp_path / "tiny", tmp_path / "file"
    file.write_bytes(b"content")
    names = ("dynamics/00000003-0.parquet", "dynamics/00000004-0.parquet", "manifest.json")
    for name in (*names, "checkpoints/step-000009/state.json", "checkpoints/step-000009/config.json"):
        upload(file, there / name)
    run.mkdir()
    with lease.holding(there) as token:
        Mirror(there, run, token).restart(3)
    assert list(there.sizes()) == ["dynamics/00000003-0.parquet"]


def test_a_log_that_was_cut_begins_anew(remote: ObjectPath, tmp_path: Path) -> None:
    there, path = remote / "runs" / "tiny", tmp_path / "run" / log.JSONL
    path.parent.mkdir(parents=True)
    path.with_name("other").write_text("beside it\n", encoding="utf-8")
    reader, mirror = RemoteLog(there, tmp_path / "seen"), Mirror(there, tmp_path / "run", "")
    for text in ("one\ntwo\n", "one\n", "one\n2\n"):
        with path.open("r+" if path.exists() else "w", encoding="utf-8") as file:
            file.truncate(0)
            file.write(text)
        mirror.push_logs()
        reader.update()
        assert (tmp_path / "seen" / log.JSONL).read_text("utf-8") == text
    assert (tmp_path / "seen/logs/other").read_text("utf-8") == "beside it\n"
    RemoteLog(there, tmp_path / "late").update()
    assert (tmp_path / "late" / log.JSONL).read_text("utf-8") == "one\n2\n"


@pytest.mark.parametrize("key", ["from", "continue_from"])
def test_a_run_comes_with_the_one_that_it_starts_from(
    remote: ObjectPath, world: World, tmp_path: Path, key: str
) -> None:
    train(world, remote / "runs" / "tiny", tmp_path / "one" / "tiny", 3)
    download(remote, tmp_path / "two" / "child", make_recipe(world.encoder, **{key: "tiny/step-000003"}))
    assert checkpoint.latest(tmp_path / "two" / "tiny") == tmp_path / "two/tiny/checkpoints/step-000003"


def test_a_driver_looks_for_new_logs_now_and_then(
    remote: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / log.JSONL
    path.parent.mkdir(parents=True)
    driven = StoredRun(remote, tmp_path / "driver/tiny", make_recipe(Path("unused")), "", tmp_path / "logs")
    mirror = Mirror(remote / "runs" / "tiny", tmp_path / "run", "")
    seen = []
    for text, poll in (("one\n", 1e9), ("one\ntwo\n", 1e9), ("one\ntwo\nthree\n", -1.0)):
        path.write_text(text, encoding="utf-8")
        mirror.push_logs()
        monkeypatch.setattr("pipelines.training.driven_run.POLL", poll if seen else 0.0)
        driven.update_logs()
        seen.append((driven.logs / log.JSONL).read_text("utf-8"))
    assert seen == ["one\n", "one\n", "one\ntwo\nthree\n"]


def test_of_a_log_that_began_anew_only_the_newest_pieces_are_read(remote: ObjectPath, tmp_path: Path) -> None:
    there = remote / "runs" / "tiny"
    for generation, offset, text in ((1, 0, "old\n"), (1, 4, "older\n"), (2, 0, "a\n"), (2, 2, "b\n")):
        (tmp_path / "piece").write_text(text, encoding="utf-8")
        upload(tmp_path / "piece", there / f"{log.JSONL}/{generation:020}-{offset:012}")
    RemoteLog(there, tmp_path / "seen").update()
    assert (tmp_path / "seen" / log.JSONL).read_text("utf-8") == "a\nb\n"


def test_a_log_that_begins_anew_while_it_is_read_is_read_the_next_time(remote: ObjectPath, tmp_path: Path) -> None:
    there, path = remote / "runs" / "tiny", tmp_path / "run" / log.JSONL
    path.parent.mkdir(parents=True)
    reader, mirror = RemoteLog(there, tmp_path / "seen"), Mirror(there, tmp_path / "run", "")
    path.write_text("one\ntwo\n", encoding="utf-8")
    mirror.push_logs()
    listed = there.sizes()
    path.write_text("one\n", encoding="utf-8")
    mirror.push_logs()
    reader.update(listed)
    reader.update()
    assert (tmp_path / "seen" / log.JSONL).read_text("utf-8") == "one\n"


def test_a_driver_clears_the_requests_of_a_dead_one_and_holds_the_lock(remote: ObjectPath, tmp_path: Path) -> None:
    there, recipe = remote / "runs" / "tiny", make_recipe(Path("unused"))
    (tmp_path / "empty").touch()
    for request in run_directory.REQUESTS:
        upload(tmp_path / "empty", there / request)
    with driving(remote, "tiny", recipe) as driven:
        assert not any((there / request).exists() for request in run_directory.REQUESTS)
        lease.check(there, driven.token)
        for request in run_directory.REQUESTS:
            driven.request(request)
            assert (there / request).exists()
            driven.withdraw(request)
            assert not (there / request).exists()
    assert not (there / lease.FILE).exists()
