"""Dynamic batching: while the model works on one batch, the texts of new requests wait and form the next one."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pipelines.serving.metrics import Metrics
from pipelines.serving.wire import Limits
from ubert.schema.errors import UserError

if TYPE_CHECKING:
    from ubert.inference.predictor import Predictor
    from ubert.inference.tables import StructureTables
    from ubert.objectives import Overlaps, Prediction, Query

Found = TypeVar("Found")
Key = tuple[float | None, str | tuple[tuple[str, str], ...]]
PATIENCE = 0.4  # maximum expected waiting time, as a share of the time-out
KEPT = 0.7  # decay of earlier batches in the moving average of the model's speed
CHARACTERS = 40_000  # a batch is full at this size, because all later texts wait for it

logger = logging.getLogger(__name__)


class FullError(Exception):
    """Too many texts wait. `seconds` estimates when the queue has space again."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.seconds = seconds


@dataclass(slots=True, eq=False)
class _Text:
    """A text that waits for its predictions. Texts with the same key can share a batch. `size` is the
    number of characters that the model reads."""

    query: Query
    size: int
    threshold: float | None
    overlap: Overlaps
    key: Key
    answer: asyncio.Future[list[Prediction]]


class Engine:
    """A model and the queue of texts that wait for it. A thread loads the model and runs it.

    Args:
        load: loads the model.
        limits: how many texts may wait, and for how long.
        together: maximum number of texts in one forward pass.
    """

    def __init__(self, load: Callable[[], Predictor], *, limits: Limits, together: int, metrics: Metrics) -> None:
        self.predictor: Predictor | None = None
        self._load, self._limits, self._together, self._metrics = load, limits, together, metrics
        self._waiting: deque[_Text] = deque()
        self._tables: list[int] = []  # sizes of the texts that wait for their tables
        self._arrived, self._loaded = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "model")
        self._read, self._seconds = 0.0, 0.0  # decayed sums: characters read, and seconds that it took
        metrics.waiting.set_function(lambda: len(self._waiting) + len(self._tables))

    async def run(self) -> None:
        """Load the model, and answer requests until cancelled.

        Raises:
            UserError: the model can't be loaded.
        """
        try:
            self.predictor = await self.in_model_thread(self._load)
            self._loaded.set()
            while True:
                await self._arrived.wait()
                if batch := self._next():
                    await self._answer(self.predictor, batch)
                else:
                    self._arrived.clear()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def ready(self) -> Predictor:
        """Wait until the model is loaded, and return it."""
        await self._loaded.wait()
        assert self.predictor is not None
        return self.predictor

    async def in_model_thread(self, work: Callable[[], Found]) -> Found:
        """Run a function in the model's thread, after those submitted before it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def check_capacity(self) -> None:
        """Check that the queue has space for more texts.

        Raises:
            FullError: the queue has reached `limits.waiting`, or the model can't read it in time at its recent
                speed. Until the model has answered once, at most one batch may wait.
        """
        most = self._limits.waiting if self._read else min(self._together, self._limits.waiting)
        sizes = [*(text.size for text in self._waiting), *self._tables]
        seconds = sum(sizes) * self._seconds / self._read if self._read else 0.0
        if len(sizes) >= most or seconds > PATIENCE * self._limits.seconds:
            raise FullError(max(1, min(60, math.ceil(seconds))))

    async def predict(
        self, queries: Sequence[Query], threshold: float | None, overlap: Overlaps
    ) -> list[list[Prediction]]:
        """Return the predictions of each text. If the caller cancels this, its waiting texts are dropped.

        Raises:
            FullError: too many texts wait.
            UserError: a text or category doesn't fit.
        """
        self.check_capacity()
        loop = asyncio.get_running_loop()
        key = (threshold, tuple(sorted(overlap.items())) if isinstance(overlap, Mapping) else overlap)
        texts = [_Text(query, _size(query), threshold, overlap, key, loop.create_future()) for query in queries]
        self._waiting.extend(texts)
        self._arrived.set()
        try:
            return await asyncio.gather(*(text.answer for text in texts))
        finally:
            for text in texts:
                text.answer.cancel()
            if any(text.answer.cancelled() for text in texts):
                self._waiting = deque(text for text in self._waiting if not text.answer.done())

    async def tables(self, query: Query) -> StructureTables:
        """Score the structure tables of a text. If the caller cancels this while it waits, it is dropped.

        Raises:
            FullError: too many texts wait.
            UserError: the model has no tables, or a category doesn't fit.
        """
        from ubert.inference.tables import structure_tables  # with torch, which the model has loaded

        predictor = await self.ready()
        self.check_capacity()
        size = _size(query)
        self._tables.append(size)
        try:
            return await self.in_model_thread(lambda: structure_tables(predictor, query))
        finally:
            self._tables.remove(size)

    def _next(self) -> list[_Text]:
        """Take the next batch from the queue: the oldest text, and others with the same key."""
        batch, others, characters = list[_Text](), list[_Text](), 0
        while self._waiting and len(batch) < self._together and characters < CHARACTERS:
            text = self._waiting.popleft()
            if batch and text.key != batch[0].key:
                others.append(text)
                continue
            batch.append(text)
            characters += text.size
        self._waiting.extendleft(reversed(others))
        return batch

    async def _answer(self, predictor: Predictor, batch: list[_Text]) -> None:
        began = time.perf_counter()
        try:
            found = await self.in_model_thread(lambda: _predictions(predictor, batch))
        except Exception as error:  # passed on to the waiting request
            if len(batch) > 1:  # perhaps only one of the texts causes the error
                for text in batch:
                    await self._answer(predictor, [text])
                return
            if not isinstance(error, UserError):
                logger.exception("a text could not be predicted")
            with suppress(asyncio.InvalidStateError):
                batch[0].answer.set_exception(error)
            return
        self._read = KEPT * self._read + sum(text.size for text in batch)
        self._seconds = KEPT * self._seconds + time.perf_counter() - began
        self._metrics.batches.observe(len(batch))
        for text, predictions in zip(batch, found, strict=True):
            if not text.answer.done():
                text.answer.set_result(predictions)


def _size(query: Query) -> int:
    return len(query.text) + len(query.pair or "") + sum(len(category.name) for category in query.categories)


def _predictions(predictor: Predictor, batch: Sequence[_Text]) -> list[list[Prediction]]:
    thresholds = predictor.thresholds_of(batch[0].threshold)
    answers = predictor.answer([text.query for text in batch], thresholds, batch[0].overlap)
    return [predictions for (predictions,) in answers]
