"""Notice that a client has disconnected while its answer is computed."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request

POLL = 0.25  # seconds between checks


async def is_awaited(computing: asyncio.Future[Any], request: Request) -> bool:
    """Wait until the computation is done, or until the client has disconnected. Return whether it is done."""
    while not (await asyncio.wait([computing], timeout=POLL))[0]:
        if await request.is_disconnected():
            return False
    return True
