"""The source files that a spec names: which they are, what they hash to, and where they are to be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipelines.collector import collector_paused
from pipelines.hashes import BLOCK, Hashes, Range, State, state_of
from pipelines.progress import meter
from pipelines.sources import Cut, joined_hash, matches, reader
from pipelines.specs import file_options
from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.spec import DatasetSpec

UNIT_BYTES = 8 << 20  # a larger file is cut
MANY = 4_096  # so many files of which none is known are looked at by tasks ...
TASK_FILES = 1_024  # ... of so many

Run = Callable[..., Iterator[tuple[int, Any]]]  # as `pipelines.tasks.completed`


class LocalFile(NamedTuple):
    """A source file and those that are read together with it. `entry`: the place of its entry in the spec's
    `files`; `states` and `hashes` of each member, `sha` of all, `ranges` where it is to be cut."""

    entry: int
    members: tuple[str, ...]
    states: tuple[State, ...]
    cut: Cut
    hashes: tuple[str, ...] = ()
    sha: str = ""
    ranges: Sequence[Range] = ()

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum([state[0] for state in self.states])


def source_files(spec: DatasetSpec, folder: Path, hashes: Hashes, run: Run | None = None) -> list[LocalFile]:
    """The source files of `spec` under `folder`, hashed; by the tasks of `run`, where they are many and none is
    known.

    Raises:
        UserError: a file is missing or cannot be read, or is named twice in a split.
    """
    listed = _listed(spec, folder)
    if run is None or hashes.known or len(listed) < MANY:
        found = _hashed(spec, folder, _looked_at(spec, folder, listed), hashes)
    else:
        # Numbers and paths apart: Ray is slow with very many tuples.
        numbers, paths = [number for number, _ in listed], [path for _, path in listed]
        cut = [slice(i, i + TASK_FILES) for i in range(0, len(listed), TASK_FILES)]
        jobs = [(spec, folder, numbers[some], paths[some]) for some in cut]
        found = _by_tasks(spec, jobs, hashes, run)
    hashes.keep()
    return found


def _listed(spec: DatasetSpec, folder: Path) -> list[tuple[int, str]]:
    """The number of the entry and the path of each file that the spec names."""
    listed = [(number, path) for number, entry in enumerate(spec.files) for path in matches(folder, entry.path)]
    named: set[tuple[Split, str]] = set()
    for number, path in listed:
        split = spec.files[number].split
        if (split, path) in named:
            raise UserError(f"{spec.name}: files: {path} is named twice in split {split}; name it once")
        named.add((split, path))
    return listed


def _by_tasks(spec: DatasetSpec, jobs: list[tuple[Any, ...]], hashes: Hashes, run: Run) -> list[LocalFile]:
    found: list[list[LocalFile]] = [[] for _ in jobs]
    with meter(f"hashing {spec.name}", sum(len(paths) for *_, paths in jobs), "files") as advance:
        for index, outcome in run(_look, jobs):
            if isinstance(outcome, UserError):
                raise outcome
            found[index], settled = msgspec.msgpack.decode(outcome, type=tuple[list[LocalFile], bytes])
            hashes.take(settled)
            advance(len(found[index]), len(found[index]))
    return list(chain.from_iterable(found))


@collector_paused()
def _look(spec: DatasetSpec, folder: Path, numbers: list[int], paths: list[str]) -> bytes:
    """Some source files, and what of them may be remembered; in bytes, which Ray hands on as they are."""
    hashes = Hashes()
    found = _hashed(spec, folder, _looked_at(spec, folder, zip(numbers, paths, strict=True)), hashes)
    return msgspec.msgpack.encode((found, hashes.told()))


def _looked_at(spec: DatasetSpec, folder: Path, listed: Iterable[tuple[int, str]]) -> list[LocalFile]:
    form, found = reader(spec.format), []
    options = [file_options(spec, entry) for entry in spec.files]
    for number, path in listed:
        members = (path, *form.companions(folder, path, options[number]))
        states = tuple([state_of(f"{folder}/{member}") for member in members])
        cuttable = len(members) == 1 and states[0][0] > UNIT_BYTES
        found.append(LocalFile(number, members, states, form.split_at(options[number]) if cuttable else None))
    return found


def _hashed(spec: DatasetSpec, folder: Path, sources: Sequence[LocalFile], hashes: Hashes) -> list[LocalFile]:
    """The same files with their hashes."""
    found = []
    with meter(f"hashing {spec.name}", sum(source.size for source in sources), "MB") as advance:
        done = 0

        def tell(size: int) -> None:
            nonlocal done
            done += size
            if done >= BLOCK:  # files may be small
                advance(done, done / 1e6)
                done = 0

        for number, members, states, cut, *_ in sources:
            of_each = [
                hashes.of(folder, member, state, cut, UNIT_BYTES, tell)
                for member, state in zip(members, states, strict=True)
            ]
            shas = tuple([one.sha for one in of_each])
            sha = joined_hash(dict(zip(members, shas, strict=True)))
            found.append(LocalFile(number, members, states, cut, shas, sha, of_each[0].ranges))
        advance(done, done / 1e6)
    return found
