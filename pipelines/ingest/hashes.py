"""Hash source files and their ranges in one pass, and remember the hashes, so that unchanged files aren't read.

A file counts as unchanged if its size, device, inode and both times (mtime and ctime, in nanoseconds) are the
same. Programs can't set the ctime. A file that changed within the last seconds is not remembered, because the
clock may be too coarse to show its next change. The pins of specs are compared with these hashes. When a file is
read for ingest, it is hashed again.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from tempfile import SpooledTemporaryFile, gettempdir
from typing import BinaryIO, NamedTuple

import msgspec
from blake3 import blake3
from msgspec import Struct

from pipelines.sources import Cut, Quoted, file_hash
from pipelines.sources.parsing.csv import rest_of_record
from pipelines.store.code_hash import code_hash
from pipelines.store.storage import StorePath
from pipelines.store.store import atomic
from ubert.schema.errors import UserError

LONGEST_ROW = 64 << 20  # bytes; a longer row gets its own range, which is rejected without being read completely
BLOCK = 1 << 20
PIECE = 4_096  # files whose hashes are written in one line
SPOOLED = 4 << 20  # bytes of new hashes that stay in memory; more are spooled to disk
SETTLED = 2.0  # seconds after its last change from which a file is remembered

Advance = Callable[[float, float], None]  # reports progress: files (or fractions of one) and MB
State = tuple[int, ...]  # size, device, inode, mtime and ctime, which change with the content of a file


class Range(NamedTuple):
    """Bytes [start, stop) of a file. `line` is the number of the first line, from 1. `too_long` means that the
    range is one row over the limit, which is not read."""

    start: int
    stop: int
    line: int
    sha: str
    too_long: bool = False


class Hashed(Struct, frozen=True, gc=False, array_like=True):
    """The hash of a file, and its ranges if it is cut."""

    state: State
    sha: str
    ranges: tuple[Range, ...]


class Hashes:
    """Hashes of source files, remembered between runs in `sources/<dataset>.jsonl`.

    The first line is the hash of the code that wrote the file. Each other line has several files, by their names
    and how they are cut. If a file occurs in several lines, the last one counts.
    """

    def __init__(self, place: StorePath | None = None) -> None:
        """Read the hashes from `place`; None means that nothing is remembered."""
        self.place = place
        self.known = _read(place)
        self.found: dict[str, Hashed] = {}
        # Serialised lines with new hashes, also from other processes.
        self.pieces = SpooledTemporaryFile(SPOOLED)  # noqa: SIM115  # `keep` closes it
        self.settled = (time.time() - SETTLED) * 1e9  # files that changed later are not remembered

    def of(
        self, folder: str, name: str, cut: Cut = None, limit: int = 0, advance: Advance = lambda files, mb: None
    ) -> Hashed:
        """Return the hash of a dataset's file. If `cut` is given and the file has more than `limit` bytes, add its
        ranges, each of `limit` bytes plus the rest of the last row.

        Raises:
            UserError: there is no such file, or it cannot be read.
        """
        path = f"{folder}/{name}"
        try:
            if self.known:
                state = _state(path, os.stat(path))
                known = self.known.get(_key(name, state, cut, limit))
                if known is not None and known.state == state:
                    advance(1, state[0] / 1e6)
                    return known
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would block
            try:
                state = _state(path, os.fstat(file))
                key = _key(name, state, cut, limit)
                if key == name:
                    found = Hashed(state, _whole(path, file, state[0]), ())
                    advance(1, state[0] / 1e6)
                else:
                    found = Hashed(state, *_in_ranges(path, cut, limit, state[0], advance))
            finally:
                os.close(file)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}; the spec names it as a source file") from None
        if state[3] < self.settled and state[4] < self.settled:
            self.found[key] = found  # safe even if the file changed meanwhile: its state differs then
            if self.place is not None and len(self.found) == PIECE:
                self.take(self.drain())
        return found

    def drain(self) -> bytes:
        """Return and clear the new hashes, as bytes for `take`, possibly in another process."""
        packed = msgspec.json.encode(self.found)
        self.found.clear()
        return packed

    def take(self, packed: bytes) -> None:
        """Add hashes that `drain` returned.

        Raises:
            UserError: there is no space for temporary files.
        """
        try:
            self.pieces.write(packed + b"\n")
            self.pieces.flush()
        except OSError as error:
            raise UserError(
                f"{gettempdir()}: {error.strerror or error}: hashes of source files wait there until all are "
                "known; free some disk space, or name another folder in TMPDIR"
            ) from None

    def keep(self) -> None:
        """Write all hashes for the next run.

        Raises:
            UserError: the store cannot be written.
        """
        if self.place is None or not (self.found or self.pieces.tell()):
            return
        self.take(self.drain())
        self.pieces.seek(0)
        with self.pieces, atomic(self.place) as path, path.open("wb") as file:
            for line in chain([msgspec.json.encode(code_hash(__name__))], _encoded(self.known)):
                file.write(line + b"\n")
            shutil.copyfileobj(self.pieces, file)


def ranges(path: str, cut: Cut, limit: int, tell: Callable[[bytes], None] = lambda data: None) -> Iterator[Range]:
    """Yield the ranges of a file, which is read once. `tell` gets all its bytes, in order.

    At most about `limit` bytes and one row are in memory, and only `LONGEST_ROW` bytes of a row that is too long.
    """
    start, line = 0, 1

    def following(digest: str, size: int, lines: int, *, too_long: bool = False) -> Range:
        nonlocal start, line
        found = Range(start, start + size, line, digest, too_long)
        start, line = start + size, line + lines
        return found

    with open(path, "rb") as file:
        while data := file.read(limit):
            tell(data)
            rest, size = _rest(file, cut, tell), 0
            row: list[bytes] = []
            while size <= LONGEST_ROW and (block := next(rest, None)):
                row.append(block)
                size += len(block)
            whole = _last_end(data, cut) if len(data) + size > LONGEST_ROW else len(data)
            if len(data) - whole + size <= LONGEST_ROW:
                data += b"".join(row)
                if isinstance(cut, Quoted):
                    # a quote right after the mark opens a field, as in the reader
                    begun = data.removeprefix(codecs.BOM_UTF8) if start == 0 else data
                    tell(more := rest_of_record(file, begun, cut.separator))
                    data += more
                yield following(_hash(data).hexdigest(), len(data), _line_ends(data, cut))
                continue
            if whole:
                yield following(_hash(data[:whole]).hexdigest(), whole, _line_ends(data[:whole], cut))
            digest, size, lines = _hash(), 0, 0
            for block in chain([data[whole:]], row, rest):
                digest.update(block)
                size, lines = size + len(block), lines + _line_ends(block, cut)
            yield following(digest.hexdigest(), size, lines, too_long=True)


def range_hash(path: str, start: int, stop: int) -> str:
    """Return the hex blake3 of the bytes [start, stop) of a file, read in blocks."""
    digest = _hash()
    with open(path, "rb") as file:
        file.seek(start)
        while start < stop and (block := file.read(min(stop - start, 16 * BLOCK))):
            digest.update(block)
            start += len(block)
    return digest.hexdigest()


def _state(path: str, found: os.stat_result) -> State:
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{path}: not a file; the spec names it as a source file")
    return found.st_size, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _key(name: str, state: State, cut: Cut, limit: int) -> str:
    """Return the key of a file: its name, and how it is cut, if it is."""
    return f"{name} {cut} {limit}" if cut and state[0] > limit else name


def _whole(path: str, file: int, size: int) -> str:
    """Return the hash of an open file of `size` bytes."""
    if size > BLOCK:
        return file_hash(path)
    data = os.read(file, size)
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return blake3(data).hexdigest()


def _in_ranges(path: str, cut: Cut, limit: int, size: int, advance: Advance) -> tuple[str, tuple[Range, ...]]:
    digest = _hash()

    def tell(data: bytes) -> None:
        digest.update(data)
        advance(len(data) / size, len(data) / 1e6)

    found = tuple(ranges(path, cut, limit, tell))
    return digest.hexdigest(), found


def _hash(data: bytes = b"") -> blake3:
    return blake3(data, max_threads=blake3.AUTO)


def _rest(file: BinaryIO, cut: Cut, tell: Callable[[bytes], None]) -> Iterator[bytes]:
    """Yield in blocks the bytes up to the end of the line, or of the next blank line if `cut` says so."""
    begun = True  # the current line has bytes
    while block := file.readline(BLOCK):
        tell(block)
        yield block
        ended = block.endswith(b"\n")
        if ended and (cut != "blank line" or not (begun or block.strip())):
            return
        begun = not ended


def _last_end(data: bytes, cut: Cut) -> int:
    """Return the end of the last complete row of `data`, or 0 if there is none."""
    if cut != "blank line":
        return data.rfind(b"\n") + 1
    return max((blank.end() for blank in re.finditer(rb"(?:(?<=\n)|\A)[ \t\r\f\v]*\n", data)), default=0)


def _line_ends(data: bytes, cut: Cut) -> int:
    """Count the line ends in `data`. In CSV a lone CR counts too, as in its reader."""
    lone = data.count(b"\r") - data.count(b"\r\n") if isinstance(cut, Quoted) else 0
    return data.count(b"\n") + lone


def _encoded(files: dict[str, Hashed]) -> Iterator[bytes]:
    items = iter(files.items())
    while piece := dict(islice(items, PIECE)):
        yield msgspec.json.encode(piece)


def _read(place: StorePath | None) -> dict[str, Hashed]:
    """Read the hashes that the same version of the code wrote, if there are any."""
    if place is None:
        return {}
    try:
        code, *pieces = place.read_text("utf-8").rstrip("\n").split("\n")
        if msgspec.json.decode(code) != code_hash(__name__):
            return {}
        known: dict[str, Hashed] = {}
        for piece in pieces:
            known |= msgspec.json.decode(piece, type=dict[str, Hashed])
        return known
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, msgspec.DecodeError):
        return {}
