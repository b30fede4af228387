"""Serve a model or a store from this process until it is interrupted."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from pipelines.models.find import find_checkpoint
from pipelines.serving.app import TOGETHER, Browser, create_app
from pipelines.serving.wire import Limits
from pipelines.store.storage import StorePath
from ubert.model import pretrained
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision

if TYPE_CHECKING:
    from ubert.inference.predictor import Predictor

DEFAULT = "universal-small"
KEPT = 75  # keep-alive in seconds: longer than the Retry-After of our answers, and than that of proxies
STOPPING = 10  # seconds that open requests have to finish when the server stops


def serve(
    checkpoint: Path | None,
    *,
    root: StorePath,
    host: str,
    port: int,
    key: str | None,
    limits: Limits,
    precision: Precision,
    together: int = TOGETHER,
    browser: Browser | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve a checkpoint, the pages of a store, or both. The server accepts requests at once; requests to the
    model wait until it is loaded.

    Args:
        checkpoint: the folder of a checkpoint or a run, the name of a run in the store, or the name of
            a pretrained model; None: `DEFAULT`, or no model if there is a browser.
        port: 0: any free port.
        announce: called with the server's address.

    Raises:
        UserError: there is no such checkpoint, it is corrupt, the API key is empty, or the address is in use.
    """
    chosen = None if browser and checkpoint is None else chosen_checkpoint(checkpoint)
    failures: list[BaseException] = []
    server: uvicorn.Server

    def failed(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    folder = find_checkpoint(chosen, root) if chosen else None
    app = create_app(
        partial(open_predictor, folder, root, precision) if folder else None,
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
            log_config=None,  # uvicorn's own would close the handlers of other loggers
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
    """Return the given checkpoint, or the default.

    Raises:
        UserError: none was given, and the default is not installed.
    """
    if given is None and DEFAULT not in pretrained.names():
        raise UserError(
            f"no model was given, and this installation has no {DEFAULT}; give the folder of a checkpoint, or the "
            "name of a run in the store"
        )
    return given or Path(DEFAULT)


def open_predictor(checkpoint: Path, root: StorePath, precision: Precision) -> Predictor:
    """Load a checkpoint, and run it once so that the first request is not slower.

    Raises:
        UserError: there is no such checkpoint, or it is corrupt.
    """
    import ubert

    predictor = ubert.load(find_checkpoint(checkpoint, root), precision=precision)
    predictor.predict(["Rain."], task="classification", categories=["weather"])
    gc.freeze()  # torch and the model stay: without it, the server takes 2 s longer to stop
    return predictor


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()  # before the address is announced
    except (OSError, UnicodeError) as error:  # `a..b` can't be looked up as a host name
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UserError(
            f"{host}:{port}: cannot be served: {reason}; give another --host, or another --port "
            "(0: any that is free)"
        ) from None
    return listening
