"""Run a user's SQL in a process of its own, which the operating system ends when it exceeds its time or memory.

DuckDB can't interrupt a query inside one call of a function, and doesn't count the memory of long strings. So the
process sets a timer and a memory limit for itself. `Ctrl-C` reaches only the caller, which then ends the process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ubert.schema.errors import UserError

if TYPE_CHECKING:
    import duckdb

    from pipelines.store.storage import StorePath

OVERHEAD = 1 << 30  # bytes for Python, its libraries and a result, in addition to the memory of the query
LARGEST = 1 << 30  # limit of a result, in bytes

Ask = Callable[[str, str], pa.Table]
"""Returns the rows of one SELECT. Error messages begin with the second argument."""


class Limits(NamedTuple):
    """Limits of one statement: its time, and DuckDB's `memory_limit`."""

    seconds: float = 600.0
    memory: str = "50%"  # share of the machine's memory


def sql(
    root: StorePath, statement: str, corpora: Collection[str] | None = None, limits: Limits | None = None
) -> pa.Table:
    """Return the rows of one SELECT over the views of the store, or of only some of its corpora.

    Raises:
        UserError: the statement is wrong, is not one SELECT, reaches outside the store, or exceeds a limit.
    """
    with sandbox(root, corpora, limits) as ask:
        return ask(statement, "SQL")


@contextmanager
def sandbox(
    root: StorePath,
    corpora: Collection[str] | None = None,
    limits: Limits | None = None,
    *,
    versions: Mapping[str, str] | None = None,
) -> Iterator[Ask]:
    """Start a process with a connection to the store, and yield a function that runs statements in it. A statement
    that exceeds a limit ends the process.

    Args:
        corpora, versions: see `pipelines.store.warehouse.connect`.

    Raises:
        UserError: each call of the function raises it for the same reasons as `sql`.
    """
    limits = limits or Limits()
    code = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # -P: no module of the working directory
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # hides an allocator's message when memory runs out
        env={**os.environ, "PYTHONPATH": os.pathsep.join([code, *filter(None, sys.path)])},
        start_new_session=True,  # only the caller gets Ctrl-C
    )
    assert process.stdin and process.stdout
    requests, replies = process.stdin, process.stdout

    def ask(statement: str, what: str) -> pa.Table:
        try:
            _send(requests, {"statement": statement, "what": what})
            header = replies.readline()
        except (BrokenPipeError, ValueError):  # the process or the sandbox has ended
            header = b""
        if not header:
            raise UserError(f"{what}: {_cause(process.wait(), limits)}; select less, or sample")
        reply = json.loads(header)
        rows = replies.read(reply.get("bytes", 0))
        if "fault" in reply:
            raise RuntimeError(reply["fault"])
        if "error" in reply:
            raise UserError(reply["error"])
        return pa.ipc.open_stream(rows).read_all()

    try:
        names = None if corpora is None else list(corpora)
        named = {"corpora": names, "versions": None if versions is None else dict(versions)}
        _send(requests, {"root": str(root.absolute()), **named, **limits._asdict()})
        yield ask
    finally:
        process.kill()
        process.communicate()


def _cause(code: int, limits: Limits) -> str:
    """Explain by its exit code why the process ended."""
    if code == -signal.SIGALRM:
        return f"took longer than {limits.seconds:g} seconds"
    return f"needs more memory than it may have ({limits.memory}), or its process was ended (exit code {code})"


def _send(to: IO[bytes], message: dict[str, object]) -> None:
    to.write(json.dumps(message).encode() + b"\n")
    to.flush()


def main() -> None:
    """Answer statements from the standard input with a line of JSON, which has an error or a number of bytes. In
    the second case, that many bytes follow: the rows as an Arrow stream."""
    sys.meta_path.insert(0, _WithoutPandas())
    from pipelines.store.storage import persistent, store_path
    from pipelines.store.warehouse import connect

    Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    begun = json.loads(requests.readline())
    try:
        with ExitStack() as stack:
            named = {name: begun[name] for name in ("corpora", "versions", "memory")}
            opened = partial(connect, store_path(begun["root"]), **named)
            connection = persistent(lambda: stack.enter_context(opened()))
            _limit_memory(connection)
            for line in requests:
                try:
                    rows = persistent(lambda: _rows(connection, **json.loads(line), seconds=begun["seconds"]))  # noqa: B023
                except UserError as error:
                    _send(replies, {"error": str(error)})
                    continue
                except Exception:  # noqa: BLE001  # an internal error, which the caller raises
                    _send(replies, {"fault": traceback.format_exc()})
                    continue
                _send(replies, {"bytes": rows.size})
                replies.write(rows)
                replies.flush()
    except UserError as error:
        requests.readline()
        _send(replies, {"error": str(error)})


class _WithoutPandas(MetaPathFinder):
    """Hides pandas from pyarrow, which would otherwise import it and double the start-up time."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def _limit_memory(connection: duckdb.DuckDBPyConnection) -> None:
    size = "SELECT parse_formatted_bytes(current_setting('memory_limit'))"
    most = int(connection.execute(size).fetchall()[0][0]) + OVERHEAD
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _rows(connection: duckdb.DuckDBPyConnection, statement: str, what: str, seconds: float) -> pa.Buffer:
    """Return the rows of a statement as an Arrow stream."""
    from pipelines.store.warehouse import explained, printable, selected

    signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM without a handler ends the process
    try:
        sink = pa.BufferOutputStream()
        with explained(connection, what):
            reader = printable(selected(connection, statement, what)).to_arrow_reader()
            with pa.ipc.new_stream(sink, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    if sink.tell() > LARGEST:
                        raise UserError(f"{what}: the result has over {LARGEST:,} bytes; select less, or sample")
        return sink.getvalue()
    except MemoryError:
        raise UserError(f"{what}: out of memory; select less, or sample") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _exit_with(parent: int) -> None:
    """End this process once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
