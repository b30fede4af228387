"""Read and write the record of the downloads in a dataset's folder, `.fetched.json`."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipelines.mirror.resume import Origin
from pipelines.sources import file_hash
from ubert.schema.disk import write_whole
from ubert.schema.errors import UserError
from ubert.schema.yaml_file import Strict

RECORD = ".fetched.json"


class Stamp(Strict):
    """A file as it was written. It counts as unchanged if size and time are the same; otherwise it is hashed."""

    blake3: str
    size: int
    mtime_ns: int


class Fetched(Strict):
    """One finished download.

    `blake3` is the hash of the whole download. `parts` are the hashes of its parts: the file, all files of a
    folder, or the rows of each split. `files` are its files in the dataset's folder, including archive members.
    """

    revision: str | None
    into: str
    unpacked: bool
    blake3: str
    parts: dict[str, str]
    origins: dict[str, Origin]
    when: str
    files: dict[str, Stamp]


_RECORD = TypeAdapter(dict[str, Fetched])  # by `Fetch.source`


def read_record(folder: Path) -> dict[str, Fetched] | None:
    """Read the finished downloads of a folder; None if the mirror didn't fill it.

    Raises:
        UserError: the record is broken.
    """
    path = folder / RECORD
    try:
        return _RECORD.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        where = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path}: {where}: {first['msg']}; delete this file; the next command checks the sources again"
        ) from None


def write_record(folder: Path, record: dict[str, Fetched]) -> None:
    """Write the record atomically."""
    write_whole(folder / RECORD, _RECORD.dump_json(record, indent=1).decode() + "\n")


def stamp(path: Path, blake3: str | None = None) -> Stamp:
    """Return the stamp of a file, which is hashed unless its hash is known."""
    stat = path.stat()
    return Stamp(blake3=blake3 or file_hash(path), size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def whole(folder: Path, fetched: Fetched, *, hashed: bool = False) -> bool:
    """Return whether all files of a download exist. `hashed` verifies their content even if size and time are
    unchanged.

    Raises:
        UserError: a file has changed.
    """
    for name, then in fetched.files.items():
        path = folder / name
        try:
            stat = path.stat()
        except FileNotFoundError:
            return False
        if not hashed and (stat.st_size, stat.st_mtime_ns) == (then.size, then.mtime_ns):
            continue
        if (now := file_hash(path)) != then.blake3:
            raise UserError(
                f"{path}: changed since it was fetched on {fetched.when}: expected blake3 {then.blake3} "
                f"({then.size:,} bytes), got {now} ({stat.st_size:,} bytes); delete it, then run `ubert fetch`"
            )
    return True
