"""What a request passes before the app sees it: its API key, and the size of its body."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.serving.metrics import Metrics
from pipelines.serving.wire import Limits

GUARDED = ("/v1/", "/metrics")  # the page and /health are open
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Guard:
    """An ASGI app around another one.

    Args:
        key: what guarded requests send as `Authorization: Bearer KEY`; None: they need none.
    """

    def __init__(self, app: ASGIApp, *, key: str | None, limits: Limits, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.expected = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in given),
                ]
            await send(message)

        headers = dict(scope["headers"])
        if not self._allowed(scope["path"], headers):
            await refuse(sending, 401, "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
        else:
            try:
                body = await self._body(headers, receive)
            except _RefusedError as error:
                await refuse(sending, error.status, error.sentence)
            else:
                if body is None:  # the client is gone
                    return
                await self.app(scope, _replay(body, receive), sending)
        path = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(path, status).inc()
        self.metrics.seconds.labels(path).observe(time.perf_counter() - began)

    def _allowed(self, path: str, headers: MutableMapping[bytes, bytes]) -> bool:
        if self.expected is None or not path.startswith(GUARDED):
            return True
        return hmac.compare_digest(headers.get(b"authorization", b""), self.expected)

    async def _body(self, headers: MutableMapping[bytes, bytes], receive: Receive) -> bytes | None:
        most = self.limits.body
        length = headers.get(b"content-length", b"0")
        too_large = f"the request has more than {most:,} bytes; send it in parts"
        if length.isdigit() and int(length[:20]) > most:
            raise _RefusedError(413, too_large)
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise _RefusedError(413, too_large)
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            sentence = f"the request did not come within {self.limits.seconds:g} seconds; send it again"
            raise _RefusedError(408, sentence) from None


class _RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that has come, then whatever comes."""
    given = False

    async def replaying() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replaying


async def refuse(send: Send, status: int, sentence: str) -> None:
    """Answer with an error."""
    body = error_body(sentence)
    more: dict[str, str] = {"www-authenticate": "Bearer"} if status == 401 else {}
    headers: dict[str, Any] = {"content-type": "application/json", "content-length": str(len(body)), **more}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def error_body(sentence: str) -> bytes:
    """One sentence as JSON; what the client sent may be quoted in it, in any characters."""
    return json.dumps({"error": sentence}).encode()
