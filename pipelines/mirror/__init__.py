"""The mirror of raw sources: one folder for each dataset, filled by the downloads that its spec names.

A download goes to a staging folder (`.fetching`), is checked against its pin, and is then moved into place.
`.fetched.json` records finished downloads. A folder without this record that has all files of the spec was filled
by hand, and is used as it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from blake3 import blake3

from pipelines.mirror import resume
from pipelines.mirror.changes import changed
from pipelines.mirror.download import Download, download, local_copy, members
from pipelines.mirror.names import OWN
from pipelines.mirror.place import abandoned, place
from pipelines.mirror.record import RECORD, Fetched, read_record, stamp, whole, write_record
from pipelines.sources import joined_hash, matches
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.fetch import Fetch

STAGING, LOCK = f"{OWN}ing", f"{OWN}ing.lock"


Show = Callable[[str, int, int | None], None]  # name of a download, bytes so far, total bytes


def mirror_folder(data: Path | None, root: Path) -> Path:
    """Return the folder of the mirror: the given one, else `raw` in the store."""
    return data or root / "raw"


def fill(spec: DatasetSpec, folder: Path, specs: Path, show: Show, *, hashed: bool = False) -> dict[str, Fetched]:
    """Download the missing files of a dataset's folder.

    Args:
        hashed: verify the hashes of all existing files. Otherwise, files with the same size and time count as
            unchanged.

    Returns:
        The downloads by `Fetch.source`; empty if the folder was filled by hand. If nothing is missing, nothing is
        written.

    Raises:
        UserError: a source fails, has changed, or is refused; a file has changed; the folder cannot be written.
    """
    with _explained(spec, folder):
        record = read_record(folder)
        if record is None and all(_has_files(folder, entry.path) for entry in spec.files):
            return {}
        missing = [fetch for fetch in spec.fetch if not _is_fetched(fetch, folder, record or {}, hashed)]
        if missing:
            with _locked(folder):
                record = read_record(folder) or {}
                gone = abandoned(spec, specs, record)
                try:
                    for fetch in missing:
                        if not _is_fetched(fetch, folder, record, hashed):
                            report = partial(show, fetch.source)
                            record[fetch.source] = _fetch_one(fetch, folder, specs, record, gone, report)
                            if (folder / RECORD).exists():  # else the folder still counts as filled by hand
                                write_record(folder, record)
                    write_record(folder, record)
                except BaseException:
                    _remove_if_empty(folder)
                    raise
                shutil.rmtree(folder / STAGING, ignore_errors=True)
    return {fetch.source: (record or {})[fetch.source] for fetch in spec.fetch}


def is_filled(spec: DatasetSpec, folder: Path) -> bool:
    """Return whether no file is missing in a dataset's folder. Files that were changed are not missing.

    Raises:
        UserError: the folder cannot be read.
    """
    with _explained(spec, folder):
        record = read_record(folder)
        if record is None:
            return all(_has_files(folder, entry.path) for entry in spec.files)
        found = [_recorded(fetch, record) for fetch in spec.fetch]
        return all(then is not None and all((folder / name).exists() for name in then.files) for then in found)


def check_upstream(
    spec: DatasetSpec, folder: Path, specs: Path, fetched: Mapping[str, Fetched], show: Show
) -> None:
    """Download the sources again to a staging folder, and compare them with `fetched`. Nothing is replaced.

    Raises:
        UserError: a source fails or has changed, or the folder cannot be written.
    """
    with _explained(spec, folder), _locked(folder):
        for fetch in spec.fetch:
            then = fetched[fetch.source]
            try:
                now = download(fetch, specs, _staging(fetch, folder), partial(show, fetch.source))
                if (digest := joined_hash(now.parts)) != then.blake3:
                    raise UserError(changed(fetch, digest, now, then, folder / fetch.name, here=True))
            finally:
                shutil.rmtree(folder / STAGING, ignore_errors=True)


@contextmanager
def _explained(spec: DatasetSpec, folder: Path) -> Iterator[None]:
    """Convert errors of the disk to a `UserError`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; the sources of {spec.name} need a mirror "
            "that can be read, and written if files are missing; free some disk space, or name another "
            "with --data (UBERT_DATA)"
        ) from None


def _staging(fetch: Fetch, folder: Path) -> Path:
    """Return the folder of an unfinished download, where it can be resumed."""
    return folder / STAGING / blake3(f"{fetch.source} {fetch.revision}".encode()).hexdigest(8)


def _has_files(folder: Path, pattern: str) -> bool:
    try:
        return bool(matches(folder, pattern))
    except UserError:
        return False


def _is_fetched(fetch: Fetch, folder: Path, record: dict[str, Fetched], hashed: bool) -> bool:
    then = _recorded(fetch, record)
    return then is not None and whole(folder, then, hashed=hashed)


def _recorded(fetch: Fetch, record: dict[str, Fetched]) -> Fetched | None:
    """Return the finished download, or None if the spec now asks for something else."""
    then = record.get(fetch.source)
    same = (
        then is not None
        and (then.revision, then.into, then.unpacked) == (fetch.revision, fetch.name, fetch.unpack)
        and fetch.blake3 in (None, then.blake3)
    )
    return then if same else None


def _remove_if_empty(folder: Path) -> None:
    """Remove a dataset's folder if it has no file and no partial download to resume."""
    ours = (folder / LOCK, folder / RECORD)
    if not any(path.is_file() and path not in ours for path in folder.rglob("*")):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another process is fetching into it; run again when that has ended"
            ) from None
        yield


def _fetch_one(
    fetch: Fetch, folder: Path, specs: Path, record: dict[str, Fetched], gone: set[str], show: resume.Show
) -> Fetched:
    """Download one entry, check it, unpack it and move it into place. `gone` is explained at `place`."""
    staging = _staging(fetch, folder)
    then = record.get(fetch.source)
    expected = fetch.blake3 or (then.blake3 if then and then.revision == fetch.revision else None)
    others = [other for source, other in record.items() if source != fetch.source]
    here = local_copy(fetch, folder, expected, others)
    parts, origins, files = here or download(fetch, specs, staging, show)
    try:
        digest = joined_hash(parts)
        if expected not in (None, digest):
            raise UserError(changed(fetch, digest, Download(parts, origins, files), then, folder / fetch.name))
        if fetch.unpack:
            files |= members(fetch, files[fetch.name].path, staging / "members")
        place(fetch, folder, files, record, gone)
        os.sync()  # faster than syncing each of thousands of members
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Fetched(
        revision=fetch.revision,
        into=fetch.name,
        unpacked=fetch.unpack,
        blake3=digest,
        parts=parts,
        origins=then.origins if here and then else origins,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        files={name: stamp(folder / name, staged.blake3) for name, staged in files.items()},
    )
