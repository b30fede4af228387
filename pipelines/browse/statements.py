"""Runs SQL statements that a user wrote, each in a process of its own (`pipelines.store.sandbox`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pyarrow as pa
from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from pipelines.serving.disconnects import is_awaited
from pipelines.store.sandbox import sandbox
from pipelines.store.storage import StorePath

TOGETHER = 2  # statements that run at the same time; others wait


class Statements:
    """Runs statements over a store. A statement ends if its client disconnects."""

    def __init__(self, root: StorePath) -> None:
        self._root, self._turns = root, asyncio.Semaphore(TOGETHER)

    async def __call__(
        self, request: Request, statement: str, what: str, corpora: Collection[str] | None = None
    ) -> pa.Table:
        """Return the rows of one SELECT.

        Raises:
            UserError: as `pipelines.store.sandbox.sql`; the message begins with `what`.
        """
        async with self._turns:
            with sandbox(self._root, corpora) as ask:
                answer = asyncio.ensure_future(run_in_threadpool(ask, statement, what))
                await is_awaited(answer, request)  # leaving the sandbox ends the statement, so `answer` ends too
            return await answer
