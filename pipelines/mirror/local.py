"""Copy files and folders of this machine."""

from __future__ import annotations

from collections.abc import Generator
from email.utils import formatdate
from functools import partial
from pathlib import Path

from pipelines.mirror.resume import CHUNK, Open, Opened, Origin
from ubert.schema.errors import UserError
from ubert.schema.specs.fetch import Fetch


def files(fetch: Fetch, specs: Path) -> dict[str, Open]:
    """Return functions that open the file, or the files of the folder, by their path below it. Relative addresses
    start at `specs`.

    Raises:
        UserError: there are no files, a file is a folder, or the reverse.
    """
    path = place(fetch, specs)
    if not fetch.of_prefix:
        if not path.is_file():
            raise UserError(f"{path}: no such file; correct `url` in the spec (a folder's ends in `/`)")
        return {path.name: partial(_open_at, path)}
    found = sorted(each for each in path.rglob("*") if each.is_file())
    if not found:
        raise UserError(f"{path}: a folder with no files; correct `url` in the spec")
    return {each.relative_to(path).as_posix(): partial(_open_at, each) for each in found}


def place(fetch: Fetch, specs: Path) -> Path:
    """Return the path of a local address."""
    return specs / fetch.url.removeprefix(f"{fetch.scheme}:").removeprefix("//")


def _open_at(path: Path, have: int, known: Origin | None) -> Opened:
    try:
        stat = path.stat()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct `url` in the spec") from None
    return Opened(0, Origin(size=stat.st_size, last_modified=formatdate(stat.st_mtime)), _chunks(path))


def _chunks(path: Path) -> Generator[bytes, None, None]:
    try:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                yield data
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct `url` in the spec, or the file") from None
