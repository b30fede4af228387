"""Commands read and print UTF-8, also in a locale with another encoding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_a_command_prints_is_utf_8(tmp_path: Path, encoding: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(REPO), "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}

    def printed(*options: str) -> str:
        query = "SELECT '日本' AS text"
        command = [sys.executable, "-m", "pipelines.cli", "sql", query, "--root", str(tmp_path), *options]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode()

    assert json.loads(printed("--json")) == [{"text": "日本"}]
    assert "─" in printed()
