"""The application with all its commands."""

from __future__ import annotations

from importlib import metadata
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


def show_version(wanted: bool) -> None:
    """Print the version of the package and end the command."""
    if wanted:
        print(f"ubert {metadata.version('ubert')}")
        raise typer.Exit


@app.callback(epilog="`ubert COMMAND --help` shows the options of a command and an example.")
def options(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn labelled text datasets into one corpus and one model."""
