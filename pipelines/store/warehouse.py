"""Read-only SQL views over the store, with no access to anything else.

The data is registered first. Then the connection is locked, so that no SQL can open a file or change a setting. In
addition, only a single SELECT is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.audit.evidence import (
    CONTAMINATION,
    CONTRADICTIONS,
    DROPPED,
    DUPLICATES,
    LEAKS,
    SUSPECTS,
    evidence_files,
)
from pipelines.store.storage import MAKE_AGAIN, StorePath, arrow, parquet, persistent
from pipelines.store.store import Store, read_json
from ubert.schema import dynamics
from ubert.schema.errors import UserError
from ubert.schema.manifest import FILES, AuditManifest, CorpusManifest, MixtureManifest, read_manifest
from ubert.schema.record import FILE_SCHEMA, MISMATCH_SCHEMA, RECORD_SCHEMA, REJECT_SCHEMA

SECONDS = 600.0  # a longer query is interrupted
AGAIN = 0.1  # seconds between interrupts
MEMORY = "50%"  # limit of a query's memory, as a share of the machine's
SPILLING = "1GiB"  # memory limit of a connection that may spill to disk


def _columns(kind: pa.DataType, *names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, kind)


_words, _counts, _floats = (partial(_columns, kind) for kind in (pa.string(), pa.int64(), pa.float64()))
_TABLES = {
    "corpora": pa.schema(
        _words("corpus", "split", "task", "language", "licence", "licence_class", "fingerprint")
        | _counts("source_records", "kept", "rejected")
    ),
    "mixtures": pa.schema(
        _words("mixture", "fingerprint", "corpus", "split")
        | _counts("available", "dropped_leaks", "dropped_duplicates", "dropped_held_out", "dropped_suspects")
        | _counts("records", "draws")
        | _floats("epochs")
        | _counts("characters", "tokens")
    ),
    "audits": pa.schema(_words("audit", "fingerprint", "counted") | _counts("number")),
    "probes": pa.schema(
        _words("name", "weights", "corpus", "version", "task", "test", "shots")
        | _counts("seed", "records", "steps", "measured")
        | _words("metric")
        | _floats("value", "seconds")
        | _words("created", "replay")
        | _floats("share")
        | {"kept": pa.list_(pa.struct(_words("corpus", "split", "metric") | _floats("value")))}
    ),
    "affinity": pa.schema(
        _words("mixture", "fingerprint", "corpus", "added")
        | _counts("cluster", "steps", "seed")
        | _floats("loss_alone", "loss_with", "change")
    ),
    "shards": pa.schema(
        _words("mixture", "fingerprint", "encoder", "path") | _counts("max_tokens", "rows", "tokens")
    ),
}

_EVIDENCE = {
    "duplicates": DUPLICATES,
    "leaks": LEAKS,
    "contradictions": CONTRADICTIONS,
    "contamination": CONTAMINATION,
    "suspects": SUSPECTS,
    "dropped": DROPPED,
}

VIEWS = (
    *("records", "categories", "labels", "spans", "relations", "events", "arguments", "rejects", "mismatches"),
    *("files", *_TABLES, *_EVIDENCE, "dynamics", "cartography"),
)

# Words of errors of several types, raised if an allocation fails that DuckDB does not count
_FAILED_ALLOCATION = ("bad_alloc", "Allocation failure")
# Words of DuckDB's errors if Arrow finds a file of the store damaged or missing
_NOT_INTACT = ("Invalid: Could not open Parquet input source", "[errno 2] No such file")

_WHOLE = "[!.]*.json"  # results; a partial file's name begins with a dot

_NESTED = {"list", "array", "struct", "tuple", "map", "union"}
_PLAIN = {
    *("null", "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "float", "double", "decimal"),
    *("varchar", "blob", "uuid", "enum"),
}

# A pass of a record covers one copy of all its rows (the windows of a long text, the queries for its events).
_DYNAMICS = """
CREATE VIEW dynamics AS
SELECT run, record_id, epoch, max(step) AS step, sum(loss) AS loss, avg(confidence) AS confidence,
       avg(margin) AS margin, bool_and(margin > 0) AS correct, arg_max(predicted, step) AS predicted
FROM (SELECT *, row_number() OVER (PARTITION BY run, "row", epoch ORDER BY step, loss) AS copy FROM text_passes)
GROUP BY run, record_id, epoch, copy;

CREATE VIEW cartography AS
SELECT run, record_id, avg(confidence) AS confidence, stddev_pop(confidence) AS variability,
       avg(correct::INTEGER) AS correctness, avg(loss) AS loss, count(*) AS passes,
       mode(predicted ORDER BY predicted) AS predicted
FROM dynamics GROUP BY run, record_id;
"""

# Lists of a record become rows. Indices count from 0, as in the record; SQL's lists count from 1.
_VIEWS = """
CREATE MACRO covered(text, pair, span) AS
    substring(if(span.side = 'text', text, pair), span.start + 1, span."end" - span.start);

CREATE VIEW categories AS
SELECT record_id, corpus, split, index, item.name, item.kind, item.head, item.tail, item.event
FROM (SELECT record_id, corpus, split, unnest(categories) AS item,
             generate_subscripts(categories, 1) - 1 AS index FROM records);

CREATE VIEW labels AS
SELECT record_id, corpus, split, categories[label + 1].name AS category
FROM (SELECT record_id, corpus, split, categories, unnest(labels) AS label FROM records);

CREATE VIEW spans AS
SELECT record_id, corpus, split, index, item.start, item."end", categories[item.category + 1].name AS category,
       covered(text, pair, item) AS text, item.side, item."group", item.kb_id
FROM (SELECT record_id, corpus, split, text, pair, categories, unnest(spans) AS item,
             generate_subscripts(spans, 1) - 1 AS index FROM records);

CREATE VIEW relations AS
SELECT record_id, corpus, split, item.head, item.tail, categories[item.category + 1].name AS category,
       covered(text, pair, spans[item.head + 1]) AS head_text,
       covered(text, pair, spans[item.tail + 1]) AS tail_text
FROM (SELECT record_id, corpus, split, text, pair, categories, spans, unnest(relations) AS item FROM records);

CREATE VIEW events AS
SELECT record_id, corpus, split, index, categories[item.category + 1].name AS category,
       covered(text, pair, spans[item.trigger + 1]) AS trigger
FROM (SELECT record_id, corpus, split, text, pair, categories, spans, unnest(events) AS item,
             generate_subscripts(events, 1) - 1 AS index FROM records);

CREATE VIEW arguments AS
SELECT record_id, corpus, split, event, categories[item.role + 1].name AS role,
       covered(text, pair, spans[item.span + 1]) AS text, item.event AS argument_event
FROM (SELECT record_id, corpus, split, text, pair, categories, spans, event, unnest(arguments) AS item
      FROM (SELECT record_id, corpus, split, text, pair, categories, spans,
                   generate_subscripts(events, 1) - 1 AS event, unnest(events).arguments AS arguments
            FROM records));
"""


@contextmanager
def connect(
    root: StorePath,
    corpora: Collection[str] | None = None,
    scratch: Path | None = None,
    *,
    versions: Mapping[str, str] | None = None,
    attempted: bool = False,
    memory: str = MEMORY,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a locked connection with the views over the current state of the store.

    Args:
        corpora: names of the corpora to include; default: all.
        versions: instead, the corpora to include and their fingerprints, so that an ingest changes nothing.
        scratch: a folder to spill to, with a low memory limit; without it, `memory` is the limit.
        attempted: use the result of the last ingest of each of `corpora` even if it was not published.
        memory: DuckDB's memory limit.

    Raises:
        UserError: one of `corpora` is not in the store, or a manifest cannot be read.
    """
    store = Store(root.absolute())

    def newest(name: str) -> tuple[StorePath, CorpusManifest]:
        return (attempted and store.attempt(name)) or store.current("corpora", name)

    def fixed(name: str, version: str) -> tuple[StorePath, CorpusManifest]:
        directory = store.directory("corpora", name, version)
        return directory, read_manifest(CorpusManifest, directory)

    with ThreadPoolExecutor() as pool:  # an object store answers many requests at once
        if versions is not None:
            current = list(pool.map(fixed, versions, versions.values()))
        else:
            current = list(store.currents("corpora").values() if corpora is None else pool.map(newest, corpora))
    mixtures, audits = store.currents("mixtures"), store.currents("audits")
    with duckdb.connect(":memory:") as connection:
        for view, schema, files in (
            ("records", RECORD_SCHEMA, attrgetter("parts")),
            ("rejects", REJECT_SCHEMA, attrgetter("reject_parts")),
            ("mismatches", MISMATCH_SCHEMA, attrgetter("mismatch_parts")),
            ("files", FILE_SCHEMA, lambda manifest: [FILES]),
        ):
            parts = [(m.name, directory / file) for directory, m in current for file in files(m)]
            connection.register(view, _dataset(arrow(store.root)[1], "corpus", parts, schema))
        tables = {
            "corpora": _corpus_rows([manifest for _, manifest in current]),
            "mixtures": _mixture_rows(mixtures),
            "audits": _audit_rows(audits),
            "probes": _probe_rows(store),
            "affinity": _affinity_rows(store),
            "shards": _shard_rows(store),
        }
        for name, rows in tables.items():
            connection.register(name, pa.Table.from_pylist(list(rows), schema=_TABLES[name]))
        for name, evidence in evidence_files(audits, mixtures).items():
            connection.register(name, parquet(evidence, _EVIDENCE[name]))
        connection.register("text_passes", _text_passes(store))
        connection.execute(_VIEWS + _DYNAMICS)
        connection.execute(f"SET memory_limit = '{SPILLING if scratch else memory}'")
        connection.execute("SET temp_directory = ?", [str(scratch or "")])
        connection.execute("SET enable_progress_bar = false")  # commands show their own
        connection.execute("SET TimeZone = 'UTC'")  # the same rows on every machine
        connection.execute("SET enable_external_access = false")  # no files, and no Python variables
        connection.execute("SET lock_configuration = true")
        yield connection


def sql(
    root: StorePath,
    statement: str,
    corpora: Collection[str] | None = None,
    seconds: float = SECONDS,
    *,
    attempted: bool = False,
) -> pa.Table:
    """Return the rows of one SELECT over the views of `connect`.

    Use this only for our own statements. A user's SQL runs in `pipelines.store.sandbox`.

    Raises:
        UserError: the statement is wrong, is not one SELECT, reaches outside the store, or takes too long.
    """

    def rows() -> pa.Table:
        with connect(root, corpora, attempted=attempted) as connection, explained(connection, "SQL", seconds):
            return selected(connection, statement, "SQL").to_arrow_table()

    return persistent(rows)


def selected(connection: duckdb.DuckDBPyConnection, statement: str, what: str) -> duckdb.DuckDBPyRelation:
    """Return the relation of a statement, without reading its rows.

    Raises:
        UserError: it is not one SELECT; the message begins with `what`.
    """
    statements = connection.extract_statements(statement)
    kinds = [_kind(one) for one in statements]
    if kinds != ["SELECT"]:
        raise UserError(
            f"{what}: expected one SELECT, got {', '.join(kinds) or 'nothing'}; the store is read-only"
        )
    return connection.sql(statements[0].query)


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # DuckDB's Python module has no name for this kind of statement
        return statement.query.split(maxsplit=1)[0].upper()


def printable(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Cast columns to text whose values Arrow or Python can't represent in full, such as dates after the year
    9999. 32-bit floats become the shortest number that they stand for: 3.8, not 3.799999952316284."""
    columns = []
    for place, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), 1):
        quoted = name.replace('"', '""')
        cast = "::VARCHAR::DOUBLE" if kind.id == "float" else "" if _is_plain(kind) else "::VARCHAR"
        columns.append(f'#{place}{cast} AS "{quoted}"')
    return relation.project(", ".join(columns))


def _is_plain(kind: Any) -> bool:
    """Return whether Python can represent every value of a DuckDB type."""
    if kind.id in _NESTED:
        return all(_is_plain(inner) for name, inner in kind.children if name != "size")
    return kind.id in _PLAIN


@contextmanager
def explained(connection: duckdb.DuckDBPyConnection, what: str, seconds: float | None = SECONDS) -> Iterator[None]:
    """Interrupt queries that take longer than `seconds`, if there is a limit, and convert SQL errors to a
    `UserError` that begins with `what`."""
    over = Event()

    def interrupt() -> None:
        pause = seconds
        while not over.wait(pause):  # DuckDB forgets an interrupt that comes before a query runs
            connection.interrupt()
            pause = AGAIN

    thread = Thread(target=interrupt, name="interrupt", daemon=True)
    thread.start()
    late = f"{what}: took longer than {seconds or 0:g} seconds; select less, or sample"
    try:
        yield
    except duckdb.InterruptException:
        raise UserError(late) from None
    except OSError as error:  # the files of a view can't be read, or a reader of rows is interrupted
        if "INTERRUPT Error" in str(error):
            raise UserError(late) from None
        raise UserError(f"{what}: the store fails: {error}; run the statement again") from None
    except duckdb.Error as error:
        if any(text in str(error) for text in _FAILED_ALLOCATION):
            raise UserError(f"{what}: out of memory; select less, or sample") from None
        cure = f"the views are {', '.join(VIEWS)}"
        if any(text in str(error) for text in _NOT_INTACT):
            cure = MAKE_AGAIN
        # nobody means a table of DuckDB's own
        said = re.sub(r'Did you mean "pg_\w+"\?', "", str(error))
        raise UserError(f"{what}: {' '.join(said.split())}; {cure}") from None
    finally:
        over.set()
        thread.join()


def _dataset(
    filesystem: Any, column: str, parts: Sequence[tuple[str, StorePath]], schema: pa.Schema
) -> ds.Dataset:
    """Combine parts into one dataset, in which each part has one value of `column`. A query for one value doesn't
    open the parts of others."""
    form = ds.ParquetFileFormat()
    fragments = [form.make_fragment(*arrow(part), ds.field(column) == value) for value, part in parts]
    return ds.FileSystemDataset(fragments, schema, form, filesystem)


def _text_passes(store: Store) -> ds.Dataset:
    """Return the training dynamics of all runs that record them."""
    parts = [(part.parent.parent.name, part) for part in store.dynamics()]
    schema = pa.schema([pa.field("run", pa.string()), *dynamics.SCHEMA])
    return _dataset(arrow(store.root)[1], "run", parts, schema)


def _corpus_rows(corpora: Collection[CorpusManifest]) -> Iterator[dict[str, Any]]:
    for manifest in corpora:
        for counts in manifest.splits:
            yield {
                **manifest.model_dump(include={"task", "language", "licence", "licence_class", "fingerprint"}),
                **counts.model_dump(include={"split", "kept", "rejected"}),
                "corpus": manifest.name,
                "source_records": counts.records,
            }


def _mixture_rows(mixtures: Mapping[str, tuple[StorePath, MixtureManifest]]) -> Iterator[dict[str, Any]]:
    for name, (_, manifest) in mixtures.items():
        for source in manifest.sources:
            yield {**source.model_dump(), "mixture": name, "fingerprint": manifest.fingerprint}


def _audit_rows(audits: Mapping[str, tuple[StorePath, AuditManifest]]) -> Iterator[dict[str, Any]]:
    for name, (_, manifest) in audits.items():
        for counted, number in manifest.counts.items():
            yield {"audit": name, "fingerprint": manifest.fingerprint, "counted": counted, "number": number}


def _probe_rows(store: Store) -> Iterator[dict[str, Any]]:
    """Yield the cells of probes. `shots` becomes text, because it is a number or `all`."""
    for path in sorted((store.root / "probes").glob(_WHOLE), key=str):
        cell = read_json(path)
        replay = cell.get("replay") or {}
        yield {**cell, "shots": str(cell["shots"]), "replay": replay.get("mixture"), "share": replay.get("share")}


def _affinity_rows(store: Store) -> Iterator[dict[str, Any]]:
    for path in sorted((store.root / "affinity").glob(_WHOLE), key=str):
        yield from read_json(path)["rows"]


def _shard_rows(store: Store) -> Iterator[dict[str, Any]]:
    for _, manifest in store.currents("shards").values():
        for shard in manifest.shards:
            yield {**manifest.model_dump(), **shard.model_dump()}
