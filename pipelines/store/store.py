"""The layout of the store, on disk or in an object store, and atomic writes to it.

    corpora/<name>/<fingerprint>/   part-<unit>.parquet, rejects-<unit>.parquet if there are any, files.parquet,
                                    manifest.json (attempt.json if too many rows were rejected)
    mixtures/<name>/<fingerprint>/  members.parquet, dropped.parquet, manifest.json
    shards/<name>/<fingerprint>/    shard-*.arrow, categories.arrow, prompts.arrow, draws.arrow, lost.parquet,
                                    manifest.json
    audits/<name>/<fingerprint>/    matches.parquet and other tables of evidence, manifest.json
    folds/<key>.parquet             predictions for the fold of a corpus on which the model was not trained
    sources/<dataset>.jsonl         hashes of source files; beside it the labels that specs took from their data,
                                    <name>-<fingerprint>.categories.json
    runs/<name>/                    recipe.yaml, checkpoints/, logs/, manifest.json
    proxies/<key>.json              losses after a proxy run; affinity/<mixture>.json and tunings/<evidence>.json
                                    have the results of many

A directory counts as finished once it has a manifest. The newest one of a name is the current one. If the store is
an object store, a run is trained on a machine's disk and uploaded during training (`remote_run.py`).

On disk, a lock keeps two jobs from writing the same name. An object store needs no lock: files are written
atomically and named by their content, so both jobs write the same files, and the last manifest is the current one.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from pipelines.store.storage import ObjectPath, StorePath, copy, download, remove, upload
from ubert.schema.disk import to_disk
from ubert.schema.dynamics import FOLDER as DYNAMICS
from ubert.schema.errors import UserError
from ubert.schema.manifest import (
    ATTEMPT,
    MANIFEST,
    AnyManifest,
    AuditManifest,
    CorpusManifest,
    Manifest,
    MixtureManifest,
    ShardManifest,
    read_manifests,
)
from ubert.schema.names import checked_name

if TYPE_CHECKING:  # imported late, so that commands that read nothing start fast
    import pyarrow as pa
    import pyarrow.parquet as pq

Kind = Literal["corpora", "mixtures", "shards", "audits"]

_MANIFESTS: dict[Kind, type[Manifest]] = {
    "corpora": CorpusManifest,
    "mixtures": MixtureManifest,
    "shards": ShardManifest,
    "audits": AuditManifest,
}
_SINGULAR: dict[Kind, str] = {"corpora": "corpus", "mixtures": "mixture", "shards": "mixture", "audits": "audit"}
_COMMANDS: dict[Kind, str] = {
    "corpora": "ubert ingest",
    "mixtures": "ubert mix",
    "shards": "ubert shard",
    "audits": "ubert",
}
TEMPORARY = ".tmp-"  # prefix of partial files, and of folders of a job in progress


@dataclass(frozen=True)
class Store:
    """A store in a folder or under a prefix of an object store. Methods raise `UserError` if access fails."""

    root: StorePath

    def directory(self, kind: Kind, name: str, fingerprint: str) -> StorePath:
        """Return the directory of a name and fingerprint, whether it exists or not."""
        return self._home(kind, name) / fingerprint

    def _home(self, kind: Kind, name: str) -> StorePath:
        """Return the directory of all versions of a name. Only here is a name joined to a path."""
        return self.root / kind / checked_name(_SINGULAR[kind], name)

    def dynamics(self, run: str = "*") -> list[StorePath]:
        """Return the files of the training dynamics of a run, or of all runs."""
        return sorted((self.root / "runs").glob(f"{run}/{DYNAMICS}/*.parquet"), key=str)

    def sources(self, dataset: str) -> StorePath:
        """Return the file of the hashes of a dataset's source files."""
        return self.root / "sources" / f"{checked_name('dataset', dataset)}.jsonl"

    def names(self, kind: Kind) -> list[str]:
        """Return the sorted names of a kind that have a finished directory."""
        return sorted({path.parent.parent.name for path in (self.root / kind).glob(f"*/*/{MANIFEST}")})

    @overload
    def current(self, kind: Literal["corpora"], name: str) -> tuple[StorePath, CorpusManifest]: ...
    @overload
    def current(self, kind: Literal["mixtures"], name: str) -> tuple[StorePath, MixtureManifest]: ...
    @overload
    def current(self, kind: Literal["shards"], name: str) -> tuple[StorePath, ShardManifest]: ...
    @overload
    def current(self, kind: Literal["audits"], name: str) -> tuple[StorePath, AuditManifest]: ...
    def current(self, kind: Kind, name: str) -> tuple[StorePath, Manifest]:
        """Return the newest finished directory of a name, and its manifest. Directories of another version of this
        software are ignored once this version has made one.

        Raises:
            UserError: there is none; the message names the command that makes it.
        """
        finished, of_others = read_manifests(self._home(kind, name), _MANIFESTS[kind])
        if of_others and not finished:
            raise of_others[0][1]
        if not finished:
            close = difflib.get_close_matches(name, self.names(kind), n=1)
            meant = f"did you mean {close[0]}? Or " if close else ""
            raise UserError(
                f"{self._home(kind, name)}: nothing here yet; {meant}make it with `{_COMMANDS[kind]} {name}`, "
                "or point --root (UBERT_ROOT) to the store that has it"
            )
        return max(finished, key=_recency)

    @overload
    def currents(self, kind: Literal["corpora"]) -> dict[str, tuple[StorePath, CorpusManifest]]: ...
    @overload
    def currents(self, kind: Literal["mixtures"]) -> dict[str, tuple[StorePath, MixtureManifest]]: ...
    @overload
    def currents(self, kind: Literal["shards"]) -> dict[str, tuple[StorePath, ShardManifest]]: ...
    @overload
    def currents(self, kind: Literal["audits"]) -> dict[str, tuple[StorePath, AuditManifest]]: ...
    def currents(self, kind: Kind) -> Mapping[str, tuple[StorePath, Manifest]]:
        """Return what `current` returns for each name, sorted by name. In an object store this takes one listing.
        Names that only another version of this software made are left out.

        Raises:
            OtherVersionError: such a name is a corpus, which audits and hold-outs must not miss.
        """
        finished, of_others = read_manifests(self.root / kind, _MANIFESTS[kind], f"*/*/{MANIFEST}")
        newest = {pair[0].parent.name: pair for pair in sorted(finished, key=_recency)}
        for directory, error in of_others:
            if kind == "corpora" and directory.parent.name not in newest:
                raise error
        return dict(sorted(newest.items()))

    def attempt(self, corpus: str) -> tuple[StorePath, CorpusManifest] | None:
        """Return the result of the last ingest of a corpus, if too many rejects kept it from being published."""
        home = self._home("corpora", corpus)
        made, _ = read_manifests(home, CorpusManifest, f"*/{ATTEMPT}")
        published, _ = read_manifests(home, CorpusManifest)
        last = max(made, key=lambda pair: pair[1].created, default=None)
        return last if last and all(last[1].created >= other.created for _, other in published) else None

    @contextmanager
    def working_on(self, kind: Kind, name: str) -> Iterator[None]:
        """Lock a name for writing. Partial files are removed before and after.

        Raises:
            UserError: another process is writing it, or the store cannot be written.
        """
        home = self._home(kind, name)
        if not isinstance(home, Path):  # object stores have no partial files
            yield
            return
        with _explained(home):
            home.mkdir(parents=True, exist_ok=True)
            lock = (home / ".lock").open("wb")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{home}: another process is writing it; run again when that has ended") from None
            _clean(home)
            try:
                yield
            finally:
                _clean(home)  # remove the files of workers that died

    def publish(self, kind: Kind, manifest: Manifest, file: str = MANIFEST) -> StorePath:
        """Write the manifest of a directory whose other files are complete, which finishes the directory.

        With `ATTEMPT` as `file`, the directory stays unfinished. `created` becomes the latest time of the name,
        even if the clock was set back.
        """
        directory = self.directory(kind, manifest.name, manifest.fingerprint)
        made = (read_manifests(directory.parent, _MANIFESTS[kind], f"*/{one}")[0] for one in (MANIFEST, ATTEMPT))
        before = [other.created for others in made for _, other in others]
        if manifest.created <= (latest := max(before, default="")):
            created = datetime.fromisoformat(latest) + timedelta(microseconds=1)
            manifest = manifest.model_copy(update={"created": _timestamp(created)})
        with atomic(directory / file) as path:
            path.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return directory

    def again(self, kind: Kind, manifest: AnyManifest) -> AnyManifest:
        """Make a finished directory the current one of its name again, if there is a newer one or a newer attempt.
        Return its manifest."""
        attempted = kind == "corpora" and self.attempt(manifest.name)
        if attempted or self.current(kind, manifest.name)[1].fingerprint != manifest.fingerprint:
            manifest = manifest.model_copy(update={"created": now()})
            self.publish(kind, manifest)
        return manifest


def _recency(made: tuple[StorePath, Manifest]) -> tuple[str, str]:
    return made[1].created, made[1].fingerprint


def read_json(file: StorePath) -> dict[str, Any]:
    """Read a file of one JSON object. Raises `FileNotFoundError` if there is none."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def write_json(file: StorePath, content: Mapping[str, Any], indent: int | None = None) -> None:
    """Write a JSON object atomically."""
    with atomic(file) as path:
        path.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def now() -> str:
    """Return the current time in the format of manifests."""
    return _timestamp(datetime.now(UTC))


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


@contextmanager
def atomic(path: StorePath) -> Iterator[Path]:
    """Yield a temporary path to write to. When the block ends, the file is synced to disk and renamed to `path`,
    or uploaded as that object.

    Raises:
        UserError: it cannot be written (no permission, disk full, not a directory), or the object store fails.
    """
    if isinstance(path, ObjectPath):
        with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
            with _explained(Path(folder)):
                yield Path(folder) / path.name
            upload(Path(folder) / path.name, path)
        return
    assert isinstance(path, Path)
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}-{path.name}"
    with _explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            to_disk(temporary)
            temporary.replace(path)
            to_disk(path.parent)
        except BaseException:
            with suppress(OSError):  # what can't be removed now, `working_on` of the next run removes
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def parquet_writer(file: StorePath, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet file that is written atomically (see `atomic`). `options` are of Arrow's writer."""
    import pyarrow.parquet as pq

    with atomic(file) as path, pq.ParquetWriter(path, schema, compression="zstd", **options) as writer:
        yield writer


@contextmanager
def on_this_disk(file: StorePath) -> Iterator[Path]:
    """Yield a file that can be mapped into memory: the file itself, or a temporary copy of an object.

    Raises:
        UserError: the disk is full, there is no such object, or the object store fails.
    """
    if isinstance(file, Path):
        yield file
        return
    assert isinstance(file, ObjectPath)
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
        path = Path(folder) / file.name
        with _explained(Path(folder)):
            download(file, path)
        yield path


def link(old: StorePath, new: StorePath) -> None:
    """Give content a second name, by a hard link or a copy inside the object store if possible.

    Raises:
        UserError: the store cannot be written.
    """
    if isinstance(old, ObjectPath) and isinstance(new, ObjectPath):
        copy(old, new)
        return
    with atomic(new) as temporary:
        if isinstance(old, ObjectPath):
            download(old, temporary)
            return
        try:
            os.link(str(old), temporary)
        except OSError:  # a file system without links
            shutil.copyfile(str(old), temporary)


def _clean(home: Path) -> None:
    for temporary in home.glob(f"*/{TEMPORARY}*"):
        remove(temporary)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert a failure of the file system to a `UserError`."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"{path}: cannot write to the store: {cause}; nothing incomplete is kept: free some disk space or "
            "choose another --root (UBERT_ROOT), then run the same command again"
        ) from error
