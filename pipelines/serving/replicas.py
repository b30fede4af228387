"""The server's app on Ray Serve: `serve deploy cluster/serve.yaml`. Each replica has a model and a queue."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.types import ASGIApp

from pipelines.serving.app import create_app
from pipelines.serving.run import chosen_checkpoint, open_predictor
from pipelines.serving.wire import Limits
from pipelines.store.storage import store_path


class Arguments(BaseModel):
    """The `args` of the application in a Serve file.

    `checkpoint` is what `ubert serve` takes. UBERT_ROOT names the store, and UBERT_API_KEY is the API key.
    """

    model_config = ConfigDict(extra="forbid")

    checkpoint: str | None = None
    limits: Limits = Limits()


def build(given: dict[str, Any]) -> Any:
    """Make the application from the `args` of a Serve file. Its deployment is called `Ubert`."""
    from ray import serve

    arguments = Arguments.model_validate(given)

    def app() -> ASGIApp:
        return replica(arguments)

    return serve.deployment(name="Ubert")(serve.ingress(app)()).bind()


def replica(arguments: Arguments) -> ASGIApp:
    """Return the app of one replica, with its model loaded.

    Raises:
        UserError: there is no such checkpoint, it is corrupt, or the API key is empty. Ray Serve shows this and
            retries.
    """
    chosen = chosen_checkpoint(Path(arguments.checkpoint) if arguments.checkpoint else None)
    predictor = open_predictor(chosen, store_path(os.environ.get("UBERT_ROOT", "store")), "auto")
    return create_app(
        lambda: predictor, name=chosen.name, limits=arguments.limits, key=os.environ.get("UBERT_API_KEY")
    )
