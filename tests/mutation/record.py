"""Record which lines each test runs, and its processor time: `python tests/mutation/record.py [TEST FILE...]`.

Coverage keeps the lines, with the tests as contexts. What a fixture runs counts for its whole test file,
because a fixture may serve several tests. Given files are added to an earlier recording.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

FOLDER = Path("build/mutation")
LINES, SECONDS = FOLDER / "lines", FOLDER / "seconds.json"
TESTS = (
    *("cli", "evaluation", "hostile", "inference", "ingest", "loader", "mapping", "mixtures", "model"),
    *("objectives", "schema", "shards", "sources", "store", "structure", "training"),
)


class Recorder:
    """A plugin of pytest that tells coverage whose lines follow, and keeps the seconds of the tests that pass."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.began = 0.0

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        self.coverage.switch_context(file_of(collector.nodeid))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(file_of(nodeid))
        self.began = processor_seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        try:
            result = yield
        finally:
            self.coverage.switch_context(file_of(item.nodeid))
        self.seconds[item.nodeid] = processor_seconds() - self.began
        return result


def processor_seconds() -> float:
    """Return the processor time of this process and of those it has waited for."""
    return sum(os.times()[:4])


def file_of(test: str) -> str:
    return test.partition("::")[0]


def main(files: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = FOLDER / "lines.part"
    part.unlink(missing_ok=True)
    coverage = Coverage(data_file=str(part), source=["ubert", "pipelines"], config_file=False)
    coverage.set_option("run:relative_files", True)
    recorder = Recorder(coverage)
    coverage.start()
    tests = files or [f"tests/{name}" for name in TESTS]
    code = pytest.main([*tests, "-m", "not slow and not ray", "-p", "no:cacheprovider"], plugins=[recorder])
    coverage.stop()
    coverage.save()
    known = json.loads(SECONDS.read_bytes()) if files and SECONDS.exists() else {}
    SECONDS.write_text(json.dumps(known | recorder.seconds, indent=0), encoding="utf-8")
    if files and LINES.exists():
        whole = Coverage(data_file=str(LINES), config_file=False)
        whole.load()  # else what was recorded before is lost
        whole.combine([str(part)], keep=False)
        whole.save()
    else:
        part.replace(LINES)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
