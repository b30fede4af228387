"""Unpack untrusted archives safely. No member may be outside the folder or be a link, and sizes are limited."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from blake3 import blake3

from pipelines.mirror.names import Places
from ubert.schema.errors import UserError

MEMBERS = 500_000
BYTES = 256 << 30  # limit of all members together
RATIO, FLOOR = 250, 64 << 20  # unpacked limit: RATIO times the archive's size + FLOOR; text reaches 30 to 50 times
CHUNK = 1 << 20

Member = tuple[str, IO[bytes] | None]  # name and content; None: a folder
Part = Callable[[str], str | None]  # returns the path of a member by its name; None: it is left out


class _RefusedError(Exception):
    """The name of a refused member, and the reason."""


def unpack(archive: Path, called: str, folder: Path, part: Part = lambda name: name) -> dict[str, str]:
    """Unpack a zip, tar (.gz, .bz2, .xz) or .gz into a new `folder`. Return the hex blake3 of each member by path.

    Args:
        called: the archive's name, whose ending tells its type.
        part: returns the path of a member by its name, or None to leave it out.

    Raises:
        UserError: the archive is broken, or a member is refused; the message names it. A member is refused if it
            would be outside the folder, is a link or a device, or has the name of another one. Members are also
            refused if there are too many or they are too large. Members that are left out are not checked. The
            caller removes files that were written before.
    """
    room = min(BYTES, FLOOR + RATIO * archive.stat().st_size)
    hashes: dict[str, str] = {}
    places = Places()
    written, done = 0, ""
    try:
        for number, (name, content) in enumerate(_members(archive, called, room, part), 1):
            if number > MEMBERS:
                raise _RefusedError(name, f"exceeds the limit of {MEMBERS:,} members")
            path = _place(places, name, part(name) or "", folder=content is None)
            target = folder / path
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            size, hashes[path] = _write(name, content, target, room - written)
            written, done = written + size, path
    except _RefusedError as refused:
        name, why = refused.args
        raise UserError(f"{called}: member {name!r} {why}; nothing was unpacked: do not trust it") from None
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # an error of the disk; EINVAL instead means an offset before the start of the archive
        where = f" after member {done!r}" if done else ""
        raise UserError(
            f"{called}: a broken archive{where}: {error or type(error).__name__}; get it again"
        ) from None
    return hashes


_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,  # zipfile doesn't know the compression
    RecursionError,  # headers are chained too deeply
)


def _members(archive: Path, called: str, room: int, part: Part) -> Iterator[Member]:
    kind = called.lower()
    if kind.endswith(".zip"):
        return _zip(archive, part)
    if kind.endswith((".tar", ".tgz", ".tbz2", ".txz")) or ".tar." in kind:
        return _tar(archive, kind, room, part)
    return _gz(archive, called)


def _place(places: Places, name: str, path: str, *, folder: bool) -> str:
    try:
        path = places.take(path, folder=folder)
    except ValueError as error:
        raise _RefusedError(name, str(error)) from None
    if not path and not folder:
        raise _RefusedError(name, "has no name")
    return path


def _write(name: str, content: IO[bytes], target: Path, room: int) -> tuple[int, str]:
    """Write a member, and return its size and hash."""
    whole, size = blake3(), 0
    with target.open("xb") as file:
        while data := content.read(CHUNK):
            size += len(data)
            if size > room:
                raise _RefusedError(name, f"exceeds the {room:,} bytes that this archive may still unpack to")
            whole.update(data)
            file.write(data)
    return size, whole.hexdigest()


def _zip(archive: Path, part: Part) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            # zipfile cuts a name at a NUL.
            name = info.orig_filename if "\0" in info.orig_filename else info.filename
            if part(name) is None:
                continue
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _RefusedError(name, "is a link or a device")
            if info.flag_bits & 1:
                raise _RefusedError(name, "is encrypted")
            if name.endswith("/"):
                yield name, None
                continue
            with file.open(info) as content:
                yield name, content


def _tar(archive: Path, kind: str, room: int, part: Part) -> Iterator[Member]:
    with _decompressed(archive, kind) as stream:
        bounded = _Bounded(stream, room)
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:") as tar:
            for info in tar:
                if part(info.name) is None:
                    continue
                if not info.isdir() and info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise _RefusedError(info.name, "is a link or a device")
                try:  # Python's own check, as a second defence
                    tarfile.data_filter(info, str(archive.parent))
                except tarfile.FilterError:
                    raise _RefusedError(info.name, "leads out of its folder") from None
                except ValueError:
                    raise _RefusedError(info.name, "has a name that no file can have") from None
                content = None if info.isdir() else tar.extractfile(info)
                yield info.name, content
                if content is not None and content.tell() != info.size:
                    raise _RefusedError(info.name, "is truncated")
        # tarfile takes a broken header for the end, so everything after the end must be zeros.
        rest = bounded.last
        while not rest.strip(b"\0"):
            if not (rest := bounded.read(CHUNK)):
                return
        raise tarfile.ReadError("a header in its middle cannot be read")


def _decompressed(archive: Path, kind: str) -> IO[bytes]:
    opened: dict[str, Any] = {"gz": gzip.open, "z2": bz2.open, "xz": lzma.open}
    return cast(IO[bytes], opened.get(kind[-2:], open)(archive, "rb"))


class _Bounded:
    """A stream that raises an error after `room` bytes, including headers and gaps between members."""

    def __init__(self, stream: IO[bytes], room: int) -> None:
        self.stream, self.room = stream, room
        self.last = b""  # result of the last read

    def read(self, size: int) -> bytes:
        if size > CHUNK:  # tarfile reads an extended header at once, whatever size it claims
            raise tarfile.ReadError(f"a header says that it has {size:,} bytes")
        if self.stream.tell() > self.room:
            raise tarfile.ReadError(f"it unpacks to more than {self.room:,} bytes")
        self.last = self.stream.read(size)
        return self.last

    def seek(self, place: int) -> int:
        return self.stream.seek(place)

    def tell(self) -> int:
        return self.stream.tell()


def _gz(archive: Path, called: str) -> Iterator[Member]:
    with gzip.open(archive) as content:
        yield called.rsplit("/", 1)[-1].removesuffix(".gz"), cast(IO[bytes], content)
