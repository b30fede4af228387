"""Options that contradict each other, or that would be ignored, are refused."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.commands import app
from pipelines.cli.shared import with_plain_errors


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("predict some-run --address ray://head:10001 text", "--address needs --workers"),
        ("predict some-run --task ner --question who? text", "--question is for --task qa"),
        ("predict some-run --task tagging text", "'tagging' is not one of 'classification'"),
        ("mix first-mixture --explain --json", "--explain prints SQL"),
        ("stats --html page.html --json", "not both"),
        ("jobs pretrain-4f2a91 --json", "a job's log is text"),
        ("probe some-run --corpora trec --keep snips", "--keep needs --replay"),
        ("probe some-run --corpora trec --share 0.3", "--share needs --replay"),
        ("suspects trec --run trec --recipe trec", "not both"),
        ("tune first-mixture --out found.md", "expected a .yaml file"),
    ],
)
def test_options_that_would_be_ignored_are_refused(command: str, reason: str) -> None:
    result = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert reason in " ".join(result.output.replace("│", " ").split())


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CliRunner().invoke(app, ["--version"]).stdout == f"ubert {project['version']}\n"


def broken() -> None:
    raise KeyError("rows\n[bold]")


def test_a_bug_is_one_line_that_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ubert", "stats"])
    with pytest.raises(SystemExit) as end:
        with_plain_errors(broken)
    said = capsys.readouterr().err
    assert end.value.code == 1
    assert said.startswith("internal error: KeyError: 'rows\\n[bold]'; this is a bug") and said.count("\n") == 1
    monkeypatch.setattr(sys, "argv", ["ubert", "--debug", "stats"])
    with pytest.raises(KeyError):
        with_plain_errors(broken)
