"""A least-recently-used disk cache of bounded size, which all processes of a machine share.

    <name>              a complete file; its mtime is the time of its last use
    <name>.half         a file that is being written; its disk space is allocated before the first byte is written
    <process>.held      the files that a process uses, one name a line; the process locks it while it lives
    .lock               locked during each change of the cache; it contains the number of bytes of all files, or
                        nothing if they must be counted again

When a new file needs space, the least recently used files are evicted. Files in use are never evicted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ubert.schema.errors import UserError

CACHE = 200_000_000_000  # bytes, unless --cache says otherwise
HALF, HELD, LOCK = ".half", ".held", ".lock"


class BusyError(Exception):
    """Another thread or process is writing the file."""


class DiskCache:
    """A folder of at most `bound` bytes.

    Raises:
        UserError: the folder can't be written.
    """

    def __init__(self, folder: Path, bound: int) -> None:
        self.folder, self.bound = folder, bound
        self._held: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._locked():  # until the file is locked, another process would count it as a dead process's
                self._holding = (folder / f"{uuid.uuid4().hex}{HELD}").open("w", encoding="utf-8")
                fcntl.flock(self._holding, fcntl.LOCK_EX)
        except OSError as error:
            raise UserError(
                f"{folder}: the cache cannot be written ({error.strerror}); set XDG_CACHE_HOME to another"
            ) from None

    def find(self, name: str, *, use: bool = True) -> Path | None:
        """Return the file of that name, or None if there is none. With `use`, it is in use from now on."""
        path = self.folder / name
        with self._locked():
            if not path.exists():
                return None
            os.utime(path)
            if use:
                self._mark_used(name)
        return path

    def reserve(self, name: str, size: int) -> BinaryIO | None:
        """Open a file of `size` bytes to write, and then to pass to `finish` or `give_up`. Return None if files in
        use leave no space.

        Raises:
            BusyError: another thread or process is writing the file.
            UserError: the disk is full, and the cache has no file left to evict.
        """
        with self._locked() as lock:
            half = self._half(name)
            try:
                if self._has_room(lock, size):
                    self._allocate(lock, half, size)
                    return half
            except BaseException:
                self._discard(half)
                lock.truncate(0)
                raise
            self._discard(half)
        return None

    def finish(self, name: str, half: BinaryIO, *, use: bool = True) -> Path:
        """Rename a complete file to its final name. With `use`, it is in use from now on."""
        half.flush()
        os.fsync(half.fileno())
        path = self.folder / name
        with self._locked():
            if use:
                self._mark_used(name)
            Path(half.name).replace(path)
            half.close()
        return path

    def give_up(self, half: BinaryIO) -> None:
        """Remove a file that could not be written."""
        with self._locked() as lock:
            self._discard(half)
            self._count(lock, self._scanned())

    def keep(self, names: Iterable[str]) -> None:
        """Release all files that this process uses, except these."""
        kept = set(names)
        with self._locked():
            if self._held - kept:
                self._held &= kept
                self._holding.seek(0)
                self._holding.truncate()
                self._holding.write("".join(f"{name}\n" for name in sorted(self._held)))
                self._holding.flush()

    def _half(self, name: str) -> BinaryIO:
        """Open an empty file to write, locked against other processes as long as it is open."""
        path = self.folder / f"{name}{HALF}"
        half = path.open("r+b" if path.exists() else "w+b")  # no race: creating and renaming need `.lock`
        try:
            fcntl.flock(half, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            half.close()
            raise BusyError from None
        half.truncate(0)
        return half

    def _mark_used(self, name: str) -> None:
        if name not in self._held:
            self._held.add(name)
            self._holding.write(f"{name}\n")
            self._holding.flush()

    def _has_room(self, lock: BinaryIO, size: int) -> bool:
        """Evict files until `size` bytes fit, and add them to the count. Return whether they fit."""
        used = int(lock.read() or self._scanned())
        if used + size > self.bound:
            self._evict(used + size - self.bound)
            used = self._scanned()
        fits = used + size <= self.bound
        self._count(lock, used + size * fits)
        return fits

    def _allocate(self, lock: BinaryIO, half: BinaryIO, size: int) -> None:
        while size:
            try:
                os.posix_fallocate(half.fileno(), 0, size)
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                half.truncate(0)
                lock.truncate(0)
                if not self._evict(size):
                    raise UserError(
                        f"{self.folder}: the disk is full, but the cache is below its limit; free some disk "
                        "space, lower --cache, or set XDG_CACHE_HOME to a larger disk, then run the same command "
                        "again"
                    ) from None

    def _evict(self, needed: int) -> int:
        """Evict unused files until at least `needed` bytes are freed or none is left. Return the bytes freed."""
        used = self._used()
        found = [(path, path.stat()) for path in self._files() if path.name not in used and path.suffix != HALF]
        freed = 0
        for path, stat in sorted(found, key=lambda pair: pair[1].st_mtime_ns):
            if freed >= needed:
                break
            path.unlink()
            freed += stat.st_size
        return freed

    def _used(self) -> set[str]:
        """Return the names of files that any process uses, and remove the leftovers of dead processes."""
        names = set(self._held)
        for path in self.folder.glob(f"*{HELD}"):
            with path.open(encoding="utf-8") as file:
                if path.name != Path(self._holding.name).name and _is_unlocked(file.fileno()):
                    path.unlink()
                else:
                    names.update(file.read().split())
        for path in self.folder.glob(f"*{HALF}"):
            with path.open("rb") as half:
                if _is_unlocked(half.fileno()):
                    path.unlink()
        return names

    def _files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.suffix != HELD and path.name != LOCK]

    def _scanned(self) -> int:
        return sum(path.stat().st_size for path in self._files())

    def _count(self, lock: BinaryIO, used: int) -> None:
        lock.seek(0)
        lock.truncate()
        lock.write(str(used).encode())
        lock.flush()

    def _discard(self, half: BinaryIO) -> None:
        Path(half.name).unlink(missing_ok=True)
        half.close()

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with (self.folder / LOCK).open("ab+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            yield lock


def _is_unlocked(descriptor: int) -> bool:
    """Return whether no process locks an open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
