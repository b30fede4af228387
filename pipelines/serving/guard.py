"""ASGI middleware that checks a request's API key and the size of its body."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import MutableMapping
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.serving.metrics import Metrics
from pipelines.serving.wire import Limits

BROWSE = "/browse"
GUARDED = ("/v1/", "/metrics", BROWSE)  # the model's page and /health need no API key
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Guard:
    """ASGI middleware that checks requests, adds security headers to responses, and counts requests.

    Args:
        key: the API key. Guarded requests send it as `Authorization: Bearer KEY`, or as the password
            of any user, for which a browser prompts. None: they need none.
    """

    def __init__(self, app: ASGIApp, *, key: str | None, limits: Limits, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent.setdefault(name, value)
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        finally:
            if status:  # else the client has disconnected
                path = getattr(scope.get("route"), "path", "other")
                self.metrics.requests.labels(path, status).inc()
                self.metrics.seconds.labels(path).observe(time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        asked = _asked(scope["path"], scope.get("root_path", ""))
        if not self._allowed(asked, headers):
            sentence = "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'"
            challenge = 'Basic realm="ubert"' if asked.startswith(BROWSE) else "Bearer"
            await refusal(401, sentence, {"www-authenticate": challenge})(scope, receive, send)
            return
        try:
            body = await self._body(headers, receive)
        except _RefusedError as error:
            await refusal(error.status, error.sentence)(scope, receive, send)
            return
        if body is not None:  # else the client has disconnected
            await self.app(scope, _replay(body, receive), send)

    def _allowed(self, path: str, headers: MutableMapping[bytes, bytes]) -> bool:
        if self.key is None or not path.startswith(GUARDED):
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        scheme = scheme.lower()
        if scheme == b"basic":
            given = _password(given)
        return scheme in (b"basic", b"bearer") and hmac.compare_digest(given, self.key)

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
            sentence = f"the request did not arrive within {self.limits.seconds:g} seconds; send it again"
            raise _RefusedError(408, sentence) from None


class _RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def _asked(path: str, prefix: str) -> str:
    """Return the path as the router reads it: without a route prefix, such as one of Ray Serve."""
    return path.removeprefix(prefix) if f"{path}/".startswith(f"{prefix}/") else path


def _password(credentials: bytes) -> bytes:
    """Return the password of `Authorization: Basic`."""
    with suppress(ValueError):
        return base64.b64decode(credentials).partition(b":")[2]
    return b""


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was already read, then later messages."""
    given = False

    async def replaying() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replaying


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as JSON in ASCII, because it may quote any characters that the client sent."""
    return Response(json.dumps({"error": sentence}), status, headers, "application/json")
