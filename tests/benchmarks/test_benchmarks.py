"""Every benchmark can be started: what it measures has not gone away under it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_finds_what_it_imports() -> None:
    names = {path.stem for path in BENCHMARKS.glob("*.py")}
    names -= {"few_shot", "learning_gliner"}  # they import gliner, which the project doesn't install
    assert "ingest" in names
    imported = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(sorted(names))}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)])},
        capture_output=True,
        text=True,
    )
    assert imported.returncode == 0, imported.stderr
