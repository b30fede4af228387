"""Options that contradict each other, or that would be ignored, are refused."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.commands import app
from pipelines.cli.shared import with_plain_errors
from ubert.schema.errors import UserError


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("predict some-run --address ray://head:10001 text", "--address needs --workers"),
        ("predict some-run --task ner --question who? text", "--question is for --task qa"),
        ("predict some-run --task tagging text", "'tagging' is not one of 'classification'"),
        ("mix first-mixture --explain --json", "--explain prints SQL"),
        ("stats --html page.html --json", "not both"),
        ("sql SELECT --format csv --json", "give --format csv or --json, not both"),
        ("jobs pretrain-4f2a91 --json", "a job's log is text"),
        ("probe some-run --corpora trec --keep snips", "--keep needs --replay"),
        ("probe some-run --corpora trec --share 0.3", "--share needs --replay"),
        ("probe some-run --corpora ,", "expected names of corpora, separated by commas, got ','"),
        ("probe some-run --corpora trec --out curves.nothing", "ends in .svg, .png, .pdf, got curves.nothing"),
        ("probe some-run --corpora trec --out curves", "ends in .svg, .png, .pdf, got curves"),
        ("probe some-run --corpora trec --out missing/curves.svg", "there is no folder missing; create it"),
        ("affinity first-mixture --out map.txt", "ends in .svg, .png, .pdf, got map.txt"),
        ("suspects trec --run trec --recipe trec", "not both"),
        ("predict some-run --categories a --input in.jsonl --output out.jsonl --pair b", "each row has its own"),
        ("predict some-run --categories a --input in.jsonl --output out.jsonl text", "not both"),
        ("tune first-mixture --out found.md", "expected a .yaml file"),
        ("tune first-mixture --out missing/found.yaml", "there is no folder missing; create it"),
        ("evaluate some-run --corpus trec --json missing/found.json", "there is no folder missing; create it"),
    ],
)
def test_options_that_would_be_ignored_are_refused(command: str, reason: str) -> None:
    result = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert reason in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ("ingest.ingest.ingest", "ingest trec"),
        ("mirror.fetch.fetch", "fetch trec"),
        ("shards.shard.shard", "shard first-mixture"),
        ("models.predict.predict_file", "predict universal-small --categories a --input a.csv --output a.jsonl"),
    ],
)
def test_an_interrupted_job_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, job: str, command: str) -> None:
    def stopped(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"pipelines.{job}", stopped)
    result = CliRunner().invoke(app, command.split())
    assert (result.exit_code, result.stderr) == (130, "interrupted; run the same command again to continue\n")


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CliRunner().invoke(app, ["--version"]).stdout == f"ubert {project['version']}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no entity type given; task ner needs at least one, such as --categories person,place"),
        (
            ["--task", "relation", "--categories", "person"],
            'no relation given; task relation needs at least one, such as --relation "lives in:person:place"',
        ),
        (["--task", "event"], 'task event needs at least one, such as --event "attack:attacker,target"'),
        (["--task", "qa"], 'no question given; task qa needs at least one, such as --question "Who wrote it?"'),
        (["--task", "choice"], "no category given; task choice needs at least one, such as --categories"),
        (["--task", "seq2seq"], "some-run: neither a folder nor a run of the store 'store'; its runs: none"),
    ],
)
def test_predict_names_the_option_that_is_missing(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = CliRunner().invoke(app, ["predict", "some-run", *arguments, "text"]).exception
    assert isinstance(problem, UserError) and said in str(problem)


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
