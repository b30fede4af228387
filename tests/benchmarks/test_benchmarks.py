"""Every benchmark can be started, and prints only JSON lines."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_finds_what_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {path.stem for path in BENCHMARKS.glob("*.py")} - {"learning_gliner"}
    assert "ingest" in names  # the other one imports gliner, which the project doesn't install
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    try:
        for name in sorted(names):
            importlib.import_module(name)
    finally:
        for name in names - before:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_that_reports_cases_prints_only_json_lines(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    if any(ast.unparse(call.func) == "report" for call in calls):
        printed = [ast.unparse(call) for call in calls if ast.unparse(call.func) == "print"]
        others = [
            call for call in printed if not call.startswith("print(json.dumps(") and "sys.stderr" not in call
        ]
        assert not others, "progress and notes belong to the error stream"
