"""Where things lie, and how they come to be there: whole, or not at all.

    corpora/<name>/<fingerprint>/   part-<unit>.parquet, rejects-<unit>.parquet, manifest.json
    mixtures/<name>/<fingerprint>/  members.parquet, manifest.json
    shards/<name>/<fingerprint>/    shard-*.arrow, categories.arrow, manifest.json
    audits/<name>/<fingerprint>/    matches.parquet and other tables of evidence, manifest.json
    runs/<name>/                    recipe.yaml, checkpoints/, logs/, manifest.json

A directory exists once its manifest does; the newest one of a name is the current one.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, overload

from ubert.schema.errors import UserError
from ubert.schema.manifest import (
    MANIFEST,
    AnyManifest,
    AuditManifest,
    CorpusManifest,
    Manifest,
    MixtureManifest,
    ShardManifest,
    read_manifest,
)

Kind = Literal["corpora", "mixtures", "shards", "audits"]

_MANIFESTS: dict[Kind, type[Manifest]] = {
    "corpora": CorpusManifest,
    "mixtures": MixtureManifest,
    "shards": ShardManifest,
    "audits": AuditManifest,
}
_COMMANDS: dict[Kind, str] = {
    "corpora": "ubert ingest",
    "mixtures": "ubert mix",
    "shards": "ubert shard",
    "audits": "ubert",
}
_RESIDUE = ".tmp-"


@dataclass(frozen=True)
class Store:
    """A root folder. Methods raise `UserError` where the folder cannot be read or written."""

    root: Path

    def directory(self, kind: Kind, name: str, fingerprint: str) -> Path:
        """Where the thing of that name and content lies, or will lie."""
        return self.root / kind / name / fingerprint

    def run(self, name: str) -> Path:
        """The directory of a training run."""
        return self.root / "runs" / name

    def names(self, kind: Kind) -> list[str]:
        """Names of all finished things of a kind, sorted."""
        return sorted({path.parent.parent.name for path in (self.root / kind).glob(f"*/*/{MANIFEST}")})

    @overload
    def current(self, kind: Literal["corpora"], name: str) -> tuple[Path, CorpusManifest]: ...
    @overload
    def current(self, kind: Literal["mixtures"], name: str) -> tuple[Path, MixtureManifest]: ...
    @overload
    def current(self, kind: Literal["shards"], name: str) -> tuple[Path, ShardManifest]: ...
    @overload
    def current(self, kind: Literal["audits"], name: str) -> tuple[Path, AuditManifest]: ...
    def current(self, kind: Kind, name: str) -> tuple[Path, Manifest]:
        """The newest finished directory of a name, and its manifest.

        Raises:
            UserError: there is none; the message names the command that makes it.
        """
        directories = [path.parent for path in (self.root / kind / name).glob(f"*/{MANIFEST}")]
        finished = [(path, read_manifest(_MANIFESTS[kind], path)) for path in directories]
        if not finished:
            raise UserError(
                f"{self.root / kind / name}: nothing here yet; make it with `{_COMMANDS[kind]} {name}`, "
                "or point --root (UBERT_ROOT) to the store that has it"
            )
        return max(finished, key=lambda pair: (pair[1].created, pair[1].fingerprint))

    @contextmanager
    def working_on(self, kind: Kind, name: str) -> Iterator[None]:
        """Hold the only right to write a name; whatever killed runs left half-written is removed first.

        Raises:
            UserError: another process is writing it, or the store cannot be written.
        """
        home = self.root / kind / name
        with _explained(home):
            home.mkdir(parents=True, exist_ok=True)
            lock = (home / ".lock").open("wb")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{home}: another process is writing it; run again when that has ended") from None
            for residue in home.glob(f"*/{_RESIDUE}*"):
                residue.unlink(missing_ok=True)
            yield

    def publish(self, kind: Kind, manifest: Manifest) -> Path:
        """Write the manifest of a directory whose other files are complete: from now on it exists."""
        directory = self.directory(kind, manifest.name, manifest.fingerprint)
        with atomic(directory / MANIFEST) as path:
            path.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return directory

    def again(self, kind: Kind, manifest: AnyManifest) -> AnyManifest:
        """Make a finished directory the current one of its name, where a newer one is; returns its manifest."""
        if self.current(kind, manifest.name)[1].fingerprint != manifest.fingerprint:
            manifest = manifest.model_copy(update={"created": now()})
            self.publish(kind, manifest)
        return manifest


def now() -> str:
    """The present moment as a manifest says it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the name `path` once it is whole and on the disk.

    Raises:
        UserError: the file cannot be written (no permission, disk full, not a directory).
    """
    temporary = path.parent / f"{_RESIDUE}{uuid.uuid4().hex}-{path.name}"
    with _explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            _to_disk(temporary)
            temporary.replace(path)
            _to_disk(path.parent)
        except BaseException:
            _discard(temporary)
            raise


def _discard(temporary: Path) -> None:
    """Remove what was half written; where even that fails, the next run's `working_on` does it."""
    try:
        temporary.unlink(missing_ok=True)
    except OSError:
        return


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a failure of the file system into a sentence."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"{path}: cannot write to the store: {cause}; nothing incomplete is kept: make room or choose "
            "another --root (UBERT_ROOT), then run the same command again"
        ) from error
