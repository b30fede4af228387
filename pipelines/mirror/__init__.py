"""The mirror of raw sources: one folder a dataset, filled by the downloads that its spec names.

A download comes to a folder of its own beside the files (`.fetching`), is checked against its pin, and only then
takes its place. `.fetched.json` holds what was fetched; a folder without it that has all files of the spec was
filled by someone else, and is used as it is.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from blake3 import blake3

from pipelines.mirror import http, hub, local, s3
from pipelines.mirror.archive import unpack
from pipelines.mirror.disk import move
from pipelines.mirror.names import OWN, Places
from pipelines.mirror.record import Fetched, read_record, stamp, whole, write_record
from pipelines.mirror.resume import Open, Origin, save
from pipelines.sources import file_hash, joined_hash, matches
from ubert.schema.errors import UserError
from ubert.schema.fetch import Fetch
from ubert.schema.spec import DatasetSpec

STAGING, LOCK = f"{OWN}ing", f"{OWN}ing.lock"


class Download(NamedTuple):
    """What came: hashes (of the hub: of the rows), files and their state at the source, by name."""

    parts: dict[str, str]
    paths: dict[str, Path]
    origins: dict[str, Origin]


Show = Callable[[str, int, int | None], None]  # what is being fetched, its bytes that are here, its bytes in all


def mirror_folder(data: Path | None, root: Path) -> Path:
    """The mirror: the one that is given, else one in the store."""
    return data or root / "raw"


def fill(spec: DatasetSpec, folder: Path, specs: Path, show: Show, *, hashed: bool = False) -> dict[str, Fetched]:
    """Fetch what is missing in a dataset's folder; what was fetched, by `Fetch.source` (empty: filled by others).

    `hashed` holds all that is there against its hashes; else files whose size and time are as they were are taken
    to be unchanged. Nothing is written where nothing is missing.

    Raises:
        UserError: a source fails, has changed, or is refused; a file has changed; the folder cannot be written.
    """
    try:
        record = read_record(folder)
        if record is None and all(_found(folder, entry.path) for entry in spec.files):
            return {}
        missing = [fetch for fetch in spec.fetch if not _is_here(fetch, folder, record or {}, hashed)]
        if missing:
            with _only_writer(folder):
                record = read_record(folder) or {}
                write_record(folder, record)  # from now on, files alone don't make it complete
                for fetch in missing:
                    if not _is_here(fetch, folder, record, hashed):
                        record[fetch.source] = _bring(fetch, folder, specs, record, partial(show, fetch.source))
                        write_record(folder, record)
                shutil.rmtree(folder / STAGING, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; the sources of {spec.name} need a mirror "
            "that can be read, and written where something is missing: make room, or name another with --data "
            "(UBERT_DATA)"
        ) from None
    return {fetch.source: (record or {})[fetch.source] for fetch in spec.fetch}


def _found(folder: Path, pattern: str) -> bool:
    try:
        return bool(matches(folder, pattern))
    except UserError:
        return False


def _is_here(fetch: Fetch, folder: Path, record: dict[str, Fetched], hashed: bool) -> bool:
    then = record.get(fetch.source)
    return (
        then is not None
        and (then.revision, then.into, then.unpacked) == (fetch.revision, fetch.name, fetch.unpack)
        and fetch.blake3 in (None, then.blake3)
        and whole(folder, then, hashed=hashed)
    )


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another process is fetching into it; run again when that has ended"
            ) from None
        yield


def _bring(
    fetch: Fetch, folder: Path, specs: Path, record: dict[str, Fetched], show: Callable[[int, int | None], None]
) -> Fetched:
    """One download, checked, unpacked and in its place."""
    then = record.get(fetch.source)
    staging = folder / STAGING / blake3(f"{fetch.source} {fetch.revision}".encode()).hexdigest(8)
    known = then if then and then.revision == fetch.revision else None
    expected = fetch.blake3 or (known.blake3 if known else None)
    own = folder / fetch.name
    if not fetch.many and own.is_file() and expected in (None, file_hash(own)):
        # Put there by hand, or only its members are missing.
        download = Download({own.name: file_hash(own)}, {own.name: own}, known.origins if known else {})
    else:
        download = _download(fetch, specs, staging, show)
    try:
        digest = joined_hash(download.parts)
        if expected not in (None, digest):
            raise UserError(_changed(fetch, digest, download, then, own))
        hashes, staged = _in_folder(fetch, download)
        if fetch.unpack:
            members = unpack(staged[fetch.name], fetch.name, staging / "members")
            beside = PurePosixPath(fetch.name).parent
            hashes |= {str(beside / name): hash_ for name, hash_ in members.items()}
            staged |= {str(beside / name): staging / "members" / name for name in members}
            if len(hashes) != len(members) + 1:
                raise UserError(
                    f"{fetch.source}: a member has the archive's own name; give it another with `into`"
                )
        _place(fetch, folder, hashes, staged, record)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Fetched(
        revision=fetch.revision,
        into=fetch.name,
        unpacked=fetch.unpack,
        blake3=digest,
        parts=download.parts,
        origins=download.origins,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        files={name: stamp(folder / name, hash_) for name, hash_ in hashes.items()},
    )


def _download(fetch: Fetch, specs: Path, staging: Path, show: Callable[[int, int | None], None]) -> Download:
    staging.mkdir(parents=True, exist_ok=True)
    if fetch.scheme == "hf":
        parts = hub.write_splits(fetch, specs, staging)
        return Download(parts, {name: staging / name for name in parts}, {})
    places, paths, origins, before = Places(), {}, {}, 0
    for name, open_at in _sources(fetch, specs).items():
        url = f"{fetch.url}{name}" if fetch.many else fetch.url
        try:
            name = places.take(name)
        except ValueError as error:
            raise UserError(f"{url}: its name {error}; it cannot be a file of the mirror") from None
        path = staging / blake3(name.encode()).hexdigest(8)
        origins[name] = save(url, open_at, path, partial(_shown, show, before, fetch.many))
        paths[name], before = path, before + path.stat().st_size
    return Download({name: file_hash(path) for name, path in paths.items()}, paths, origins)


def _shown(show: Callable[[int, int | None], None], before: int, many: bool, here: int, total: int | None) -> None:
    show(before + here, None if many else total)


def _sources(fetch: Fetch, specs: Path) -> dict[str, Open]:
    """What opens each file of a download, by its name."""
    match fetch.scheme:
        case "http" | "https":
            return {PurePosixPath(fetch.name).name: partial(http.open_at, fetch.url)}
        case "s3":
            return s3.objects(fetch)
        case _:
            return local.files(fetch, specs)


def _in_folder(fetch: Fetch, download: Download) -> tuple[dict[str, str], dict[str, Path]]:
    """Hashes and files of a download by their path in the dataset's folder."""
    paths = {name: str(PurePosixPath(fetch.name, name)) if fetch.many else fetch.name for name in download.parts}
    return (
        {paths[name]: file_hash(path) for name, path in download.paths.items()},
        {paths[name]: path for name, path in download.paths.items()},
    )


def _place(
    fetch: Fetch, folder: Path, hashes: dict[str, str], staged: dict[str, Path], record: dict[str, Fetched]
) -> None:
    """Give files their names; those that an earlier state of the download had and this one hasn't are removed."""
    old = record[fetch.source].files if fetch.source in record else {}
    of_others = {name for source, other in record.items() if source != fetch.source for name in other.files}
    for name, hash_ in hashes.items():
        target = folder / name
        in_the_way = target.exists() and staged[name] != target and (name not in old or name in of_others)
        if in_the_way and not (target.is_file() and file_hash(target) == hash_):
            raise UserError(
                f"{target}: fetching {fetch.source} would replace it by something else; move it away, or give the "
                "download a place of its own with `into`"
            )
    for name, path in staged.items():
        if path != folder / name:
            move(path, folder / name)
    for name in old.keys() - hashes.keys() - of_others:
        (folder / name).unlink(missing_ok=True)


def _changed(fetch: Fetch, got: str, download: Download, then: Fetched | None, place: Path) -> str:
    """What is wrong with a download, what changed since the last one, and what to do."""
    now = f"got {got}{_described(download.origins)}"
    words = [f"{fetch.source}: not the content that is pinned: expected blake3 {fetch.blake3}, {now}"]
    if not fetch.blake3 and then:
        words = [f"{fetch.source}: changed since {then.when}: expected blake3 {then.blake3}, {now}"]
    if then:
        if described := _described(then.origins):
            words.append(f"on {then.when} it was {then.blake3}{described}")
        kinds = {
            "changed": [n for n in download.parts if n in then.parts and then.parts[n] != download.parts[n]],
            "new": [name for name in download.parts if name not in then.parts],
            "gone": [name for name in then.parts if name not in download.parts],
        }
        words += [
            f"{kind}: {', '.join(sorted(names)[:5])} ({len(names)})" for kind, names in kinds.items() if names
        ]
    keep = "revision" if fetch.scheme == "hf" else f"file as {place}" if not fetch.many else f"files in {place}"
    words.append(f"if the change is meant, put `blake3: {got}` into the spec, else put the earlier {keep}")
    return "; ".join(words)


def _described(origins: dict[str, Origin]) -> str:
    if len(origins) != 1:
        return ""
    [origin] = origins.values()
    said = [f"{origin.size:,} bytes" if origin.size is not None else "", origin.etag and f"ETag {origin.etag}"]
    said.append(origin.last_modified and f"Last-Modified {origin.last_modified}")
    return f" ({', '.join(filter(None, said))})"
