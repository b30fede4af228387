"""Hostile statements of `data/hostile_sql.yaml`: each is refused, ended or harmless, as the file states."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import duckdb
import pytest
import yaml
from waiting import HANGS, wait_for
from worlds import corpus, put_corpus

from pipelines.mixtures.mix import mix
from pipelines.mixtures.sql import condition, count_sql, matching
from pipelines.mixtures.where import check
from pipelines.report.render import csv_lines, show, table
from pipelines.store.sandbox import Limits, sandbox, sql
from pipelines.store.warehouse import connect
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture

HOSTILE: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data/hostile_sql.yaml").read_text(encoding="utf-8")
)
SQL, WHERE = HOSTILE["sql"], HOSTILE["where"]
SECRET = "the-content-of-a-file-outside"
SHORT = Limits(seconds=1.0, memory="500MB")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(tmp_path / "store", "news", corpus("news", 30))
    (tmp_path / "secret.csv").write_text(SECRET)
    return tmp_path / "store"


def filled(statement: str, root: Path) -> str:
    """With a file and a place outside the store."""
    for name, path in (("secret", root.parent / "secret.csv"), ("out", root.parent / "out")):
        statement = statement.replace(f"{{{name}}}", str(path))
    return statement


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.parent.rglob("*") if path.is_file()}


def mixture(where: str) -> Mixture:
    return Mixture.model_validate({"name": "m", "sources": [{"corpus": "news", "where": where}]})


def test_there_are_at_least_three_hundred() -> None:
    names = [condition for conditions in WHERE["refused"].values() for condition in conditions]
    groups = [*SQL.values(), names, WHERE["accepted"], WHERE["limit"]]
    assert sum(map(len, groups)) >= 300
    assert all(len(set(group)) == len(group) for group in groups)


def test_hostile_statements_give_one_clear_error_and_touch_nothing(root: Path) -> None:
    """All in one process, which none of them ends."""
    before = files(root)
    with sandbox(root, limits=Limits(60.0, "500MB")) as ask:
        for statement in SQL["refused"]:
            with pytest.raises(UserError) as error:
                print(statement, ask(filled(statement, root), "SQL"))
            assert str(error.value).startswith("SQL: ") and "\n" not in str(error.value), statement
            assert SECRET not in str(error.value) and "Traceback" not in str(error.value), statement
            assert "exit code" not in str(error.value) and "longer than" not in str(error.value), statement
    assert files(root) == before


def test_strange_statements_have_rows_that_every_format_prints(root: Path) -> None:
    with sandbox(root, limits=Limits(60.0, "500MB")) as ask:
        for statement in SQL["rows"]:
            rows = ask(filled(statement, root), "SQL")
            for printer in (table, csv_lines, partial(show, as_json=True, wide=False)):
                with redirect_stdout(io.StringIO()):
                    printer(rows)


def test_some_corpora_alone_can_be_asked_for(root: Path) -> None:
    put_corpus(root, "other", corpus("other", 3))
    count = "SELECT count(*) AS n FROM records"
    assert sql(root, count).to_pylist() == [{"n": 33}]
    with sandbox(root, ["other"]) as ask:
        with pytest.raises(UserError, match=r"^here: "):
            ask("SELECT nothing", "here")
        assert ask(count, "there").to_pylist() == [{"n": 3}]
    with sandbox(root, ["missing"]) as ask, pytest.raises(UserError, match="ubert ingest missing"):
        ask(count, "here")


def test_a_statement_that_comes_after_its_sandbox_is_left_gives_one_clear_error(root: Path) -> None:
    """As from a thread that begins when its client has gone."""
    with sandbox(root) as ask:
        pass
    with pytest.raises(UserError, match=r"^SQL: .*its process was ended"):
        ask("SELECT 1", "SQL")


def ended(statement: str, root: Path) -> str:
    """Return the error about a statement that needs too much. Check that the statement doesn't hang."""
    began = monotonic()
    with pytest.raises(UserError) as error:
        sql(root, statement, limits=SHORT)
    assert monotonic() - began < HANGS, statement
    return str(error.value)


def test_a_statement_that_takes_too_long_is_distinguished_from_one_that_needs_too_much(root: Path) -> None:
    far = "SELECT levenshtein(repeat('a', 2000000), repeat('b', 2000000))"
    assert ended(far, root) == "SQL: took longer than 1 seconds; select less, or sample"


WORDS = ("took longer than 1 seconds", "memory", "Memory", "allocat", "the result has over")


@pytest.mark.parametrize("statement", SQL["limit"][:3])
def test_a_call_of_one_function_ends_with_its_time_or_memory(statement: str, root: Path) -> None:
    said = ended(filled(statement, root), root)
    assert any(word in said for word in WORDS), said


@pytest.mark.slow
def test_statements_that_need_too_much_are_ended(root: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        said = pool.map(
            lambda statement: ended(statement.replace("{{", "{").replace("}}", "}"), root), SQL["limit"]
        )
        for statement, sentence in zip(SQL["limit"], said, strict=True):
            assert any(word in sentence for word in WORDS), (statement, sentence)


def test_a_condition_that_is_no_function_of_the_record_is_refused_by_name(root: Path) -> None:
    before = files(root)
    with connect(root) as connection:
        for name, conditions in WHERE["refused"].items():
            for condition in conditions if name != "where" else ():
                with pytest.raises(UserError, match=f"^m: .*{name}"):
                    check(connection, str(duckdb.SQLExpression(filled(condition, root))), "m")
    assert files(root) == before


def test_what_is_no_condition_is_refused(root: Path) -> None:
    with connect(root) as connection, sandbox(root) as ask:
        for where in WHERE["refused"]["where"]:
            mixed = mixture(filled(where, root))
            with pytest.raises(UserError, match=r"^(mixture m: source news/train: where|m): "):
                check(connection, condition(mixed, mixed.sources[0]), "m")
                ask(count_sql(mixed, mixed.sources[0]), "m")


def test_a_condition_on_the_record_matches_the_same_records_twice(root: Path) -> None:
    with connect(root) as connection, sandbox(root) as ask:
        for where in WHERE["accepted"]:
            mixed = mixture(where)
            check(connection, condition(mixed, mixed.sources[0]), "m")
            matched = f"SELECT record_id {matching(mixed, mixed.sources[0])} ORDER BY ALL"
            assert ask(matched, "m") == ask(matched, "m"), where


def test_a_mixture_checks_its_conditions(root: Path) -> None:
    with pytest.raises(UserError, match=r"^mixture m: source news/train: where: the function query is not among"):
        mix(mixture("query('SELECT random() < 0.5')"), root=root)
    assert mix(mixture("labels[1] = 1"), root=root, dry_run=True).sources[0].available == 15
    assert not (root / "mixtures").exists()


@pytest.mark.slow
@pytest.mark.parametrize("condition", WHERE["limit"])
def test_a_condition_that_needs_too_much_is_ended(condition: str, root: Path) -> None:
    count = f"SELECT count(*) FROM records WHERE {condition}"
    assert any(word in ended(count, root) for word in WORDS)


def test_ctrl_c_ends_a_statement_and_its_process(root: Path) -> None:
    statement = "SELECT levenshtein(repeat('a', 2000000), repeat('b', 2000000))"
    command = [sys.executable, "-m", "pipelines.cli", "sql", statement, "--root", str(root)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    wait_for(lambda: _children(process.pid), process)
    children = _children(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 130 and "Traceback" not in said
    # a process whose parent was interrupted while it started it ends by itself
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
