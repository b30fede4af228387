"""The `ubert` command: parses, calls one job, prints."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from pipelines.cli import corpora, models  # noqa: F401  (their commands)
from pipelines.cli.shared import app, errors
from ubert.schema.errors import UserError


@app.callback()
def options(debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False) -> None:
    """Every labelled text dataset, one corpus, one model."""


def main() -> None:
    """Run the command; a `UserError` is one plain sentence and exit code 1."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(1)
