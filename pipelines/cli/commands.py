"""The application with all its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli import (  # noqa: F401  (their commands)
    cluster,
    corpora,
    drafting,
    generate,
    mixtures,
    models,
    probe,
    suspects,
    tuning,
    use,
)
from pipelines.cli.shared import app

__all__ = ["app"]


@app.callback(epilog="`ubert COMMAND --help` shows the options of a command and an example.")
def options(debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False) -> None:
    """Turn labelled text datasets into one corpus and one model."""
