"""What a mirror knows of the downloads in a dataset's folder: `.fetched.json`, beside the files."""

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
    """A file as it was written. One of the same size and time is taken to be unchanged; any other is hashed."""

    blake3: str
    size: int
    mtime_ns: int


class Fetched(Strict):
    """One finished download.

    `blake3` is of the whole, `parts` of what it is made of: the file, all files of a folder, or the rows of each
    split. `files` are what lies in the dataset's folder because of it, members of its archive included.
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
    """The finished downloads of a folder; none, where the mirror didn't make it.

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
            f"{path}: {where}: {first['msg']}; delete the file, and what is there is checked anew"
        ) from None


def write_record(folder: Path, record: dict[str, Fetched]) -> None:
    """Write it whole."""
    write_whole(folder / RECORD, _RECORD.dump_json(record, indent=1).decode() + "\n")


def stamp(path: Path, blake3: str | None = None) -> Stamp:
    """The stamp of a file, hashed unless its hash is known."""
    stat = path.stat()
    return Stamp(blake3=blake3 or file_hash(path), size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def whole(folder: Path, fetched: Fetched, *, hashed: bool = False) -> bool:
    """Whether all its files are there; `hashed` looks at their content even where nothing tells of a change.

    Raises:
        UserError: one has been changed.
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
                f"({then.size:,} bytes), got {now} ({stat.st_size:,} bytes); delete it, and it is made again"
            )
    return True
