"""Prepare steps in advance, in order, by a thread or by processes.

A GPU takes steps faster than one Python process can prepare them. Processes are forked, so they share the memory
of the shards, and send their batches as arrays.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from ubert.loader.loader import Loader, Step
    from ubert.loader.shards import Shards

AHEAD = 4  # steps that a thread, or each process, prepares in advance
MOST_PROCESSES = 12

T = TypeVar("T")


def processes_for(device: torch.device) -> int:
    """Return how many processes should prepare the steps of a worker on this device.

    Without a GPU it is none, because a step takes longer than its preparation. Otherwise it is the worker's share
    of the machine's cores, less one.
    """
    if device.type != "cuda":
        return 0
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) // workers - 1))


def by_thread(make: Callable[[int], T], numbers: range) -> Generator[T]:
    """Yield what `make` returns for each number. A thread calls it in advance, one number after another."""
    thread = ThreadPoolExecutor(1, "loader")
    ahead = deque(thread.submit(make, i) for i in numbers[:AHEAD])
    try:
        for i in range(len(numbers)):
            made = ahead.popleft().result()
            ahead.extend(thread.submit(make, later) for later in numbers[i + AHEAD : i + AHEAD + 1])
            yield made
    finally:
        thread.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Sent:
    """A step with arrays instead of tensors, each of which would take a file handle to send."""

    step: Step

    def pin_memory(self) -> Step:
        """Return the step in pinned memory. A thread of the DataLoader calls this."""
        return self.received().pin_memory()

    def received(self) -> Step:
        batches = [batch.moved(torch.from_numpy, np.ndarray) for batch in self.step.batches]
        return replace(self.step, batches=batches)


class _Steps(Dataset[_Sent]):
    """The steps of a loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getitem__(self, i: int) -> _Sent:
        step = self._loader.step(i)
        batches = [batch.moved(Tensor.numpy) for batch in step.batches]
        return _Sent(replace(step, batches=batches, shards=cast("Shards", None)))


def by_processes(loader: Loader, numbers: range, processes: int) -> Generator[Step]:
    """Yield the step of each number, made by processes in advance."""
    made: DataLoader[Any] = DataLoader(
        _Steps(loader),
        batch_size=None,
        sampler=numbers,
        num_workers=processes,
        prefetch_factor=AHEAD,
        pin_memory=loader.pin,
        multiprocessing_context="fork",
        generator=torch.Generator(),  # the default would draw a number from torch's global generator
    )
    # A signal to the run and its processes asks the run for a checkpoint; the run then ends the processes. They
    # ignore signals, but one that arrives before they can do so would kill them. So signals are blocked here.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        started = iter(made)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for one in started:
        step = one.received() if isinstance(one, _Sent) else one
        yield replace(step, shards=loader.shards)
