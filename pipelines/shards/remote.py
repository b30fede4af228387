"""Fetch shards from an object store into this machine's cache when training needs them.

Files in the cache are named by their hash, so that shard sets can share files. A file gets its name after its hash
was verified against the manifest. Threads prefetch shards in the order in which batches need them. A prefetched
file is not in use until a step needs it, and may be evicted for a file that a step waits for.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from blake3 import blake3

from pipelines.shards.unit import checksum
from pipelines.store.disk_cache import CACHE, BusyError, DiskCache
from pipelines.store.storage import ObjectPath, StorePath, upload
from pipelines.store.store import read_json, write_json
from ubert.loader.blocks import Blocks
from ubert.loader.files import Files, every_file
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, ShardFile, ShardManifest, read_manifest
from ubert.schema.specs.recipe import MOST_BLOCKS, Recipe

THREADS = 8  # prefetching threads
ATTEMPTS = 3  # downloads of a file whose hash differs from the manifest
POLL, POLL_AHEAD = 0.02, 0.2  # seconds between checks for free space, or for a file that another process fetches
ORDER = 8  # bytes of a row in an order that isn't made yet
PATIENCE = 600.0  # seconds that a step waits for free space


class RemoteShards:
    """The files of a shard set in an object store."""

    def __init__(self, directory: ObjectPath, cache: DiskCache) -> None:
        self.directory, self.manifest = directory, read_manifest(ShardManifest, directory)
        self._cache = cache
        self._sizes = directory.sizes()
        self._shards = {file.blake3 for file in self.manifest.shards}
        self._derived: set[str] = set()  # hashes of files that are not shards; they stay in use
        self._next: Iterator[ShardFile] = iter(())
        self._generation = 0  # number of calls of `ahead`; threads of an earlier call stop
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return str(self.directory)

    def path(self, file: ShardFile) -> Path:
        if file.blake3 not in self._shards:
            self._derived.add(file.blake3)
        until = time.monotonic() + PATIENCE
        while (found := self._found(file.path, file.blake3, use=True)) is None:
            if time.monotonic() > until:
                raise UserError(
                    f"{self._cache.folder}: all {self._cache.bound:,} bytes of the cache are in use by runs of "
                    "this machine; raise --cache, or train fewer runs at a time"
                )
            time.sleep(POLL)
        return found

    def ahead(self, files: Iterable[ShardFile]) -> None:
        wanted = iter(files)
        first = list(islice(wanted, 1))
        with self._lock:
            self._next = chain(first, wanted)
            self._generation += 1
            generation = self._generation
        # Start no thread without files: when Python ends, it closes loaders, and a new thread would never run.
        for _ in range(THREADS if first else 0):
            threading.Thread(target=self._fetch_ahead, args=[generation], daemon=True).start()

    def keep(self, files: Iterable[ShardFile]) -> None:
        self._cache.keep(self._derived | {file.blake3 for file in files})

    def derived(self, names: Sequence[str], make: Callable[[Sequence[Path]], None]) -> list[Path]:
        listed = self.directory / f"{names[-1]}.json"  # their hashes; written last
        try:
            hashes = read_json(listed)
        except FileNotFoundError:
            hashes = self._make(listed, names, make)
        self._sizes = self.directory.sizes()
        return [self.path(ShardFile(path=name, rows=0, tokens=0, blake3=hashes[name])) for name in names]

    def check_capacity(self, recipe: Recipe) -> None:
        """Check that the cache has space for what training needs at a time.

        Raises:
            UserError: it is too small; the message has the needed size, and a number of blocks that fit.
        """
        needed, bound = self._needed(recipe, recipe.shuffle_blocks), self._cache.bound
        if needed > bound:
            most = min(MOST_BLOCKS, len(self.manifest.shards))
            fits = (blocks for blocks in range(2, most + 1) if self._needed(recipe, blocks) <= bound)
            blocks = next(fits, None) if recipe.batches != "cycle" else None
            raise UserError(
                f"--cache {bound:,} bytes: the shards of {self.manifest.mixture} need {needed:,} at a time with "
                f"shuffle_blocks: {recipe.shuffle_blocks}; give a larger --cache, or "
                + (f"set shuffle_blocks: {blocks} in the recipe" if blocks else "train on a smaller mixture")
            )

    def _needed(self, recipe: Recipe, wanted: int) -> int:
        """Return how many bytes training needs at a time: the current and the next block of each objective, a
        shard of an earlier block whose records are named, and all files that aren't shards."""
        shards = [self._sizes.get(file.path, 0) for file in self.manifest.shards]
        names = {file.path for file in every_file(self.manifest)} - {file.path for file in self.manifest.shards}
        beside = sum(size for name, size in self._sizes.items() if name in names)
        orders = sum(size for name, size in self._sizes.items() if name.startswith("order-"))
        beside += orders or ORDER * self.manifest.draws.rows * len(recipe.objectives)
        blocks = Blocks(self.manifest, wanted)
        of_block = [sum(shards[number] for number in blocks.own(block)) for block in range(blocks.count)]
        others = sum(of_block) - 2 * len(recipe.objectives) * max(of_block) - max(shards)
        return beside + sum(shards) - max(0, others)

    def _make(
        self, listed: ObjectPath, names: Sequence[str], make: Callable[[Sequence[Path]], None]
    ) -> dict[str, str]:
        try:
            with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
                paths = [Path(folder) / name for name in names]
                make(paths)
                hashes = {path.name: checksum(path) for path in paths}
                for path in paths:
                    upload(path, self.directory / path.name)
        except OSError as error:
            raise UserError(
                f"{tempfile.gettempdir()}: cannot write the order of rows ({error.strerror or error}); free "
                "some disk space, or set TMPDIR to a larger disk"
            ) from error
        write_json(listed, hashes)
        return hashes

    def _fetch_ahead(self, generation: int) -> None:
        while (file := self._following(generation)) is not None:
            try:
                while self._found(file.path, file.blake3, use=False) is None and generation == self._generation:
                    time.sleep(POLL_AHEAD)
            except (UserError, pa.ArrowInvalid):
                return  # the process ends, and Arrow's S3 before it; else `path` raises it again in a step

    def _following(self, generation: int) -> ShardFile | None:
        with self._lock:
            return next(self._next, None) if generation == self._generation else None

    def _found(self, name: str, wanted: str, *, use: bool) -> Path | None:
        """Return the file, and fetch it if it is missing. Return None if another process or thread is fetching it,
        or if there is no space now."""
        if (path := self._cache.find(wanted, use=use)) is not None:
            return path
        if name not in self._sizes:
            raise self._broken(name, "missing, though the manifest names it")
        try:
            half = self._cache.reserve(wanted, self._sizes[name])
        except BusyError:
            return None
        if half is None:
            return None
        try:
            self._fetch(name, wanted, half)
        except BaseException:
            self._cache.give_up(half)
            raise
        return self._cache.finish(wanted, half, use=use)

    def _fetch(self, name: str, wanted: str, half: BinaryIO) -> None:
        for _ in range(ATTEMPTS):
            half.seek(0)
            hashed = blake3()
            try:
                for block in (self.directory / name).blocks():
                    hashed.update(block)
                    half.write(block)
            except FileNotFoundError:
                raise self._broken(name, "missing, though the manifest names it") from None
            half.truncate()
            if (got := hashed.hexdigest()) == wanted:
                return
        raise self._broken(name, f"not what was written: expected blake3 {wanted}, got {got}")

    def _broken(self, name: str, how: str) -> UserError:
        cure = f"run `ubert shard {self.manifest.mixture}` again, which writes only missing files"
        if name.startswith("order-"):
            return UserError(
                f"{self.directory / name}: {how}; delete all files order-* there; the next run writes them again"
            )
        return UserError(
            f"{self.directory / name}: {how}; delete it and {MANIFEST} in the same folder, then {cure}"
        )


def cache_folder() -> Path:
    """Return the folder in which this machine caches files of object stores."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ubert"


def shard_files(directory: StorePath, bound: int = CACHE) -> Path | Files:
    """Return a shard set on disk or in an object store, as `open_shards` takes it."""
    if isinstance(directory, ObjectPath):
        return RemoteShards(directory, DiskCache(cache_folder(), bound))
    assert isinstance(directory, Path)
    return directory
