"""Texts of many requests in one pass of the model: while it works, others wait, and go together next."""

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
    from ubert.objectives import Overlaps, Prediction, Query

Found = TypeVar("Found")
Key = tuple[float | None, str | tuple[tuple[str, str], ...]]
PATIENCE = 0.4  # share of the seconds until a time-out that texts may be expected to wait
KEPT = 0.7  # weight of the batches before the last one in the speed of late
CHARACTERS = 40_000  # of texts that go together: what waits behind them waits for all of them

logger = logging.getLogger(__name__)


class FullError(Exception):
    """Too many texts wait. `seconds`: about when there is room."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.seconds = seconds


@dataclass(slots=True, eq=False)
class _Text:
    """A text that waits for its predictions. Those of one key can go together. `size`: characters to read."""

    query: Query
    size: int
    threshold: float | None
    overlap: Overlaps
    key: Key
    answer: asyncio.Future[list[Prediction]]


class Engine:
    """A model, and the texts that wait for it. Its thread loads the model, then answers.

    Args:
        load: makes the model.
        limits: how many texts may wait, and for how long.
        together: texts of one pass, at most.
    """

    def __init__(self, load: Callable[[], Predictor], *, limits: Limits, together: int, metrics: Metrics) -> None:
        self.predictor: Predictor | None = None
        self._load, self._limits, self._together, self._metrics = load, limits, together, metrics
        self._waiting: deque[_Text] = deque()
        self._arrived, self._loaded = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "model")
        self._read, self._seconds = 0.0, 0.0  # characters of late, and how long the model read them
        metrics.waiting.set_function(lambda: len(self._waiting))

    async def run(self) -> None:
        """Load the model, and answer until cancelled.

        Raises:
            UserError: the model can't be loaded.
        """
        try:
            self.predictor = await self.apart(self._load)
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
        """The model, once it is loaded."""
        await self._loaded.wait()
        assert self.predictor is not None
        return self.predictor

    async def apart(self, work: Callable[[], Found]) -> Found:
        """Do something in the model's thread, when its turn comes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def check_room(self) -> None:
        """Raises:
        FullError: too many texts wait: more than may (until the model has answered once, more than go together),
            or more than the model can read in time, as fast as it is of late.
        """
        most = self._limits.waiting if self._read else min(self._together, self._limits.waiting)
        seconds = sum(text.size for text in self._waiting) * self._seconds / self._read if self._read else 0.0
        if len(self._waiting) >= most or seconds > PATIENCE * self._limits.seconds:
            raise FullError(max(1, min(60, math.ceil(seconds))))

    async def predict(
        self, queries: Sequence[Query], threshold: float | None, overlap: Overlaps
    ) -> list[list[Prediction]]:
        """The predictions of each text. Whoever gives up waiting cancels this, and the rest is not computed.

        Raises:
            FullError: too many texts wait.
            UserError: a text or category doesn't fit.
        """
        self.check_room()
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

    def _next(self) -> list[_Text]:
        """The text that has waited longest, and others of its key."""
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
            found = await self.apart(lambda: _predictions(predictor, batch))
        except Exception as error:  # those who wait get it
            if len(batch) > 1:  # only one of the texts may be at fault
                for text in batch:
                    await self._answer(predictor, [text])
                return
            if not isinstance(error, UserError):
                logger.exception("a text has no answer")
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
