"""Places of the store: files on disk, or objects of an S3-compatible store, under the same few words.

On disk a place is a `pathlib.Path`. `s3://bucket/prefix` is an `ObjectPath`, which speaks of objects as `Path`
does of files. The environment says how the object store is reached, on every machine that works on it:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ubert.schema.errors import UserError

if TYPE_CHECKING:  # a command that reads nothing does not wait for these
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import S3FileSystem

Result = TypeVar("Result")
SCHEME = "s3://"
# A request that fails (5xx, a lost connection, no answer in time) is made again after 25 ms, 50 ms, 100 ms ...:
# the store may be away for more than a minute.
ATTEMPTS = 13
PAUSES = (0.1, 0.5, 2.0)
BLOCK = 1 << 24  # bytes of one request
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0


class Place(Protocol):
    """What `Path` and `ObjectPath` have in common. `glob` finds files; `exists` is asked of files alone."""

    @property
    def name(self) -> str: ...

    @property
    def parent(self) -> Self: ...

    def __truediv__(self, name: str, /) -> Self: ...

    def absolute(self) -> Self: ...

    def exists(self) -> bool: ...

    def read_text(self, encoding: str) -> str: ...

    def glob(self, pattern: str, /) -> Iterator[Self]: ...


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object, or the common beginning of several. An object appears whole, or not at all.

    `key` is `bucket/name`. Methods raise `UserError` where the store can't be reached or refuses.
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
        """Raises `FileNotFoundError` where there is no such object, as `Path` does."""
        with explained(self), _objects().open_input_stream(self.key) as file:
            return str(file.read(), encoding)

    def glob(self, pattern: str, /) -> Iterator[ObjectPath]:
        """Objects below this one whose names match, level by level, from one listing."""
        for name in self.sizes():
            inner = PurePosixPath(name)
            if len(inner.parts) == len(PurePosixPath(pattern).parts) and inner.match(pattern):
                yield self / name

    def sizes(self) -> dict[str, int]:
        """The names of all objects below this one, and their bytes, from one listing."""
        from pyarrow.fs import FileSelector

        with explained(self):
            found = _objects().get_file_info(FileSelector(self.key, allow_not_found=True, recursive=True))
        return {info.path.removeprefix(f"{self.key}/"): info.size for info in found if info.is_file}

    def unlink(self) -> None:
        """Remove the object; it needn't be there."""
        with explained(self), suppress(FileNotFoundError):
            _objects().delete_file(self.key)

    def blocks(self) -> Iterator[bytes]:
        """The content, a block at a time. Raises `FileNotFoundError` where there is no such object."""
        with explained(self):
            stream = _objects().open_input_stream(self.key)
        with stream:
            while True:
                with explained(self):
                    block = stream.read(BLOCK)
                if not block:
                    return
                yield block


def place(given: str | Path) -> Place:
    """The place that a user named, or that stands where they named none.

    Raises:
        UserError: a URL of something else than an object store.
    """
    if isinstance(given, Path) or "://" not in given:
        return Path(given)
    key = given.removeprefix(SCHEME).rstrip("/")
    if not given.startswith(SCHEME) or not all(key.split("/")):
        raise UserError(f"{given}: expected a local folder, or an object store as s3://bucket/prefix")
    return ObjectPath(key)


def on_disk(root: Place) -> Path:
    """Where a store has runs and raw sources on this machine's disk: in the store itself, or for an object store
    in a folder of the user's data (XDG_DATA_HOME) that is named like it."""
    if isinstance(root, ObjectPath):
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "ubert" / root.key
    return Path(str(root)).absolute()


def arrow(file: Place) -> tuple[str, Any]:
    """A file as pyarrow names it: its path, and its file system."""
    from pyarrow.fs import LocalFileSystem

    return (file.key, _objects()) if isinstance(file, ObjectPath) else (str(file), LocalFileSystem())


def parquet(files: Sequence[Place], schema: pa.Schema) -> ds.Dataset:
    """Parquet files of one schema, of one store, as one dataset."""
    import pyarrow.dataset as ds

    _, filesystem = arrow(files[0] if files else Path())
    return ds.dataset([arrow(file)[0] for file in files], schema, "parquet", filesystem)


def parquet_file(file: Place) -> pq.ParquetFile:
    """One Parquet file, to be read bit by bit."""
    import pyarrow.parquet as pq

    path, filesystem = arrow(file)
    return pq.ParquetFile(path, filesystem=filesystem)


def upload(file: Path, target: ObjectPath) -> None:
    """Put a local file into the object store. It is handed over in one piece, because closing a stream completes
    whatever it has been given, also after an interruption."""
    import pyarrow as pa

    with (
        explained(target),
        pa.memory_map(str(file)) as source,
        _objects().open_output_stream(target.key) as stream,
    ):
        stream.write(source.read_buffer())


def download(file: ObjectPath, target: Path) -> None:
    """Write an object to the local disk.

    Raises:
        FileNotFoundError: there is no such object.
        OSError: the disk is full.
        UserError: the store fails.
    """
    with target.open("wb") as copied:
        copied.writelines(file.blocks())


def copy(old: ObjectPath, new: ObjectPath) -> None:
    """The same content under a second name, made inside the object store."""
    with explained(new):
        _objects().copy_file(old.key, new.key)


@contextmanager
def explained(where: Place) -> Iterator[None]:
    """Turn a failure of the store into a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        names = "--root (UBERT_ROOT)" + (" and the variables AWS_*" if isinstance(where, ObjectPath) else "")
        raise UserError(
            f"{where}: the store fails: {error}; what is finished is kept: run the same command again, or correct "
            f"{names}"
        ) from error


def persistent(read: Callable[[], Result]) -> Result:
    """What `read` returns. It is done again where Arrow gives up at once: when the answer to a request for few
    bytes is an error whose text is longer than these."""
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
    """The object store of the store; one connection a process."""
    return object_store(CONNECT_SECONDS, ANSWER_SECONDS, ATTEMPTS)


def endpoint() -> str | None:
    """The address of an object store other than AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def object_store(connect: float, answer: float, attempts: int) -> S3FileSystem:
    """The object store that the environment names; of what it says, Arrow reads all but the endpoint. A request is
    made up to `attempts` times, each of which waits so many seconds for a connection and for an answer."""
    from pyarrow.fs import AwsDefaultS3RetryStrategy, S3FileSystem

    return S3FileSystem(
        endpoint_override=endpoint(),
        connect_timeout=connect,
        request_timeout=answer,
        retry_strategy=AwsDefaultS3RetryStrategy(max_attempts=attempts),
        allow_delayed_open=True,  # a small object is one request
    )
