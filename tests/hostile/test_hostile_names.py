"""Every command with every hostile name: exit code 1 or 2, one clear error, no traceback, no file written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import cli
from pipelines.cli.commands import app

NAMES = {
    "above": "../../../tmp",
    "below": "a/../../../etc",
    "absolute": "/etc",
    "device": "/dev/null",
    "here": ".",
    "up": "..",
    "hidden": ".lock",
    "long": "x" * 300,
    "very long": "x" * 5000,
    "space": " ",
    "line": "a\nb",
    "tab": "a\tb",
    "escape": "\x1b[31mred",
    "bidi": "\u202etxt",
    "C1": "a\x9bb",
    "bytes": "\udcff\udcfe",
    "quote": "'; DROP VIEW spans; --",
    "glob": "*",
    "home": "~root",
    "shell": "$(touch x)",
    "markup": "[bold]x[/bold] [link=file:///etc]",
    "format": "{0} %s %n",
    "unknown": "absent",
    "capitals": "ABSENT",
    "unicode": "naïve🦊",
    "URL": "https://example.org/x",
    "yaml": "absent.yaml",
    "yaml above": "../../etc/absent.yml",
}
COMMANDS: dict[str, list[str]] = {  # with NAME where a name goes
    "ingest": ["ingest", "NAME"],
    "fetch": ["fetch", "NAME"],
    "draft": ["draft", "NAME", "absent.csv"],
    "draft name": ["draft", "absent.csv", "--name", "NAME"],
    "draft check": ["draft", "--check", "NAME"],
    "try": ["try", "NAME"],
    "rejects": ["rejects", "NAME"],
    "duplicates": ["duplicates", "NAME"],
    "contamination": ["contamination", "NAME"],
    "contamination against": ["contamination", "--against", "NAME"],
    "mix": ["mix", "NAME"],
    "mix explain": ["mix", "NAME", "--explain"],
    "shard": ["shard", "NAME"],
    "pretrain": ["pretrain", "NAME"],
    "evaluate": ["evaluate", "NAME", "--corpus", "absent"],
    "evaluate corpus": ["evaluate", "absent", "--corpus", "NAME"],
    "threshold": ["threshold", "NAME", "--corpus", "absent"],
    "predict": ["predict", "NAME", "Ada", "--categories", "person"],
    "predict input": ["predict", "absent", "--input", "NAME", "--categories", "person"],
    "generate": ["generate", "NAME", "Ada"],
    "convert": ["convert", "NAME", "out"],
    "serve": ["serve", "NAME"],
    "browse": ["browse", "NAME"],
    "card": ["card", "NAME"],
    "pack": ["pack", "NAME", "out"],
    "export": ["export", "NAME", "out.onnx"],
    "peek corpus": ["peek", "corpus", "NAME"],
    "peek mixture": ["peek", "mixture", "NAME"],
    "peek shard": ["peek", "shard", "NAME"],
    "peek batch": ["peek", "batch", "NAME"],
    "probe": ["probe", "NAME", "--corpora", "absent"],
    "probe corpora": ["probe", "absent", "--corpora", "NAME"],
    "suspects": ["suspects", "NAME"],
    "suspects recipe": ["suspects", "absent", "--recipe", "NAME"],
    "affinity": ["affinity", "NAME"],
    "tune": ["tune", "NAME"],
    "submit": ["submit", "NAME"],
    "jobs": ["jobs", "NAME", "--address", "http://127.0.0.1:9"],
}
WITHOUT_NAMES = {"samples", "stats", "corpora", "sql"}  # statements are in test_hostile_sql.py


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with empty specs, from which nothing can be reached over a network."""
    for folder in ("work", "work/specs/datasets", "work/specs/mixtures", "work/specs/recipes"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("UBERT_SPECS", str(tmp_path / "work/specs"))
    monkeypatch.setenv("UBERT_ROOT", str(tmp_path / "work/store"))
    monkeypatch.setenv("UBERT_DATA", str(tmp_path / "work/raw"))
    yield tmp_path


def written(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


def test_every_command_is_here() -> None:
    known = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback}
    assert known - WITHOUT_NAMES == {words[0] for words in COMMANDS.values()} - WITHOUT_NAMES


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_name_gives_one_clear_error_and_writes_nothing(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(place)
    for kind, name in NAMES.items():
        arguments = [name if word == "NAME" else word for word in COMMANDS[command]]
        monkeypatch.setattr(sys, "argv", ["ubert", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        assert end.value.code in (1, 2), (kind, said)
        assert "Traceback" not in said.err + said.out and "internal error" not in said.err, (kind, said.err)
        assert end.value.code == 2 or len(said.err.strip().splitlines()) <= 2, (kind, said.err)
        assert not {"\x1b", "\x9b", "\u202e"} & {*said.err, *said.out}, (kind, said.err)
        assert written(place) == before, kind
