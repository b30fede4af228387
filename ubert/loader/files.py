"""Access to the files of a shard set, in a folder or through another implementation of `Files`.

Training requests files by their entries in the manifest, and gets paths on the local disk. `pipelines` has
the other implementation, a cache of an object store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from ubert.schema.errors import UserError
from ubert.schema.manifest import ShardFile, ShardManifest, read_manifest


class Files(Protocol):
    """The files of one shard set. `str` gives their location."""

    @property
    def manifest(self) -> ShardManifest: ...

    def path(self, file: ShardFile) -> Path:
        """Return the path of a file on this disk, complete and verified. It stays until `keep` leaves it out.

        Raises:
            UserError: it is missing or damaged, or there is no space for it.
        """
        ...

    def ahead(self, files: Iterable[ShardFile]) -> None:
        """Prefetch files in the order of use. Another thread consumes the iterable, bit by bit."""
        ...

    def keep(self, files: Iterable[ShardFile]) -> None:
        """Release all files but these."""
        ...

    def derived(self, names: Sequence[str], make: Callable[[Sequence[Path]], None]) -> list[Path]:
        """Return files next to the shards that are derived from them. If one is missing, `make` writes all.

        Raises:
            UserError: they can't be written.
        """
        ...


class Folder:
    """A shard set in a local folder.

    Args:
        verify: read every file once and compare it with the manifest's checksum.

    Raises:
        UserError: the folder was never finished, is of another version, or a file is missing or changed.
    """

    def __init__(self, directory: Path, verify: bool = True) -> None:
        self.directory, self.manifest = directory, read_manifest(ShardManifest, directory)
        for file in every_file(self.manifest):
            _check(directory / file.path, file, self.manifest.mixture, verify)

    def __str__(self) -> str:
        return str(self.directory)

    def path(self, file: ShardFile) -> Path:
        return self.directory / file.path

    def ahead(self, files: Iterable[ShardFile]) -> None:
        """Do nothing: the files are local."""

    def keep(self, files: Iterable[ShardFile]) -> None:
        """Do nothing: the files stay."""

    def derived(self, names: Sequence[str], make: Callable[[Sequence[Path]], None]) -> list[Path]:
        paths = [self.directory / name for name in names]
        if all(path.exists() for path in paths):
            return paths
        halves = [path.with_name(f".tmp-{uuid.uuid4().hex}-{path.name}") for path in paths]
        with ExitStack() as stack:
            for half in halves:
                stack.callback(half.unlink, missing_ok=True)
            try:
                make(halves)
                for half, path in zip(halves, paths, strict=True):  # another worker may write them too
                    half.replace(path)
            except OSError as error:
                raise UserError(
                    f"{paths[-1]}: cannot write the order of rows beside the shards: {error.strerror or error}; "
                    "free some disk space, or give this user permission to write there"
                ) from error
        return paths


def every_file(manifest: ShardManifest) -> list[ShardFile]:
    return [*manifest.shards, manifest.draws, manifest.prompts, manifest.categories]


def _check(path: Path, file: ShardFile, mixture: str, verify: bool) -> None:
    cure = f"delete {path.parent} and run `ubert shard {mixture}` again"
    if not path.is_file():
        raise UserError(f"{path}: missing, though the manifest names it; {cure}")
    if verify and (got := blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()) != file.blake3:
        raise UserError(f"{path}: changed since it was written: expected blake3 {file.blake3}, got {got}; {cure}")
