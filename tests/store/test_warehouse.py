"""SQL sees the store's views, and can neither write nor read anything else."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from msgspec.structs import replace
from worlds import World, corpus, put_corpus

from pipelines import cli
from pipelines.audit.evidence import audit_of_all
from pipelines.report.render import table
from pipelines.report.stats import overview, rejected
from pipelines.store.sandbox import sandbox
from pipelines.store.store import TEMPORARY, Store
from pipelines.store.warehouse import connect, explained, printable, sql
from ubert.schema.errors import UserError
from ubert.schema.record import Argument, Category, Event, Record, Relation, Source, Span

Command = Callable[..., tuple[int, str]]  # exit code and output of `ubert ...`
VIEWS = {
    "records": {"record_id", "key", "corpus", "split", "language", "task", "text", "pair", "labels", "source"},
    "categories": {"record_id", "corpus", "split", "index", "name", "kind", "head", "tail", "event"},
    "labels": {"record_id", "corpus", "split", "category"},
    "spans": {"record_id", "corpus", "split", "start", "end", "category", "text", "kb_id"},
    "relations": {"record_id", "corpus", "split", "category", "head", "tail", "head_text", "tail_text"},
    "events": {"record_id", "corpus", "split", "index", "category", "trigger"},
    "arguments": {"record_id", "corpus", "split", "event", "role", "text", "argument_event"},
    "rejects": {"corpus", "split", "path", "line", "reason", "detail", "raw"},
    "files": {"corpus", "split", "labelled", "path", "blake3", "bytes", "records", "kept", "rejected"},
    "corpora": {
        "corpus", "split", "task", "language", "licence", "licence_class", "fingerprint", "source_records", "kept",
        "rejected",
    },
    "mixtures": {
        "mixture", "fingerprint", "corpus", "split", "available", "dropped_leaks", "dropped_duplicates", "records",
        "draws",
    },
    "audits": {"audit", "fingerprint", "counted", "number"},
    "duplicates": {"record_id", "corpus", "split", "keeper_id", "keeper_corpus", "kind", "similarity"},
    "contradictions": {"record_id", "keeper_id", "task", "differs", "annotation", "keeper_annotation"},
    "leaks": {"record_id", "evaluation_id", "evaluation_corpus", "evaluation_split", "kind", "similarity"},
    "contamination": {"record_id", "evaluation_id", "ngrams", "share", "records", "ngram"},
    "dropped": {"mixture", "record_id", "corpus", "split", "kept_id", "reason", "kind"},
    "shards": {"mixture", "fingerprint", "encoder", "max_tokens", "path", "rows", "tokens"},
}  # fmt: skip

DEAL = Record(
    record_id="news/train/a.txt",
    corpus="news",
    split="train",
    language="en",
    task="event",
    instruction="events",
    text="🦊 Ann bought Örsted.",
    pair="Ann did.",
    source=Source("a.txt", 1, "00"),
    categories=(
        Category("person", "entity"),
        Category("firm", "entity"),
        Category("owner of", "relation", head="person", tail="firm"),
        Category("purchase", "event"),
        Category("buyer", "role", event="purchase"),
        Category("cause", "role", event="purchase"),
    ),
    spans=[Span(2, 5, 0), Span(6, 12, 3), Span(13, 19, 1), Span(0, 3, 0, side="pair")],
    relations=[Relation(0, 2, 2)],
    events=[Event(3, 1, [Argument(4, span=0), Argument(5, event=1)]), Event(3, None, [])],
)
PLAIN = Record(
    record_id="news/test/a.txt",
    corpus="news",
    split="test",
    language="en",
    task="event",
    instruction="events",
    text="Nothing happened.",
    source=Source("a.txt", 1, "00"),
    categories=(Category("quiet", "label"), Category("loud", "label")),
    labels=[1],
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put_corpus(tmp_path / "store", "news", [DEAL, PLAIN], rejected=[("train", "bad row"), ("train", "bad row")])
    return tmp_path / "store"


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_there_in_an_empty_store_and_in_a_full_one(view: str, root: Path, tmp_path: Path) -> None:
    empty = sql(tmp_path / "none", f"SELECT * FROM {view}")
    full = sql(root, f"SELECT * FROM {view}")
    assert VIEWS[view] <= set(empty.schema.names)
    assert empty.schema == full.schema
    assert len(empty) == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (
            'SELECT start, "end", category, text, side FROM spans ORDER BY index',
            [
                (2, 5, "person", "Ann", "text"),
                (6, 12, "purchase", "bought", "text"),
                (13, 19, "firm", "Örsted", "text"),
                (0, 3, "person", "Ann", "pair"),
            ],
        ),
        (
            "SELECT category, head, tail, head_text, tail_text FROM relations",
            [("owner of", 0, 2, "Ann", "Örsted")],
        ),
        (
            "SELECT index, category, trigger FROM events ORDER BY index",
            [(0, "purchase", "bought"), (1, "purchase", None)],
        ),
        (
            "SELECT event, role, text, argument_event FROM arguments",
            [(0, "buyer", "Ann", None), (0, "cause", None, 1)],
        ),
        ("SELECT split, category FROM labels", [("test", "loud")]),
        ("SELECT index, name, kind FROM categories WHERE head = 'person'", [(2, "owner of", "relation")]),
        (
            "SELECT split, source_records, kept, rejected FROM corpora ORDER BY split",
            [("test", 1, 1, 0), ("train", 3, 1, 2)],
        ),
        (
            "SELECT split, path, kept, rejected FROM files ORDER BY split",
            [("test", "source", 1, 0), ("train", "source", 1, 2)],
        ),
        ("SELECT split, reason, count(*) FROM rejects GROUP BY ALL", [("train", "bad row", 2)]),
    ],
)
def test_views_say_what_the_records_hold(statement: str, rows: list[tuple[object, ...]], root: Path) -> None:
    assert [tuple(row.values()) for row in sql(root, statement).to_pylist()] == rows


SECRET = "the-content-of-a-file-outside"
ATTACKS = [
    "COPY records TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT parquet)",
    "COPY records FROM '{secret}'",
    "EXPORT DATABASE '{out}'",
    "IMPORT DATABASE '{out}'",
    "ATTACH '{out}' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL json",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_csv_auto(['{secret}'])",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM parquet_metadata('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('{secret}*')",
    "SELECT * FROM '{secret}'",
    "SELECT (SELECT content FROM read_text('{secret}'))",
    "SELECT * FROM query('COPY records TO ''{out}''')",
    "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "WITH x AS (DELETE FROM records RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO corpora VALUES (1) RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE records SET text = '' RETURNING *) SELECT * FROM x",
    "WITH x AS MATERIALIZED (SELECT * FROM read_text('{secret}')) SELECT * FROM x",
    "EXPLAIN ANALYZE COPY records TO '{out}'",
    "EXPLAIN COPY records TO '{out}'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET temp_directory = '{out}'",
    "SET GLOBAL allowed_directories = ['/']",
    "RESET enable_external_access",
    "SET VARIABLE x = (SELECT content FROM read_text('{secret}'))",
    "PRAGMA enable_external_access",
    "PRAGMA temp_directory='{out}'",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "CREATE TABLE t AS SELECT 1",
    "CREATE VIEW v AS SELECT 1",
    "CREATE SECRET s (TYPE s3)",
    "CREATE OR REPLACE VIEW spans AS SELECT 1",
    "DROP VIEW spans",
    "DELETE FROM records",
    "INSERT INTO records SELECT * FROM records",
    "UPDATE records SET text = ''",
    "ALTER TABLE records RENAME TO r",
    "PREPARE p AS COPY records TO '{out}'",
    "EXECUTE p",
    "BEGIN",
    "USE memory",
    "SELECT 1; COPY records TO '{out}'",
    "SELECT 1; SELECT 2",
    "",
    "-- nothing",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_statement_writes_or_reads_a_file(attack: str, root: Path, tmp_path: Path) -> None:
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text(SECRET)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as error:
        sql(root, attack.format(secret=secret, out=out))
    assert SECRET not in str(error.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if "{out}" in attack or "{secret}" in attack])
def test_the_lock_holds_without_the_check_of_the_statement(attack: str, root: Path, tmp_path: Path) -> None:
    """The second line of defence alone: the statement goes to the locked connection as it is."""
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text(SECRET)
    before = sorted(tmp_path.rglob("*"))
    with connect(root) as connection:
        try:
            rows = connection.execute(attack.format(secret=secret, out=out)).fetchall()
        except duckdb.Error as error:
            rows = [(str(error),)]
    assert SECRET not in str(rows)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "change", ["SET threads = 1", "RESET memory_limit", "SET lock_configuration = false", "SET TimeZone = 'CET'"]
)
def test_no_statement_changes_a_setting(change: str, root: Path) -> None:
    with connect(root) as connection, pytest.raises(duckdb.Error, match="locked"):
        connection.execute(change)


def test_times_are_the_same_in_every_zone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        [row] = sql(root, "SELECT to_timestamp(0)::VARCHAR AS began").to_pylist()
    time.tzset()
    assert row == {"began": "1970-01-01 00:00:00+00"}


def test_python_variables_are_not_tables(root: Path) -> None:
    """DuckDB looks for them where it is called from."""
    hidden = pa.table({"x": [1]})
    with connect(root) as connection, pytest.raises(duckdb.CatalogException, match="hidden does not exist"):
        connection.execute("SELECT * FROM hidden")
    assert duckdb.connect().execute("SELECT count(*) FROM hidden").fetchall() == [(len(hidden),)]


def test_a_wrong_statement_says_what_is_wrong_and_names_the_views(root: Path) -> None:
    with pytest.raises(UserError, match=r'"tokens" not found.*the views are records, categories'):
        sql(root, "SELECT tokens FROM records")
    with pytest.raises(UserError, match=r"settings_ does not exist!; the views are records"):
        sql(root, "SELECT * FROM settings_")
    with pytest.raises(UserError, match=r"expected one SELECT, got COPY"):
        sql(root, "COPY records TO 'x'")


@pytest.mark.parametrize("seconds", [0.2, 0.0])
def test_a_long_query_is_interrupted(root: Path, seconds: float) -> None:
    """With 0 seconds, the first interrupt comes before the query runs."""
    with pytest.raises(UserError, match=f"longer than {seconds:g} seconds"):
        sql(root, "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", seconds=seconds)


def test_rows_that_are_read_for_too_long_are_interrupted_too(root: Path) -> None:
    with (
        connect(root) as connection,
        pytest.raises(UserError, match=r"longer than 0.2 seconds"),
        explained(connection, "SQL", 0.2),
    ):
        for _ in connection.sql("SELECT a.range FROM range(10000000) a, range(100) b").to_arrow_reader():
            pass


def test_a_version_stays_the_same_during_an_ingest(tmp_path: Path) -> None:
    put_corpus(tmp_path, "numbers", corpus("numbers", 5))
    before = Store(tmp_path).current("corpora", "numbers")[1].fingerprint
    put_corpus(tmp_path, "numbers", corpus("numbers", 3))
    put_corpus(tmp_path, "others", corpus("others", 2))
    count = "SELECT corpus, count(*) FROM records GROUP BY ALL"
    with connect(tmp_path, versions={"numbers": before}) as connection:
        assert connection.execute(count).fetchall() == [("numbers", 5)]
    with sandbox(tmp_path, versions={"numbers": before}) as ask:
        assert ask(count, "SQL").to_pylist() == [{"corpus": "numbers", "count_star()": 5}]


def test_a_query_out_of_memory_gives_one_clear_error(root: Path) -> None:
    with (
        connect(root, memory="50MB") as connection,
        pytest.raises(UserError, match="Out of Memory"),
        explained(connection, "SQL"),
    ):
        connection.execute("SELECT list(range) FROM range(100000000)").fetchall()


@pytest.mark.parametrize("said", ["Invalid Error: std::bad_alloc", "Out of Memory Error: Allocation failure"])
def test_an_allocation_that_duckdb_does_not_count_is_out_of_memory_too(root: Path, said: str) -> None:
    with (
        connect(root) as connection,
        pytest.raises(UserError, match=r"^SQL: out of memory; select less, or sample$"),
        explained(connection, "SQL"),
    ):
        raise duckdb.Error(said)


def test_results_of_another_version_are_not_seen(root: Path) -> None:
    for name in ("mixtures/m", "audits/duplicates", "audits/suspects-news", "shards/m"):
        (root / name / "aa").mkdir(parents=True)
        (root / name / "aa/manifest.json").write_text('{"schema_version": 1}')
    for view in ("mixtures", "audits", "shards", "duplicates", "leaks", "suspects", "dropped"):
        assert len(sql(root, f"SELECT * FROM {view}")) == 0
    with pytest.raises(UserError, match="no audit of duplicates yet; run `ubert duplicates`"):
        audit_of_all(Store(root), "duplicates")


def test_some_corpora_alone_can_be_seen(root: Path) -> None:
    put_corpus(root, "other", corpus("other", 3))
    everything = sql(root, "SELECT DISTINCT corpus FROM records ORDER BY corpus")
    assert everything["corpus"].to_pylist() == ["news", "other"]
    assert sql(root, "SELECT DISTINCT corpus FROM records", ["other"])["corpus"].to_pylist() == ["other"]
    with pytest.raises(UserError, match="ubert ingest missing"):
        sql(root, "SELECT 1", ["missing"])


def test_overview_counts_what_is_there(root: Path) -> None:
    tables = {name: table.to_pylist() for name, table in overview(root).items()}
    [row] = tables["records"]
    assert (row["train"], row["validation"], row["test"], row["rejected"]) == (1, None, 1, 2)
    [row] = tables["annotations"]
    assert (row["labels"], row["spans"], row["relations"], row["events"]) == (1, 4, 1, 2)
    [row] = tables["texts"]
    assert (row["shortest"], row["median"], row["longest"], row["repeated"]) == (17, 17, 20, 0)
    [row] = tables["licences"]
    assert (row["licence"], row["corpora"], row["kept"]) == ("CC0-1.0", 1, 2)
    [row] = tables["rejects"]
    assert (row["reason"], row["rows"], row["first"]) == ("bad row", 2, "source:1")


def test_refused_rows_are_shown_by_reason(root: Path) -> None:
    reasons, rows = rejected(root, "news", 1)
    assert reasons["rows"].to_pylist() == [2]
    assert rows["line"].to_pylist() == [1]
    with pytest.raises(UserError, match="ubert ingest nothing"):
        rejected(root, "nothing", 1)


@pytest.fixture
def ubert(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ubert", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().out

    return run


def test_sql_is_printed_as_a_table_as_csv_and_as_json(ubert: Command, root: Path) -> None:
    statement = "SELECT split, count(*) AS n, sum(key) > 0 AS b FROM records GROUP BY split ORDER BY split"
    code, table = ubert("sql", statement, "--root", root)
    assert code == 0
    assert "test" in table
    _, text = ubert("sql", statement, "--root", root, "--format", "csv")
    assert list(csv.reader(io.StringIO(text))) == [
        ["split", "n", "b"],
        ["test", "1", "True"],
        ["train", "1", "True"],
    ]
    _, text = ubert("sql", statement, "--root", root, "--format", "json")
    assert json.loads(text) == [{"split": "test", "n": 1, "b": True}, {"split": "train", "n": 1, "b": True}]
    _, text = ubert(
        "sql",
        "SELECT sum(label) AS n FROM (SELECT unnest(labels) AS label FROM records)",
        "--root",
        root,
        "--format",
        "json",
    )
    assert json.loads(text) == [{"n": 1}]


def test_a_wrong_statement_exits_with_1(ubert: Command, root: Path) -> None:
    assert ubert("sql", "DROP VIEW spans", "--root", root)[0] == 1


@pytest.mark.parametrize("command", [("stats",), ("corpora",), ("rejects", "news")])
def test_tables_of_the_store_fit_a_terminal_of_80_columns(
    command: tuple[str, ...], ubert: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # has 80 columns, and no styles
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    many = [replace(r, corpus="bionlp_st_2013_ge", task="classification") for r in corpus("big", 1000)]
    put_corpus(root, "bionlp_st_2013_ge", many)
    world = World(tmp_path)
    world.spec("bionlp_st_2013_ge", licence="CC-BY-4.0")
    monkeypatch.setenv("UBERT_SPECS", str(world.specs))
    code, text = ubert(*command, "--root", root)
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    first = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert command[0] == "rejects" or "bionlp_st_2013_ge" in first
    assert not {"ge", "n", "ed"} & {*first}, text


def test_a_title_is_not_wrapped_to_a_narrow_table(capsys: pytest.CaptureFixture[str]) -> None:
    title = "bionlp_st_2013_ge/validation: 249 records in 245.1 s [sic]"
    table(pa.table({"metric": ["trigger_f1"], "value": [0.5174]}), title)
    assert capsys.readouterr().out.splitlines()[0] == title


def test_rejects_are_counted_before_they_are_shown_and_do_not_steer_the_terminal(
    ubert: Command, root: Path
) -> None:
    put_corpus(root, "odd", corpus("odd", 1), rejected=[("train", "bad\x1b[31m")] * 5)
    code, text = ubert("rejects", "odd", "--limit", "2", "--root", root)
    assert code == 0
    assert text.count("source:") == 1 + 2  # an example of the reason, then two rows
    assert text.index("reason") < text.index("a detail")
    assert "bad␛[31m" in text
    assert "\x1b" not in text
    put_corpus(root, "clean", corpus("clean", 1))
    assert ubert("rejects", "clean", "--root", root) == (0, "clean: no row was rejected\n")


def test_a_query_for_one_corpus_opens_no_file_of_another(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put_corpus(tmp_path, name, corpus(name, 5))
    [part] = tmp_path.glob("corpora/two/*/part-*")
    part.write_bytes(b"not Parquet")
    assert sql(tmp_path, "SELECT count(*) AS n FROM records WHERE corpus = 'one'").to_pylist() == [{"n": 5}]
    with pytest.raises(UserError, match=rf"'{part}'.*; delete its folder and run its job again$"):
        sql(tmp_path, "SELECT count(*) FROM records WHERE length(text) > 1")
    part.unlink()
    with pytest.raises(UserError, match=rf"'{part}'.*; delete its folder and run its job again$"):
        sql(tmp_path, "SELECT count(*) FROM records WHERE length(text) > 1")


@pytest.mark.parametrize("kind", ["probes", "affinity"])
def test_a_result_that_is_being_written_is_not_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / kind).mkdir()
    (tmp_path / kind / f"{TEMPORARY}0-one.json").touch()
    assert sql(tmp_path, f"SELECT * FROM {kind}").num_rows == 0


def test_a_connection_that_may_spill_has_a_folder_and_little_memory(root: Path, tmp_path: Path) -> None:
    settings = "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    with connect(root, scratch=tmp_path / "it's") as connection:
        assert connection.execute(settings).fetchall() == [("1.0 GiB", str(tmp_path / "it's"))]
    with connect(root, memory="2GiB") as connection:
        assert connection.execute(settings).fetchall() == [("2.0 GiB", "")]


@pytest.mark.parametrize(
    ("value", "shown"), [("3.8", 3.8), ("0.1", 0.1), ("1e-30", 1e-30), ("16777216", 2.0**24), ("NULL", None)]
)
def test_32_bit_floats_become_the_numbers_that_they_stand_for(value: str, shown: float | None, root: Path) -> None:
    with connect(root) as connection:
        [(found,)] = printable(connection.sql(f"SELECT {value}::FLOAT AS a")).fetchall()
        assert found == shown


@pytest.mark.parametrize(
    ("value", "as_text"),
    [
        ("1", False),
        ("DATE '2026-01-02'", True),
        ("[1, 2]", False),
        ("[DATE '2026-01-02']", True),
        ("{'x': 1, 'y': 'a'}", False),
        ("{'x': 1, 'y': TIME '01:02:03'}", True),
        ("[1, 2]::INTEGER[2]", False),
        ("[DATE '2026-01-02']::DATE[1]", True),
        ("1.5::DECIMAL(3, 1)", False),
    ],
)
def test_what_python_cannot_represent_becomes_text(value: str, as_text: bool, root: Path) -> None:
    with connect(root) as connection:
        shown = printable(connection.sql(f'SELECT 0 AS "first", {value} AS "a ""b"""'))
        [(first, found)] = shown.fetchall()
        assert (shown.columns, first, isinstance(found, str)) == (["first", 'a "b"'], 0, as_text)
