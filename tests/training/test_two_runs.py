"""Two processes that train one run: the second is refused at once, and does not disturb the first."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import yaml
from tiny_run import make_encoder, make_recipe, write_recipe
from waiting import HANGS
from warm import Command

from ubert.schema.errors import UserError
from ubert.training import run_directory


def pretrain(root: Path) -> tuple[int | None, str]:
    """Run `ubert pretrain tiny`, as a user does; return its exit code and its errors."""
    recipe = write_recipe(make_recipe(make_encoder(root / "encoder")), root / "tiny.yaml")
    (root / "specs/mixtures").mkdir(parents=True)
    mixture = {"name": "tiny", "sources": [{"corpus": "absent"}]}
    (root / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(mixture), encoding="utf-8")
    folders = ("--root", str(root), "--specs", str(root / "specs"))
    command = Command("pipelines.cli", "pretrain", str(recipe), *folders)
    _, said = command.communicate(timeout=HANGS)
    return command.returncode, said


def test_a_second_pretrain_is_refused_before_it_looks_at_anything_else(tmp_path: Path) -> None:
    """It would say that its mixture cannot be drawn if it began with that, and Ray would start after it."""
    run = tmp_path / "runs/tiny"
    with run_directory.driving(run):
        (run / run_directory.STOP).touch()
        code, said = pretrain(tmp_path)
        assert (run / run_directory.STOP).exists(), "which the first run was asked by"
    assert code == 1
    assert "another process is training this run; wait for it, or train under another name" in said
    assert "starting" not in said


def test_a_stop_request_of_a_dead_run_is_ignored(tmp_path: Path) -> None:
    (tmp_path / run_directory.STOP).touch()
    with run_directory.driving(tmp_path):
        assert not (tmp_path / run_directory.STOP).exists()
        with pytest.raises(UserError, match="another process"), run_directory.driving(tmp_path):
            pass
        with run_directory.locked(tmp_path):  # its own workers may write
            pass


@pytest.mark.parametrize("request_of", run_directory.REQUESTS)
def test_any_request_to_stop_is_heard_and_cleared_by_the_next_driver(tmp_path: Path, request_of: str) -> None:
    with run_directory.stopping(tmp_path) as asked:
        assert not asked()
        (tmp_path / request_of).touch()
        assert asked()
    with run_directory.driving(tmp_path):
        assert not (tmp_path / request_of).exists()


def test_the_first_signal_asks_to_stop_and_the_second_has_its_usual_effect(tmp_path: Path) -> None:
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in signals]
    for number, other in (signals, signals[::-1]):
        with run_directory.stopping(tmp_path) as asked:
            assert signal.getsignal(number) not in (*before, signal.SIG_DFL)
            signal.raise_signal(number)
            assert asked()
            assert (signal.getsignal(number), signal.getsignal(other) in before) == (signal.SIG_DFL, False)
        assert [signal.getsignal(each) for each in signals] == before


def test_a_stop_request_survives_the_start_of_the_workers(tmp_path: Path) -> None:
    with run_directory.driving(tmp_path):
        (tmp_path / run_directory.STOP).touch()
        with run_directory.locked(tmp_path), run_directory.stopping(tmp_path) as asked:
            assert asked()
