"""One interface for paths of the store: files on disk, or objects of an S3-compatible store.

A `StorePath` on disk is a `pathlib.Path`. `s3://bucket/prefix` is an `ObjectPath`, which has the same methods for
objects as `Path` has for files. Every machine reads the address and credentials of the object store from the
environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ubert.schema.errors import UserError
from ubert.schema.manifest import Folder

if TYPE_CHECKING:  # imported late, so that commands that read nothing start fast
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import FileInfo, S3FileSystem

Result = TypeVar("Result")
SCHEME = "s3://"
# A failed request (5xx, lost connection, timeout) is retried after 25 ms, 50 ms, 100 ms ...; so the store may be
# unavailable for more than a minute.
ATTEMPTS = 13
PAUSES = (0.1, 0.5, 2.0)
BLOCK = 1 << 24  # bytes of one request
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
MAKE_AGAIN = "delete its folder and run its job again"  # cure of a missing or damaged file


class StorePath(Folder, Protocol):
    """The methods that `Path` and `ObjectPath` share. Use `glob` and `exists` only for files, not for folders."""

    def absolute(self) -> Self: ...

    def exists(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object, or the common prefix of several. Objects are written atomically.

    `key` is `bucket/name`. Methods raise `UserError` if the store can't be reached or refuses a request.
    """

    key: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.key}"

    def __truediv__(self, name: str, /) -> ObjectPath:
        return ObjectPath(f"{self.key}/{name}")

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(str(PurePosixPath(self.key).parent))

    def absolute(self) -> ObjectPath:
        return self

    def exists(self) -> bool:
        with explained(self):
            return bool(_objects().get_file_info(self.key).is_file)

    def read_text(self, encoding: str) -> str:
        """Return the content as text. Raises `FileNotFoundError` if there is no such object, as `Path` does."""
        with explained(self), _objects().open_input_stream(self.key) as file:
            return str(file.read(), encoding)

    def glob(self, pattern: str, /) -> Iterator[ObjectPath]:
        """Yield the objects below this prefix whose names match level by level, with one listing."""
        for name in self.sizes():
            inner = PurePosixPath(name)
            if len(inner.parts) == len(PurePosixPath(pattern).parts) and inner.match(pattern):
                yield self / name

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all objects below this prefix in bytes, by name, with one listing."""
        return {name: info.size for name, info in self._listed().items()}

    def ages(self) -> dict[str, float]:
        """Return the age of each object below this prefix by name: the seconds between it and the newest one. It
        takes one listing, and uses only the store's clock, because this machine's may be wrong."""
        written = {name: info.mtime.timestamp() for name, info in self._listed().items()}
        newest = max(written.values(), default=0.0)
        return {name: newest - at for name, at in written.items()}

    def _listed(self) -> dict[str, FileInfo]:
        from pyarrow.fs import FileSelector

        with explained(self):
            found = _objects().get_file_info(FileSelector(self.key, allow_not_found=True, recursive=True))
        return {info.path.removeprefix(f"{self.key}/"): info for info in found if info.is_file}

    def unlink(self) -> None:
        """Remove the object, if it exists."""
        with explained(self), suppress(FileNotFoundError):
            _objects().delete_file(self.key)

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks. Raises `FileNotFoundError` if there is no such object."""
        with explained(self):
            stream = _objects().open_input_stream(self.key)
        with stream:
            while True:
                with explained(self):
                    block = stream.read(BLOCK)
                if not block:
                    return
                yield block


def store_path(given: str | Path) -> StorePath:
    """Parse a folder or URL that a user named; a default is already a `Path`.

    Raises:
        UserError: it is a URL, but not one of an object store.
    """
    if isinstance(given, Path) or "://" not in given:
        return Path(given)
    key = given.removeprefix(SCHEME).rstrip("/")
    if not given.startswith(SCHEME) or not all(key.split("/")):
        raise UserError(f"{given}: expected a local folder, or an object store such as s3://bucket/prefix")
    return ObjectPath(key)


def on_disk(root: StorePath) -> Path:
    """Return the folder of runs and raw sources on this machine's disk. It is the store itself, or for an object
    store a folder of its name in the user's data folder (XDG_DATA_HOME)."""
    if isinstance(root, ObjectPath):
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "ubert" / root.key
    return Path(str(root)).absolute()


def arrow(file: StorePath) -> tuple[str, Any]:
    """Return a file's path and file system for pyarrow."""
    from pyarrow.fs import LocalFileSystem

    return (file.key, _objects()) if isinstance(file, ObjectPath) else (str(file), LocalFileSystem())


def parquet(files: Sequence[StorePath], schema: pa.Schema) -> ds.Dataset:
    """Open Parquet files of one schema and one store as one dataset.

    Raises:
        UserError: a file is missing.
    """
    import pyarrow.dataset as ds

    _, filesystem = arrow(files[0] if files else Path())
    with intact():
        return ds.dataset([arrow(file)[0] for file in files], schema, "parquet", filesystem)


def parquet_file(file: StorePath, cure: str = MAKE_AGAIN) -> pq.ParquetFile:
    """Open one Parquet file to read it in batches.

    Raises:
        UserError: the file is missing or damaged.
    """
    import pyarrow.parquet as pq

    path, filesystem = arrow(file)
    with intact(file, cure):
        return pq.ParquetFile(path, filesystem=filesystem)


def upload(file: Path, target: ObjectPath) -> None:
    """Upload a local file to the object store. It is written in one call, because closing a stream after an
    interruption would complete a partial object."""
    import pyarrow as pa

    with (
        explained(target),
        pa.memory_map(str(file)) as source,
        _objects().open_output_stream(target.key) as stream,
    ):
        stream.write(source.read_buffer())


def download(file: ObjectPath, target: Path) -> None:
    """Download an object to the local disk.

    Raises:
        FileNotFoundError: there is no such object.
        OSError: the disk is full.
        UserError: the store fails.
    """
    with target.open("wb") as copied:
        copied.writelines(file.blocks())


def copy(old: ObjectPath, new: ObjectPath) -> None:
    """Copy an object inside the object store."""
    with explained(new):
        _objects().copy_file(old.key, new.key)


def remove(path: StorePath) -> None:
    """Remove a file or folder, or the objects below a prefix, if it exists."""
    if isinstance(path, ObjectPath):
        with ThreadPoolExecutor() as pool:  # an object store answers many requests at once
            list(pool.map(lambda name: (path / name).unlink(), path.sizes()))
    elif (local := Path(str(path))).is_dir():
        shutil.rmtree(local, ignore_errors=True)
    else:
        local.unlink(missing_ok=True)


@contextmanager
def explained(where: StorePath) -> Iterator[None]:
    """Convert a failure of the store to a `UserError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        names = "--root (UBERT_ROOT)" + (" and the variables AWS_*" if isinstance(where, ObjectPath) else "")
        raise UserError(
            f"{where}: the store fails: {error}; finished work is kept: run the same command again, or correct "
            f"{names}"
        ) from error


@contextmanager
def intact(file: StorePath | None = None, cure: str = MAKE_AGAIN) -> Iterator[None]:
    """Convert the error of a missing or damaged Parquet file of the store to a `UserError`.

    Args:
        file: a single file, which Arrow's error may not name; it names the files of a dataset.
    """
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        where, how = f"{file}: " if file else "", " ".join(str(error).split())
        raise UserError(f"{where}a file of the store is missing or damaged: {how}; {cure}") from None


def persistent(read: Callable[[], Result]) -> Result:
    """Call `read`, and retry errors that Arrow doesn't retry: if a request is for few bytes, and the store answers
    with an error whose text is longer, Arrow raises INTERNAL_FAILURE."""
    for pause in PAUSES:
        try:
            return read()
        except UserError as error:
            if "INTERNAL_FAILURE" not in str(error):
                raise
        time.sleep(pause)
    return read()


@lru_cache(maxsize=1)
def _objects() -> S3FileSystem:
    """Return the file system of the object store, one for each process."""
    return object_store(CONNECT_SECONDS, ANSWER_SECONDS, ATTEMPTS)


def endpoint() -> str | None:
    """Return the URL of an object store other than AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def object_store(connect: float, answer: float, attempts: int) -> S3FileSystem:
    """Open the object store that the environment names. Arrow reads all its variables except the endpoint.

    Args:
        connect: seconds to wait for a connection.
        answer: seconds to wait for an answer.
        attempts: how often a request is tried.
    """
    from pyarrow.fs import AwsDefaultS3RetryStrategy, S3FileSystem

    return S3FileSystem(
        endpoint_override=endpoint(),
        connect_timeout=connect,
        request_timeout=answer,
        retry_strategy=AwsDefaultS3RetryStrategy(max_attempts=attempts),
        allow_delayed_open=True,  # a small object is one request
    )
