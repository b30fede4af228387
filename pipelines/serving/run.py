"""Serve a model or a store from this process until it is interrupted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from pipelines.serving.app import TOGETHER, Browser, create_app
from pipelines.serving.wire import Limits
from pipelines.store.storage import Place
from ubert.model import pretrained
from ubert.schema.collector import paused_collector
from ubert.schema.errors import UserError
from ubert.schema.recipe import Precision

if TYPE_CHECKING:
    from ubert.inference.predictor import Predictor

DEFAULT = "universal-small"
KEPT = 75  # seconds that an idle connection is kept: longer than a client is told to wait, and than proxies do
STOPPING = 10  # seconds that requests in hand have when the server stops


def serve(
    checkpoint: Path | None,
    *,
    root: Place,
    host: str,
    port: int,
    key: str | None,
    limits: Limits,
    precision: Precision,
    together: int = TOGETHER,
    browser: Browser | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve a checkpoint, or the pages of a store, or both. The server answers at once; requests to the model wait
    until it is loaded.

    Args:
        checkpoint: a checkpoint's or run's folder, a run's name in the store, or a model of ours; None: `DEFAULT`,
            or no model where there is a browser.
        port: 0: any that is free.
        announce: is told the server's address.

    Raises:
        UserError: there is no such checkpoint, it is damaged, or the address is taken.
    """
    chosen = None if browser and checkpoint is None else chosen_checkpoint(checkpoint)
    failures: list[BaseException] = []
    server: uvicorn.Server

    def failed(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    app = create_app(
        partial(open_predictor, chosen, root, precision) if chosen else None,
        name=chosen.name if chosen else "",
        limits=limits,
        key=key,
        together=together,
        failed=failed,
        browser=browser,
    )
    listening = _listen(host, port)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_level="warning",
            log_config=None,  # its own would close the log handlers that others have made
            server_header=False,
            timeout_graceful_shutdown=STOPPING,
            timeout_keep_alive=KEPT,
        )
    )
    address, taken = listening.getsockname()[:2]
    announce(f"http://{f'[{address}]' if ':' in address else address}:{taken}")
    server.run([listening])
    if failures:
        raise failures[0]


def chosen_checkpoint(given: Path | None) -> Path:
    """The checkpoint that was given, or our default one.

    Raises:
        UserError: none was given, and the default one is not here.
    """
    if given is None and DEFAULT not in pretrained.names():
        raise UserError(
            f"no model was given, and this installation has no {DEFAULT}; give the folder of a checkpoint, or the "
            "name of a run in the store"
        )
    return given or Path(DEFAULT)


def open_predictor(checkpoint: Path, root: Place, precision: Precision) -> Predictor:
    """Load a checkpoint, and use it once, so that the first request is not the slowest.

    Raises:
        UserError: there is none, or it is damaged.
    """
    with paused_collector():
        import ubert
        from pipelines.models.find import find_checkpoint

        predictor = ubert.load(find_checkpoint(checkpoint, root), precision=precision)
    predictor.predict(["Rain."], task="classification", categories=["weather"])
    return predictor


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()  # before the address is announced
    except OSError as error:
        raise UserError(
            f"{host}:{port}: cannot be served: {error.strerror}; give another --host, or another --port "
            "(0: any that is free)"
        ) from None
    return listening
