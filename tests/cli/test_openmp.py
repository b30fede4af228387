"""How OpenMP's threads wait: commands set it, unless the user has set it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
READ = (
    "import atexit, os; from pipelines.cli import main; "
    "atexit.register(lambda: print(*map(os.environ.get, ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')))); main()"
)


@pytest.mark.parametrize(
    ("users", "expected"),
    [({}, "1000 passive"), ({"OMP_WAIT_POLICY": "active"}, "None active"), ({"GOMP_SPINCOUNT": "7"}, "7 None")],
)
def test_a_command_keeps_what_the_user_has_set(users: dict[str, str], expected: str) -> None:
    bare = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    command = [sys.executable, "-c", READ, "--help"]
    environment = bare | {"PYTHONPATH": str(REPO)} | users
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == expected
