"""Run tests on a mutant in a copy of the tree, each time in a forked process that has the libraries loaded."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import pytest

LIBRARIES = ("torch", "transformers", "pyarrow.dataset", "duckdb", "hypothesis", "ray")
LEFT_OUT = {".git", ".venv", "build", "store", ".mypy_cache", ".ruff_cache", ".pytest_cache"}  # at the top
HANGS = 900.0  # seconds, for tests that wait for ever without using a processor


@dataclass(frozen=True)
class Failed:
    """A plugin of pytest that writes the names of what fails into a file."""

    into: Path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.into.write_text(report.nodeid, encoding="utf-8")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.into.write_text(report.nodeid, encoding="utf-8")


class Copy:
    """A copy of the tree to make mutants in."""

    def __init__(self, folder: Path) -> None:
        os.environ |= {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}  # as in conftest.py; read at import
        for name in LIBRARIES:
            importlib.import_module(name)
        self.tree = folder / "tree"
        self.log, self.failed = folder / "log", folder / "failed"
        shutil.copytree(".", self.tree, ignore=lambda folder, _: LEFT_OUT if folder == "." else ())

    def attempt(self, path: str, text: str, tests: list[str], seconds: float) -> str:
        """Run tests on a changed file; return the one that fails, or an empty string."""
        file = self.tree / path
        file.write_text(text, encoding="utf-8")
        try:
            return self.run(tests, seconds)
        finally:
            shutil.copy2(path, file)  # with the time of the original, so that its bytecode stays valid
            Path(cache_from_source(str(file))).unlink(missing_ok=True)

    def run(self, tests: list[str], seconds: float) -> str:
        """Run tests until one fails, within seconds of processor time; return its name, or an empty string."""
        self.failed.write_text("", encoding="utf-8")
        child = multiprocessing.get_context("fork").Process(target=self._child, args=(tests, seconds))
        child.start()
        child.join(HANGS)
        with suppress(ProcessLookupError):  # what the tests have left behind
            os.killpg(child.pid or 0, signal.SIGKILL)
        child.join()
        if child.exitcode == 0:
            return ""
        return self.failed.read_text(encoding="utf-8") or f"exit code {child.exitcode}"

    def _child(self, tests: list[str], seconds: float) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
        os.chdir(self.tree)
        sys.path[:0] = [str(self.tree), str(self.tree / "tests/helpers")]
        os.environ["PYTHONPATH"] = str(self.tree)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        options = ["-x", "-m", "not slow and not ray", "-p", "no:cacheprovider"]
        code = pytest.main([*options, *tests], plugins=[Failed(self.failed)])
        sys.stdout.flush()
        os._exit(int(code))
