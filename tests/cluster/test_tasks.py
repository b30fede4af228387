"""Jobs as Ray tasks: every job has one result, even if workers die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.exceptions import RaySystemError
from ray_head import below, environment
from waiting import HANGS, wait_for

from pipelines.ray_tasks import DiedError, completed, session
from pipelines.store.code_hash import code_hash
from ubert.schema.errors import UserError


def works() -> list[Callable[[Any], int]]:
    """Made here, and so sent to the workers, which cannot import a test."""

    def double(number: int) -> int:
        if number == 13:
            raise UserError("13: not a number to double")
        return 2 * number

    def die_once(mark: Path) -> int:
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return 1

    def fail_once(mark: Path) -> int:
        if not mark.exists():
            mark.touch()
            raise OSError("the store is away")
        return 1

    def die(number: int) -> int:
        if number == 13:
            os._exit(1)
        return number

    def fail(marks: Path) -> int:
        (marks / f"{len(list(marks.iterdir()))}").touch()
        raise OSError("the store is away")

    return [double, die_once, fail_once, die, fail]


double, die_once, fail_once, die, fail = works()


def test_no_jobs_need_no_ray() -> None:
    assert list(completed(double, [], address="no.such.host:1")) == []


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_every_job_has_its_result_or_its_error() -> None:
    results = dict(completed(double, [(number,) for number in range(30)]))
    error = results.pop(13)
    assert isinstance(error, UserError)
    assert str(error) == "13: not a number to double"
    assert results == {number: 2 * number for number in range(30) if number != 13}


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("work", [die_once, fail_once])
def test_a_job_whose_worker_dies_or_whose_store_fails_is_done_again(
    work: Callable[[Path], int], tmp_path: Path
) -> None:
    assert list(completed(work, [(tmp_path / "mark",)])) == [(0, 1)]


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_job_whose_store_stays_away_is_an_error_after_three_more_attempts(tmp_path: Path) -> None:
    [(index, error)] = completed(fail, [(tmp_path,)])
    assert index == 0 and isinstance(error, UserError) and not isinstance(error, DiedError)
    assert str(error).startswith("the store is away; ")
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_ray_that_runs_already_is_used_and_left_running() -> None:
    with session("no.such.host:1") as ends:
        assert not ends
    assert ray.is_initialized()


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_job_that_no_worker_survives_is_an_error_and_keeps_no_other_back() -> None:
    results = dict(completed(die, [(number,) for number in (12, 13, 14)]))
    assert isinstance(results.pop(1), DiedError)
    assert results == {0: 12, 2: 14}


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_fault_in_our_code_is_not_taken_for_the_users() -> None:
    with pytest.raises(TypeError):
        list(completed(double, [(None,)]))


def test_code_that_is_imported_counts_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, text in enumerate(["from ubert_test_pkg import low\n", "x = 1\n"]):
        (tmp_path / "ubert_test_pkg").mkdir(exist_ok=True)
        (tmp_path / "ubert_test_pkg" / ("top.py", "low.py")[number]).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("pipelines.store.code_hash.OURS", ("ubert_test_pkg",))
    before = code_hash("ubert_test_pkg.top")
    assert code_hash("ubert_test_pkg.top") == before
    (tmp_path / "ubert_test_pkg" / "low.py").write_text("x = 2\n")
    assert code_hash("ubert_test_pkg.top") != before


def test_code_counts_that_is_imported_by_way_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ubert_test_way"
    folder.mkdir()
    code = {"top": "from ubert_test_way.middle import x", "middle": "from ubert_test_way import low\nx = 1"}
    for name, text in {**code, "low": "", "other": ""}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("pipelines.store.code_hash.OURS", ("ubert_test_way",))
    hashes = [code_hash("ubert_test_way.top")]
    for name in ("other", "low"):
        (folder / f"{name}.py").write_text("y = 1")
        hashes.append(code_hash("ubert_test_way.top"))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_ray_that_does_not_start_in_time_gives_one_clear_error(name: str, tmp_path: Path) -> None:
    command = "from pipelines.cli.shared import with_plain_errors; from pipelines.ray_tasks import completed; "
    command += "with_plain_errors(lambda: list(completed(abs, [(-1,)])))"
    with subprocess.Popen(
        [sys.executable, "-c", command], env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    ) as running:
        wait_for(lambda: below(running.pid, name), running)
        [node] = below(running.pid, name)
        node.suspend()  # as a machine does that is too busy
        _, err = running.communicate(timeout=HANGS)
    assert running.returncode == 1
    assert err.count("error: ") == err.count("error: Ray did not start") == 1
    assert "Traceback" not in err
    psutil.wait_procs([node], timeout=HANGS)
    assert not node.is_running()


DYING = """
import subprocess
import psutil
import ray._private.worker
from pipelines.cli.shared import with_plain_errors
from pipelines.ray_tasks import completed

connect = ray._private.worker.connect

def connect_to_a_dying_raylet(*arguments, **named):
    for one in psutil.Process().children(recursive=True):
        if one.name() == "raylet":
            one.suspend()
            subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {one.pid}"])
    connect(*arguments, **named)

ray._private.worker.connect = connect_to_a_dying_raylet
with_plain_errors(lambda: list(completed(abs, [(-1,)])))
"""


@pytest.mark.slow
@pytest.mark.ray
def test_a_ray_that_dies_while_the_command_registers_with_it_gives_one_clear_error(tmp_path: Path) -> None:
    """Ray ends the process without an exception, after a message of its own."""
    done = subprocess.run(
        [sys.executable, "-c", DYING], env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("error: the command was ended") and "run the same command again" in said
    assert "Traceback" not in done.stderr


OUTPUT = """
import os
from pipelines.ray_tasks import completed

def die(number):
    os._exit(1)

[(index, error)] = completed(die, [(0,)])
print(type(error).__name__)
"""


@pytest.mark.slow
@pytest.mark.ray
def test_a_worker_that_dies_writes_nothing_into_the_output_of_a_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUTPUT], env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stdout) == (0, "DiedError\n"), done.stderr


FAILING = """
import time
from pipelines.cli.shared import with_plain_errors
from pipelines.ray_tasks import completed, session
from ubert.schema.errors import UserError

def fail(number):
    raise UserError("a wrong number")

def work():
    with session(None):
        for _, error in completed(fail, [(number,) for number in range(8)]):
            time.sleep(2)  # meanwhile the others fail too
            break
    raise error

with_plain_errors(work)
"""


@pytest.mark.slow
@pytest.mark.ray
def test_of_several_jobs_that_fail_one_error_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING], env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stderr) == (1, "error: a wrong number\n")


SLEEPING = """
import time
from pipelines.cli.shared import with_plain_errors
from pipelines.ray_tasks import completed

def sleep(seconds):
    time.sleep(seconds)

def work():
    for _ in completed(sleep, [(0,), *[(600,)] * 5]):
        print("begun", flush=True)

with_plain_errors(work)
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_ray_that_dies_gives_one_clear_error(name: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout and running.stdout.readline() == "begun\n"
        ray = [*below(running.pid, "gcs_server"), *below(running.pid, "raylet")]
        [killed] = below(running.pid, name)
        killed.kill()
        _, err = running.communicate(timeout=HANGS)
    assert running.returncode == 1
    assert err.count("error: ") == err.count("error: Ray died") == 1 and "run the same command again" in err
    assert "Traceback" not in err and "The program will terminate" not in err
    psutil.wait_procs(ray, timeout=HANGS)
    assert not any(one.is_running() for one in ray)


WAITING = """
import sys, time
from pathlib import Path
from pipelines.ray_tasks import completed

def wait(path):
    Path(path).touch()
    time.sleep(600)

try:
    list(completed(wait, [(sys.argv[1],)]))
except KeyboardInterrupt:
    print("as Ctrl-C")
"""


@pytest.mark.slow
@pytest.mark.ray
def test_sigterm_acts_as_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITING, str(tmp_path / "waits")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(tmp_path), stdout=pipe, stderr=pipe, text=True) as running:
        wait_for((tmp_path / "waits").exists, running)
        running.terminate()
        assert (*running.communicate(timeout=HANGS), running.returncode) == ("as Ctrl-C\n", "", 0)


@pytest.mark.parametrize(
    "error",
    [RaySystemError("Failed to connect to GCS."), Exception("The dashboard of GCS is away.\nSee the log.")],
)
def test_a_ray_that_does_not_start_gives_one_clear_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: Any) -> None:
        raise error

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    with (
        pytest.raises(UserError, match=r"^Ray did not start: [^\n]*GCS[^\n]*run the same command again$"),
        session(None),
    ):
        pass


@pytest.mark.slow
@pytest.mark.ray
def test_a_command_that_ends_without_a_word_while_it_uses_ray_is_reported(tmp_path: Path) -> None:
    """Ray's C++ code ends a process whose raylet was killed."""
    code = "import os; from pipelines.ray_tasks import session\nwith session(None): os._exit(1)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS
    )
    assert done.stderr.splitlines()[-1].startswith("error: the command was ended")
