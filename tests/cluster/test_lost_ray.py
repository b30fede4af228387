"""When Ray dies, whatever waits for it reports that once. The next Ray is not mistaken for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ray.exceptions import RayError

from pipelines import lost_ray
from ubert.schema.errors import UserError

REPO = Path(__file__).resolve().parents[2]


def test_what_waits_for_a_dead_ray_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_ray, "EVERY", 0.01)
    monkeypatch.setattr(lost_ray, "_how_to_look", lambda: lambda: True)
    ended: list[str] = []
    with pytest.raises(UserError, match="Ray died"), lost_ray.watched(lambda: ended.append("shutdown")):
        lost_ray.check(within=60)
    assert ended == ["shutdown"]
    lost_ray.check()  # the next Ray lives


def test_an_error_of_a_dying_ray_waits_for_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def is_dead() -> bool:
        looked.set()
        time.sleep(0.1)
        return True

    monkeypatch.setattr(lost_ray, "_how_to_look", lambda: is_dead)
    with pytest.raises(UserError, match="Ray died"), lost_ray.watched(lambda: None):
        looked.wait(60)
        raise RayError("the worker can't reach its raylet")


def test_an_error_of_a_ray_that_lives_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_ray, "EVERY", 0.01)
    monkeypatch.setattr(lost_ray, "_how_to_look", lambda: lambda: False)
    ended: list[str] = []
    with pytest.raises(RayError, match="a lost object"), lost_ray.watched(lambda: ended.append("shutdown")):
        raise RayError("a lost object")
    assert ended == ["shutdown"]


@pytest.mark.parametrize(("body", "told"), [("pass", False), ("os._exit(0)", True), ("sys.exit(0)", False)])
def test_only_a_process_that_ends_without_an_exception_is_reported(body: str, told: bool) -> None:
    code = f"import os, sys\nfrom pipelines import lost_ray\nwith lost_ray.report_sudden_exit():\n    {body}"
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"error: {lost_ray.ENDED}\n" if told else "")


def test_a_start_that_takes_too_long_is_ended_and_reported() -> None:
    code = (
        "import threading\nfrom pipelines import lost_ray\nwith lost_ray.report_sudden_exit():\n"
        "    with lost_ray.starting():\n        pass\n"
        "    with lost_ray.starting(seconds=1):\n        threading.Event().wait()"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (-signal.SIGALRM, f"error: {lost_ray.ENDED}\n")
