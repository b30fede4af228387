"""The cache never exceeds its limit, and never removes a file that a process uses."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from waiting import HANGS

from pipelines.store.disk_cache import BusyError, DiskCache
from ubert.schema.errors import UserError

TICK = 0.011  # seconds; the clock of a kernel's file times may stand still for 10 ms


def size(folder: Path) -> int:
    """Bytes of all files but the cache's own notes."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix != ".held" and path.name != ".lock")


def put(cache: DiskCache, name: str, count: int) -> bool:
    """Whether there was room for the file."""
    half = cache.reserve(name, count)
    if half is None:
        return False
    half.write(b"x" * count)
    cache.finish(name, half)
    return True


def test_what_nobody_uses_goes_first_and_what_was_asked_for_last_stays(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    assert put(cache, "a", 40) and put(cache, "b", 40)
    assert not put(cache, "c", 40), "both are in use"
    cache.keep([])
    time.sleep(TICK)
    assert cache.find("a")
    cache.keep([])
    assert put(cache, "c", 40)
    assert cache.find("a") and cache.find("b") is None and size(tmp_path) == 80


def test_no_more_files_go_than_must(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 80)
    assert put(cache, "a", 40)
    time.sleep(TICK)
    assert put(cache, "b", 40)
    cache.keep([])
    assert put(cache, "c", 40)
    assert cache.find("a") is None and cache.find("b")


def test_a_file_has_its_name_once_it_is_whole_and_its_room_before(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    half = cache.reserve("a", 60)
    assert half and size(tmp_path) == 60 and cache.find("a") is None
    with pytest.raises(BusyError):
        DiskCache(tmp_path, 100).reserve("a", 60)
    assert not put(cache, "b", 60)
    cache.give_up(half)
    assert size(tmp_path) == 0 and put(cache, "b", 60)


def hold(folder: Path, told: Connection) -> None:
    cache = DiskCache(folder, 100)
    assert put(cache, "theirs", 60)
    assert cache.reserve("never", 30)
    told.send("held")
    told.recv()


def test_a_file_of_another_process_stays_until_that_dies(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path, there), daemon=True)
    other.start()
    assert here.poll(HANGS) and here.recv() == "held"
    assert not put(cache, "mine", 60)
    other.kill()
    other.join()
    assert put(cache, "mine", 60)
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".held"} == {"mine", ".lock"}


def test_any_sequence_of_requests_keeps_to_the_bound(tmp_path: Path) -> None:
    drawn = random.Random(0)
    caches = [DiskCache(tmp_path, 1000) for _ in range(3)]
    for _ in range(300):
        cache, name = drawn.choice(caches), str(drawn.randrange(12))
        if cache.find(name) is None:
            put(cache, name, 50 + 20 * int(name))
        if drawn.random() < 0.2:
            cache.keep([])
        assert size(tmp_path) <= 1000


def test_on_a_full_disk_the_cache_makes_room_and_else_says_what_to_do(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 250_000)
    assert put(cache, "a", 100)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"the disk is full, but .* --cache"):
            cache.reserve("b", 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cache.find("a") and size(tmp_path) == 100
    cache.keep([])
    assert put(cache, "c", 100_000) and cache.find("a"), "what could not be written takes no space"


def test_what_goes_from_a_full_disk_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, allocate, failures = DiskCache(tmp_path, 100), os.posix_fallocate, [errno.ENOSPC]

    def full_once(*arguments: int) -> None:
        if failures:
            raise OSError(failures.pop(), "full")
        allocate(*arguments)

    assert put(cache, "a", 20)
    time.sleep(TICK)
    assert put(cache, "b", 20)
    cache.keep([])
    monkeypatch.setattr("os.posix_fallocate", full_once)
    assert put(cache, "c", 20) and cache.find("a") is None
    cache.keep([])
    assert put(cache, "d", 60) and cache.find("b") and cache.find("c")


def test_a_folder_that_cannot_be_written_gives_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"the cache cannot be written .* XDG_CACHE_HOME"):
        DiskCache(tmp_path / "file", 100)


def test_a_file_that_is_looked_up_without_use_may_go(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    half = cache.reserve("a", 60)
    assert half
    half.write(b"x" * 60)
    cache.finish("a", half, use=False)
    assert cache.find("a", use=False)
    assert put(cache, "b", 60)
    assert cache.find("a") is None


def test_what_a_process_keeps_stays_where_another_needs_room(tmp_path: Path) -> None:
    one, other = DiskCache(tmp_path, 100), DiskCache(tmp_path, 100)
    assert put(one, "a", 40) and put(one, "b", 40)
    one.keep(["a", "c"])
    assert put(other, "c", 60)
    assert other.find("a") and other.find("b") is None


def test_the_count_of_bytes_is_that_of_the_files(tmp_path: Path) -> None:
    cache, found = DiskCache(tmp_path, 100), list[tuple[int, int]]()

    def look() -> None:
        found.append((int((tmp_path / ".lock").read_text()), size(tmp_path)))

    assert put(cache, "a", 60)
    look()
    half = cache.reserve("b", 30)
    look()
    assert half and cache.reserve("c", 50) is None
    look()
    cache.give_up(half)
    look()
    assert found == [(60, 60), (90, 90), (90, 90), (60, 60)]
