"""One attempt at a run, without Ray: requests reach its workers, its log is shown, its failure is raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train.torch
from waiting import wait_for

from pipelines.training import restart
from pipelines.training.driven_run import DrivenRun
from ubert.training.logs import log

Attempt = Callable[..., bool]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run, with a row of an earlier attempt in its log."""
    run = tmp_path / "tiny"
    (run / "logs").mkdir(parents=True)
    write_row(run, 1)
    return run


@pytest.fixture
def settings() -> dict[str, Any]:
    """What Ray Train was given."""
    return {}


@pytest.fixture
def attempt(run: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """Make an attempt in which a function does what Ray Train's workers would do."""

    def attempted(
        train: Callable[[], object],
        stop_requested: Callable[[], bool] = lambda: False,
        can_grow: Callable[[], bool] = lambda: False,
        leaves: bool = False,
        kind: Any = "CPU",
    ) -> bool:
        def trainer(work: object, **given: Any) -> SimpleNamespace:
            settings.update(given)
            return SimpleNamespace(fit=train)

        monkeypatch.setattr(ray.train.torch, "TorchTrainer", trainer)
        monkeypatch.setattr(restart, "POLL", 0.01)
        return restart.fit({"seed": 0}, DrivenRun(run), 2, kind, stop_requested, can_grow, leaves)

    return attempted


def write_row(run: Path, step: int) -> None:
    row = log.Row(step, 9, "structure", 0.5, 0.1, 1.0, 10, 10.0, 1.0)
    with (run / log.JSONL).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row._asdict()) + "\n")


def test_workers_have_the_processors_that_were_asked_for(attempt: Attempt, settings: dict[str, Any]) -> None:
    for kind, gpus in (("CPU", False), ("GPU", True)):
        assert attempt(lambda: None, kind=kind) is False
        assert (settings["scaling_config"].num_workers, settings["scaling_config"].use_gpu) == (2, gpus)
        assert settings["train_loop_config"] == {"seed": 0}


def test_a_request_to_stop_reaches_the_workers(run: Path, attempt: Attempt) -> None:
    assert attempt(lambda: wait_for((run / "stop").exists), stop_requested=lambda: True) is False
    assert (run / "stop").exists() and not (run / "pause").exists()


def test_a_run_pauses_to_grow_only_after_a_step_of_its_own(run: Path, attempt: Attempt) -> None:
    """Before, the processors of workers that start still count as free."""
    polls: list[int] = []

    def train() -> None:
        wait_for(lambda: len(polls) > 5)
        assert not (run / "pause").exists()
        write_row(run, 2)
        wait_for((run / "pause").exists)

    def stop_requested() -> bool:
        polls.append(1)
        return (run / "pause").exists()  # also then it is a pause

    assert attempt(train, stop_requested, can_grow=lambda: True) is True
    assert not (run / "pause").exists() and not (run / "stop").exists()


def test_workers_that_still_start_may_be_left_and_others_are_waited_for(run: Path, attempt: Attempt) -> None:
    returned, trains, polls, waited_for = Event(), Event(), list[int](), list[bool]()

    def stop_requested() -> bool:
        polls.append(1)
        return trains.is_set()

    assert attempt(returned.wait, stop_requested=lambda: True, leaves=True) is False
    returned.set()
    returned = Event()
    (run / "stop").unlink()

    def train() -> None:
        write_row(run, 2)
        before = len(polls)
        wait_for(lambda: len(polls) > before + 2)  # the row has been read
        trains.set()
        wait_for((run / "stop").exists)
        before = len(polls)
        wait_for(lambda: len(polls) > before + 2 or returned.is_set())
        waited_for.append(not returned.is_set())

    assert attempt(train, stop_requested, leaves=True) is False
    returned.set()
    assert waited_for == [True]


def test_all_rows_of_an_attempt_are_shown_once(
    run: Path, attempt: Attempt, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt(lambda: [write_row(run, step) for step in (2, 9)])
    shown = [line.partition("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["step 2/9", "step 9/9"]


def test_the_failure_of_an_attempt_is_raised(attempt: Attempt) -> None:
    def train() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attempt(train)
