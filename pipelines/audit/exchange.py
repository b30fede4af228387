"""Spread a search over Ray tasks, which exchange rows through files in the store.

The tasks of a step are numbered. Each works on a group of the corpora's parts, or on a partition, which is a set
of hashes. A task writes its rows of a relation to one file, `<relation>-<number>.parquet`, sorted by the number of
the task that reads them in a later step. That task reads only its own rows, from the files of all tasks. It joins
them in its own DuckDB, which spills to a temporary folder of its machine. Files are written atomically, so a task
can be repeated. Each search has a folder of its own: an object store has no lock that keeps a second one out.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from pipelines.progress import progress
from pipelines.ray_tasks import completed
from pipelines.store.storage import ObjectPath, StorePath, parquet, parquet_file, remove
from pipelines.store.store import TEMPORARY, parquet_writer
from pipelines.store.warehouse import SPILLING
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest

RECORDS = 100_000  # records of a partition
GROUPS = 64  # least number of groups: enough to spread the work, with few files
MAX_PARTITIONS = 512  # most partitions or groups; with more records they get larger
ROWS = 1 << 13  # rows of a row group, which is the least that a task reads
HEAD = "128MiB"  # memory limit of the joins that follow the tasks, in the command's own process
ABANDONED = 86_400.0  # a search that has written nothing for so many seconds while others did was killed
_FOLDER = f"{TEMPORARY}exchange-"


class Exchange(NamedTuple):
    """The folder of the files of one search, and the number of its partitions."""

    folder: StorePath
    partitions: int

    def by(self, column: str) -> str:
        """Return SQL for the number of the partition of a value."""
        return f"hash({column}) % {self.partitions}"

    def groups(self, parts: Sequence[StorePath]) -> list[tuple[list[StorePath]]]:
        """Distribute parts to groups, each of which is the job of one task: as many as there are partitions, but
        at least `GROUPS`. More cost more than they gain, because each partition reads each group's files."""
        count = max(1, min(max(GROUPS, self.partitions), len(parts)))
        return [(list(parts[i::count]),) for i in range(count)]

    def write(
        self, connection: duckdb.DuckDBPyConnection, relation: str, number: int, query: str, reader: str = "0"
    ) -> None:
        """Write the rows of a query as a relation's rows of task `number`. `reader` is SQL for the number of the
        task that reads a row."""
        ordered = f"SELECT ({reader})::USMALLINT AS reader, * FROM ({query}) ORDER BY reader"
        rows = connection.sql(ordered).to_arrow_reader(ROWS)
        write(rows, rows.schema, self.folder / f"{relation}-{number}.parquet")

    @contextmanager
    def opened(self, number: int, *relations: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a DuckDB with a table of each relation: the rows for task `number`.

        Raises:
            UserError: the disk of the temporary folder is full.
        """
        with database() as (connection, _):
            for name in relations:
                self.load(connection, name, number)
            yield connection

    def load(self, connection: duckdb.DuckDBPyConnection, relation: str, number: int | None = None) -> None:
        """Create a table of a relation's rows, or of those for task `number`. Without its statistics, DuckDB may
        join in a bad order."""
        files = sorted(self.folder.glob(f"{relation}-*.parquet"), key=str)
        with parquet_file(files[0]) as first:
            schema = first.schema_arrow
        rows, create = parquet(files, schema), f"CREATE TABLE {relation} AS SELECT * EXCLUDE (reader) FROM files"
        if number is None:  # Arrow's threads would read far ahead of a DuckDB that spills
            connection.register("files", rows.scanner(use_threads=False).to_reader())
            connection.execute(create)
        else:
            connection.register("files", rows)
            connection.execute(f"{create} WHERE reader = {number}")

    def run(
        self, work: Callable[..., dict[str, int]], jobs: Iterable[tuple[Any, ...]], label: str
    ) -> Counter[str]:
        """Run `work(exchange, number, *job)` for each job, and return the sums of the counts that it returns.

        Raises:
            UserError: a task fails.
        """
        numbered = [(self, number, *job) for number, job in enumerate(jobs)]
        sums = Counter[str]()
        for _, outcome in progress(completed(work, numbered), len(numbered), label):
            if isinstance(outcome, UserError):
                raise outcome
            sums.update(outcome)
        return sums

    def run_partitions(self, work: Callable[..., dict[str, int]], label: str, *given: Any) -> Counter[str]:
        """Run `work(exchange, number, *given)` for each partition; see `run`."""
        return self.run(work, [given] * self.partitions, label)


@contextmanager
def exchange(directory: StorePath, corpora: Iterable[CorpusManifest]) -> Iterator[Exchange]:
    """Yield an exchange between the tasks of a search through corpora.

    Args:
        directory: of the audit. The files are removed afterwards. If the process is killed, a later search of any
            version of this audit removes them.
    """
    if isinstance(directory, ObjectPath):  # on disk, `working_on` has removed them
        _remove_abandoned(directory.parent)
    records = sum(counts.kept for manifest in corpora for counts in manifest.splits)
    folder = directory / f"{_FOLDER}{uuid.uuid4().hex}"
    try:
        yield Exchange(folder, min(MAX_PARTITIONS, 1 + records // RECORDS))
    finally:
        remove(folder)


def _remove_abandoned(home: ObjectPath) -> None:
    """Remove the folders of killed searches below the directories of an audit's versions."""
    youngest: dict[ObjectPath, float] = {}
    for name, age in home.ages().items():
        folder = (home / name).parent
        if folder.name.startswith(_FOLDER):
            youngest[folder] = min(age, youngest.get(folder, age))
    for folder, age in youngest.items():
        if age > ABANDONED:
            remove(folder)


@contextmanager
def database(memory: str = SPILLING) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Yield a DuckDB of one thread with a memory limit, and the temporary folder that it spills to.

    Raises:
        UserError: the disk of the folder is full.
        OSError: a file of a view can't be read.
    """
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder, duckdb.connect() as connection:
        connection.execute("SET temp_directory = ?", [folder])
        connection.execute(f"SET memory_limit = '{memory}'; SET threads = 1")
        connection.execute("SET enable_progress_bar = false; SET preserve_insertion_order = false")
        try:
            yield connection, Path(folder)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise UserError(
                f"{folder}: DuckDB can't spill: {' '.join(str(error).split())}; free some disk space there, or "
                "set TMPDIR to a larger disk on each machine, and run the same command again"
            ) from None
        except duckdb.InvalidInputException as error:
            if "IOError" not in str(error):
                raise
            raise OSError(" ".join(str(error).split())) from None  # a file of the store can't be read


def collect(
    connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, tables: Iterable[pa.Table]
) -> int:
    """Create a table of the rows of several Arrow tables, one after another. Return their number."""
    connection.register(f"{name}_batch", schema.empty_table())
    connection.execute(f"CREATE TABLE {name} AS FROM {name}_batch")
    count = 0
    for table in tables:
        connection.register(f"{name}_batch", table)
        connection.execute(f"INSERT INTO {name} FROM {name}_batch")
        count += len(table)
    return count


def write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: StorePath) -> int:
    """Write batches to a Parquet file, atomically, each as a row group. Return the number of rows."""
    count = 0
    with parquet_writer(file, schema) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            count += len(batch)
        if not count:
            writer.write_table(schema.empty_table())
    return count
