"""Two processes that train one run: the second is refused at once, and leaves the first alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny_run import make_encoder, make_recipe, write_recipe

from ubert.schema.errors import UserError
from ubert.training import run_directory


def pretrain(root: Path) -> subprocess.CompletedProcess[str]:
    """`ubert pretrain tiny`, as a user starts it."""
    recipe = write_recipe(make_recipe(make_encoder(root / "encoder")), root / "tiny.yaml")
    (root / "specs/mixtures").mkdir(parents=True)
    mixture = {"name": "tiny", "sources": [{"corpus": "absent"}]}
    (root / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(mixture), encoding="utf-8")
    command = [sys.executable, "-m", "pipelines.cli", "pretrain", str(recipe)]
    return subprocess.run(
        [*command, "--root", str(root), "--specs", str(root / "specs")],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_second_pretrain_is_refused_before_it_looks_at_anything_else(tmp_path: Path) -> None:
    """It would say that its mixture cannot be drawn if it began with that, and Ray would start after it."""
    run = tmp_path / "runs/tiny"
    with run_directory.driving(run):
        (run / run_directory.STOP).touch()
        second = pretrain(tmp_path)
        assert (run / run_directory.STOP).exists(), "which the first run was asked by"
    assert second.returncode == 1
    assert "another process is training this run; wait for it, or train under another name" in second.stderr
    assert "starting" not in second.stderr


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
