"""Write checkpoints in a thread. Training waits only for a copy of the tensors in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.training import parallel
from ubert.training.checkpoints import checkpoint
from ubert.training.checkpoints.checkpoint import State, Tensors


class Writer:
    """Writes the checkpoints of one run, one after another. The memory of the copies is reused.

    Args:
        keep: number of newest checkpoints to keep.
        best: a metric; the checkpoint with its best value is kept too.
        written: called after each checkpoint.
    """

    def __init__(
        self, run: Path, keep: int, best: str | None = None, written: Callable[[], None] = lambda: None
    ) -> None:
        self._run, self._keep, self._best, self.written = run, keep, best, written
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._copies: dict[str, Tensor] = {}

    def save(self, model: UbertModel, tokenizer: Tokenizer, tensors: Tensors, state: State) -> None:
        """Write a checkpoint and remove surplus ones. Returns once all tensors are copied.

        Sharded tensors are gathered one at a time.

        Raises:
            UserError: the previous checkpoint could not be written.
        """
        self.wait()
        with _one_thread():
            copied = Tensors(self._copied("model/", tensors.weights), self._copied("", tensors.states))
        self._writing = self._thread.submit(self._write, model, tokenizer, copied, state)

    def check(self) -> None:
        """Raise the error of the last checkpoint, if writing it has ended with one.

        Raises:
            UserError: it could not be written.
        """
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            UserError: the last checkpoint could not be written.
        """
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def close(self) -> None:
        """End the thread once it has written all that was submitted."""
        self._thread.shutdown()

    def _write(self, model: UbertModel, tokenizer: Tokenizer, tensors: Tensors, state: State) -> None:
        checkpoint.save(self._run, model, tokenizer, tensors, state)
        self.written()  # before older ones go: an object store then never has only what the disk has lost
        checkpoint.prune(self._run, self._keep, self._best)

    def _copied(self, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._copy(prefix + name, tensor) for name, tensor in tensors.items()}

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self._copies:
            self._copies[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return self._copies[name].copy_(parallel.full_tensor(tensor))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Copy with one thread. Threads that share a copy synchronise after each tensor, which takes a hundred
    times as long as the copies when other processes use the CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
