"""Download one entry of `fetch` from its source to a staging folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from blake3 import blake3

from pipelines.mirror import http, hub, local, s3
from pipelines.mirror.archive import unpack
from pipelines.mirror.names import Places
from pipelines.mirror.record import Fetched
from pipelines.mirror.resume import Open, Origin, Show, save
from pipelines.sources import file_hash
from ubert.schema.errors import UserError
from ubert.schema.specs.fetch import Fetch


class Staged(NamedTuple):
    """A file in the staging folder, and its hex blake3."""

    path: Path
    blake3: str


class Download(NamedTuple):
    """A finished download. `parts` are the hashes that a pin covers, by name: of files, or of the rows of a split.
    `files` are staged files by their path in the dataset's folder."""

    parts: dict[str, str]
    origins: dict[str, Origin]
    files: dict[str, Staged]


def download(fetch: Fetch, specs: Path, staging: Path, show: Show) -> Download:
    """Download the files of `fetch` to `staging`, and resume partial files of an earlier run there.

    Raises:
        UserError: the source refuses, fails repeatedly, or has a file whose name is not allowed in the mirror.
    """
    staging.mkdir(parents=True, exist_ok=True)
    if fetch.scheme == "hf":
        parts = hub.write_splits(fetch, specs, staging)
        files = {_place(fetch, name): Staged(staging / name, file_hash(staging / name)) for name in parts}
        return Download(parts, {}, files)
    if fetch.folder is not None:
        return _folder_of_archive(fetch, specs, staging, show)
    found = Download({}, {}, {})
    places, before = Places(), 0
    for given, open_at in _sources(fetch, specs).items():
        url = f"{fetch.url}{given}" if fetch.of_prefix else fetch.url
        try:
            name = places.take(given)
        except ValueError as error:
            raise UserError(f"{url}: its name {error}; it cannot be a file of the mirror") from None
        path = staging / blake3(name.encode()).hexdigest(8)
        found.origins[name] = save(url, open_at, path, partial(_shown, show, fetch, before))
        found.parts[name] = file_hash(path)
        found.files[_place(fetch, name)] = Staged(path, found.parts[name])
        before += path.stat().st_size
    return found


def _folder_of_archive(fetch: Fetch, specs: Path, staging: Path, show: Show) -> Download:
    """Download an archive and unpack its files. The pin covers the files, because GitHub may pack the same commit
    into different bytes."""
    [(name, open_at)] = _sources(fetch, specs).items()
    archive, folder = staging / "archive", staging / "members"
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    origin = save(fetch.url, open_at, archive, show)
    try:
        hashes = unpack(archive, name, folder, partial(_below, fetch))
        if not hashes:
            raise UserError(
                f"{fetch.source}: the archive has no such files; correct `folder` or `only` in the spec"
            )
    except UserError:
        shutil.rmtree(staging)
        raise
    files = {_place(fetch, path): Staged(folder / path, hash_) for path, hash_ in hashes.items()}
    return Download(hashes, {name: origin}, files)


def _below(fetch: Fetch, name: str) -> str | None:
    """Return the path of an archive's member below the folder that is kept, or None if it isn't kept."""
    above, parts = PurePosixPath(fetch.folder or "").parts, PurePosixPath(name).parts
    path = "/".join(parts[len(above) :])
    inside = path and all(fnmatchcase(part, wanted) for part, wanted in zip(parts, above, strict=False))
    return path if inside and any(fnmatchcase(path, glob) for glob in fetch.only or ["*"]) else None


def local_copy(fetch: Fetch, folder: Path, expected: str | None, others: Iterable[Fetched]) -> Download | None:
    """Return the file of `fetch` if it is in place already. It was put there by hand, or only its members are
    missing. A file of `others`, the other downloads, counts only if it has the expected hash."""
    path = folder / fetch.name
    if fetch.many or not path.is_file():
        return None
    if expected is None and any(fetch.name in other.files for other in others):
        return None
    got = file_hash(path)
    return Download({path.name: got}, {}, {fetch.name: Staged(path, got)}) if expected in (None, got) else None


def members(fetch: Fetch, archive: Path, folder: Path) -> dict[str, Staged]:
    """Unpack an archive into `folder`. Return the members by their future path, next to the archive in the
    dataset's folder.

    Raises:
        UserError: the archive is refused, see `unpack`.
    """
    beside = PurePosixPath(fetch.name).parent
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    hashes = unpack(archive, fetch.name, folder)
    found = {str(beside / name): Staged(folder / name, hash_) for name, hash_ in hashes.items()}
    if fetch.name in found:
        raise UserError(f"{fetch.source}: a member has the archive's own name; give it another with `into`")
    return found


def _sources(fetch: Fetch, specs: Path) -> dict[str, Open]:
    """Return a function that opens each file of a download, by the file's name."""
    match fetch.scheme:
        case "http" | "https":
            name = fetch.file_name if fetch.many else PurePosixPath(fetch.name).name
            return {name: partial(http.open_at, fetch.url)}
        case "s3":
            return s3.objects(fetch)
        case _:
            return local.files(fetch, specs)


def _place(fetch: Fetch, name: str) -> str:
    return str(PurePosixPath(fetch.name, name)) if fetch.many else fetch.name


def _shown(show: Show, fetch: Fetch, before: int, here: int, total: int | None) -> None:
    show(before + here, None if fetch.many else total)
