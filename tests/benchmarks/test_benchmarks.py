"""Every benchmark can be started: all that it imports exists."""

from __future__ import annotations

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
