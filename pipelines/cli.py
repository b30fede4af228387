"""The `ubert` command: parses, calls one job, prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from ubert.schema.errors import UserError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()
errors = Console(stderr=True)

Root = Annotated[Path, typer.Option(envvar="UBERT_ROOT", help="The store: where corpora, shards and runs lie.")]
Specs = Annotated[Path | None, typer.Option(envvar="UBERT_SPECS", help="Folder of specs, instead of our own.")]
Data = Annotated[
    Path | None, typer.Option(envvar="UBERT_DATA", help="Mirror of raw sources, one folder per dataset.")
]
STORE = Path("store")


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
    except KeyboardInterrupt:
        errors.print("interrupted; the same command goes on from where it stopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
