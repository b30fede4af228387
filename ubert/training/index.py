"""The copies of rows in order of their size: what batches are cut from.

Copies of about one size share a bucket. The order is a file beside the shards, made at the first run that needs it
and mapped into memory by all others, so that a run over any number of rows starts at once.

Shapes: R rows of a part of a file, E distinct sizes, M copies of all rows, K buckets.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.record import TASKS
from ubert.training.permutation import Longs
from ubert.training.shards import Shards
from ubert.training.sizes import Sizes

_BITS = 24  # of a number of sequences, and of a length, in a key
_LARGEST = (1 << _BITS) - 1
CHUNK = 1 << 20  # rows that are looked at together
NARROW = 0.92  # rows share a bucket down to this part of its longest, so that little of a pack is padding


class Index(NamedTuple):
    """`row_M`: the row of each copy, bucket by bucket. Bucket k is row_M[start_K[k] : start_K[k + 1]], and
    `most_K` of its copies make up a pack at most; `task_K` numbers its task where tasks are kept apart, else it
    is 0."""

    row_M: npt.NDArray[np.uint32]
    start_K: Longs
    most_K: Longs
    task_K: Longs


def index(shards: Shards, sizes: Sizes, pack: int, by_task: bool) -> Index:
    """The index of a set of shards for packs of at most `pack` padded tokens."""
    name = fingerprint(shards.manifest.fingerprint, sizes.of, pack, by_task, NARROW)
    places = [shards.directory / f"order-{name}-{part}.npy" for part in ("buckets", "rows")]
    if not all(place.exists() for place in places):
        _build(shards, sizes, pack, by_task, *places)
    start_K, most_K, task_K = np.load(places[0], allow_pickle=False)
    return Index(np.load(places[1], mmap_mode="r", allow_pickle=False), start_K, most_K[:-1], task_K[:-1])


def _build(shards: Shards, sizes: Sizes, pack: int, by_task: bool, buckets: Path, rows: Path) -> None:
    """Count the copies of each size, cut buckets, and deal the rows out to them: a counting sort in two passes."""
    counts: dict[int, int] = {}
    for _, key_R, copies_R in _keyed(shards, sizes, by_task):
        key_E, place_R = np.unique(key_R, return_inverse=True)
        count_E = np.bincount(place_R, weights=copies_R).astype(np.int64)
        for key, count in zip(key_E.tolist(), count_E.tolist(), strict=True):
            counts[key] = counts.get(key, 0) + count
    key_E = np.array(sorted(counts), np.int64)
    count_E = np.array([counts[key] for key in key_E.tolist()], np.int64)
    first_E, most_K, task_K = _cut(key_E, count_E, pack)
    total_E = np.append(0, np.cumsum(count_E))
    start_K = total_E[np.append(first_E, len(key_E))]
    with _whole(rows) as path:
        row_M = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint32, shape=(int(start_K[-1]),))
        free_K = start_K[:-1].copy()
        for row_R, key_R, copies_R in _keyed(shards, sizes, by_task):
            bucket_R = np.searchsorted(key_E[first_E], key_R, side="right") - 1
            order_R = np.argsort(bucket_R, kind="stable")
            dealt = np.repeat(row_R[order_R], copies_R[order_R])
            dealt_to = np.repeat(bucket_R[order_R], copies_R[order_R])
            count_K = np.bincount(dealt_to, minlength=len(free_K))
            before_K = np.cumsum(count_K) - count_K
            row_M[np.arange(len(dealt)) + (free_K - before_K)[dealt_to]] = dealt
            free_K += count_K
        row_M.flush()
    with _whole(buckets) as path, path.open("wb") as file:
        np.save(file, np.stack([start_K, np.append(most_K, 0), np.append(task_K, 0)]), allow_pickle=False)


def _keyed(shards: Shards, sizes: Sizes, by_task: bool) -> Iterator[tuple[Longs, Longs, Longs]]:
    """Rows, their keys (task, then sequences, then length: the largest first) and copies, a part at a time."""
    for file in shards.files:
        tasks = np.array([TASKS.index(task) if by_task else 0 for task in file.tasks], np.int64)
        for start in range(0, len(file), CHUNK):
            stop = min(start + CHUNK, len(file))
            length_R, pieces_R = sizes(file, start, stop)
            size_R = (_LARGEST - pieces_R << _BITS) + _LARGEST - length_R
            key_R = (tasks[file.task[start:stop]] << 2 * _BITS) + size_R
            yield np.arange(file.first + start, file.first + stop), key_R, file.copies[start:stop].astype(np.int64)


def _cut(key_E: Longs, count_E: Longs, pack: int) -> tuple[Longs, Longs, Longs]:
    """The first sizes of buckets, the copies of a pack of each, and their tasks.

    A bucket has sizes close to each other; where those are too few copies for a pack, it goes on until they are
    enough, or the task ends.
    """
    task_E = key_E >> 2 * _BITS
    pieces_E, length_E = _LARGEST - (key_E >> _BITS & _LARGEST), _LARGEST - (key_E & _LARGEST)
    first, most, tasks = [0], [], []
    count = widest = longest = 0
    for e in range(len(key_E)):
        begin = first[-1]
        near = pieces_E[e] == pieces_E[begin] and length_E[e] >= NARROW * length_E[begin]
        enough = count >= pack // max(1, longest * widest)
        if e > begin and (task_E[e] != task_E[begin] or (not near and enough)):
            most.append(max(1, pack // (longest * widest)))
            tasks.append(int(task_E[begin]))
            first.append(e)
            count = widest = longest = 0
        count += int(count_E[e])
        widest, longest = max(widest, int(pieces_E[e])), max(longest, int(length_E[e]))
    most.append(max(1, pack // (longest * widest)))
    tasks.append(int(task_E[first[-1]]))
    return np.array(first), np.array(most), np.array(tasks)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `path` once it is whole; another worker may write the same."""
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex}-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot write the order of rows beside the shards: {error.strerror or error}; make room, or "
            "let this user write there"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
