"""Commands that run in forks of a process that has imported torch, so that each starts seconds earlier."""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["ubert.model.tokenizer", "ubert.training.loop"])


class Command:
    """`python -m MODULE ARGUMENTS`, with those methods of `subprocess.Popen` that tests use.

    Args:
        largest_file: maximum bytes of a file, to simulate a full disk.
        changed: environment variables, in addition to those of this process.
    """

    def __init__(self, module: str, *arguments: str, largest_file: int | None = None, **changed: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._said = [Path(self._folder.name, name) for name in ("out", "err")]
        environment = {**os.environ, **changed}
        self._process = FORKS.Process(target=_run, args=(module, arguments, self._said, environment, largest_file))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return what was written to stdout and stderr."""
        self.wait(timeout)
        out, err = (path.read_text(encoding="utf-8") for path in self._said)
        return out, err


def _run(
    module: str,
    arguments: tuple[str, ...],
    said: list[Path],
    environment: dict[str, str],
    largest_file: int | None,
) -> None:
    for number, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), number)
    os.environ.clear()
    os.environ.update(environment)
    if largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
