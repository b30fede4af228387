"""Source files to hashed ranges, in one reading; and the memory of them: an unchanged file is not read again.

What the memory trusts: a file whose size, place on the disk and both times (of its content and of its inode, in
nanoseconds) are what they were holds the same bytes. The second time can't be set by a program. A file that has
changed within the last seconds is not remembered: a clock may tick too slowly to tell the next change. The pins of
specs are held against these hashes; whatever is read, is hashed again as it is read.
"""

from __future__ import annotations

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
from pipelines.sources._csv import rest_of_record
from pipelines.store.code_hash import code_hash
from pipelines.store.storage import Place
from pipelines.store.store import atomic
from ubert.schema.errors import UserError

LONGEST_ROW = 64 << 20  # bytes; a longer row is a range of its own, which is refused without being read whole
BLOCK = 1 << 20
PIECE = 4_096  # files whose hashes are written down together
SPOOLED = 4 << 20  # bytes of hashes that are in memory until they are kept; more are on disk
SETTLED = 2.0  # seconds since its last change after which a file is remembered

Advance = Callable[[float, float], None]  # is told of files, or shares of one, and of MB as they are done
State = tuple[int, ...]  # what changes with the content of a file: its size, its place on the disk, its times


class Range(NamedTuple):
    """Bytes [start, stop) of a file; `line`: of the first, from 1; `too_long`: one row that is not to be read."""

    start: int
    stop: int
    line: int
    sha: str
    too_long: bool = False


class Hashed(Struct, frozen=True, gc=False, array_like=True):
    """The hash of a file, and its ranges where it is cut."""

    state: State
    sha: str
    ranges: tuple[Range, ...]


class Hashes:
    """Hashes of source files, remembered from run to run in `sources/<dataset>.jsonl`: a line with the hash of the
    code that wrote them, and lines with some files each, by their names and by how they are cut. The last one that
    names a file counts."""

    def __init__(self, place: Place | None = None) -> None:
        """`place` is where they are kept; None: nowhere."""
        self.place = place
        self.known = _read(place)
        self.found: dict[str, Hashed] = {}
        # What was found before, and by other processes, as it is written down.
        self.pieces = SpooledTemporaryFile(SPOOLED)  # noqa: SIM115  # until `keep`
        self.settled = (time.time() - SETTLED) * 1e9  # what changed later is not remembered

    def of(
        self, folder: str, name: str, cut: Cut = None, limit: int = 0, advance: Advance = lambda files, mb: None
    ) -> Hashed:
        """The hash of a dataset's file, and where it is to be `cut` and has more than `limit` bytes its ranges:
        so many and as far as the next place to cut.

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
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would be waited for
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
            self.found[key] = found  # if it changed meanwhile, it won't have this state again
            if self.place is not None and len(self.found) == PIECE:
                self.take(self.told())
        return found

    def told(self) -> bytes:
        """What was found since it was last told, to `take`, maybe in another process."""
        told = msgspec.json.encode(self.found)
        self.found.clear()
        return told

    def take(self, told: bytes) -> None:
        """Remember what was found.

        Raises:
            UserError: there is no more room for temporary files.
        """
        try:
            self.pieces.write(told + b"\n")
            self.pieces.flush()
        except OSError as error:
            raise UserError(
                f"{gettempdir()}: {error.strerror or error}: hashes of source files wait there until all are "
                "known; make room, or name another folder in TMPDIR"
            ) from None

    def keep(self) -> None:
        """Write them down for the next run.

        Raises:
            UserError: the store cannot be written.
        """
        if self.place is None or not (self.found or self.pieces.tell()):
            return
        self.take(self.told())
        self.pieces.seek(0)
        with self.pieces, atomic(self.place) as path, path.open("wb") as file:
            for line in chain([msgspec.json.encode(_code())], _encoded(self.known)):
                file.write(line + b"\n")
            shutil.copyfileobj(self.pieces, file)


def ranges(path: str, cut: Cut, limit: int, tell: Callable[[bytes], None] = lambda data: None) -> Iterator[Range]:
    """The ranges of a file, which is read once; `tell` is told all its bytes, in order. Not much more than `limit`
    bytes and one row are in memory, of a row that is too long only `LONGEST_ROW` bytes."""
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
                    tell(more := rest_of_record(file, data, cut.separator))
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
    """Hex blake3 of the bytes [start, stop) of a file, read block by block."""
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
    """What a file is remembered by: its name, and how it is cut if it is."""
    return f"{name} {cut} {limit}" if cut and state[0] > limit else name


def _whole(path: str, file: int, size: int) -> str:
    """The hash of an open file of so many bytes."""
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
    """What it takes to end with a whole line or a blank one, in blocks."""
    begun = True  # a line is
    while block := file.readline(BLOCK):
        tell(block)
        yield block
        ended = block.endswith(b"\n")
        if ended and (cut != "blank line" or not (begun or block.strip())):
            return
        begun = not ended


def _last_end(data: bytes, cut: Cut) -> int:
    """Where the last whole row of `data` ends; 0: there is none."""
    if cut != "blank line":
        return data.rfind(b"\n") + 1
    return max((blank.end() for blank in re.finditer(rb"(?:(?<=\n)|\A)[ \t\r\f\v]*\n", data)), default=0)


def _line_ends(data: bytes, cut: Cut) -> int:
    """How many lines end in `data`; of CSV as its reader counts them, with those that end in CR alone."""
    lone = data.count(b"\r") - data.count(b"\r\n") if isinstance(cut, Quoted) else 0
    return data.count(b"\n") + lone


def _encoded(files: dict[str, Hashed]) -> Iterator[bytes]:
    items = iter(files.items())
    while piece := dict(islice(items, PIECE)):
        yield msgspec.json.encode(piece)


def _code() -> str:
    return code_hash("pipelines.ingest.hashes")


def _read(place: Place | None) -> dict[str, Hashed]:
    """What was written down by the same code; else nothing."""
    if place is None:
        return {}
    try:
        code, *pieces = place.read_text("utf-8").rstrip("\n").split("\n")
        if msgspec.json.decode(code) != _code():
            return {}
        known: dict[str, Hashed] = {}
        for piece in pieces:
            known |= msgspec.json.decode(piece, type=dict[str, Hashed])
        return known
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, msgspec.DecodeError):
        return {}
