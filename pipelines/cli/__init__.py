"""The `ubert` command: parses, calls one job, prints."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli import (  # noqa: F401  (their commands)
    cluster,
    corpora,
    drafting,
    generate,
    models,
    probe,
    suspects,
    tuning,
    use,
)
from pipelines.cli.shared import app, plainly


@app.callback()
def options(debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False) -> None:
    """Every labelled text dataset, one corpus, one model."""


def main() -> None:
    """The `ubert` command."""
    plainly(app)
