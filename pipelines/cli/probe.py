"""The command that asks whether a checkpoint transfers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import STORE, Address, Root, app, console
from pipelines.render import table

if TYPE_CHECKING:
    from pipelines.probe.cell import Shots


@app.command()
def probe(
    runs: Annotated[list[str], typer.Argument(help="Runs, checkpoints, models of ours, or encoders.")],
    corpora: Annotated[str, typer.Option(help="Names of ingested corpora, with commas between.")],
    shots: Annotated[str, typer.Option(help="Records of each category to train on: numbers, or all.")] = "0,5,50",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of the shots.")] = 3,
    against: Annotated[str, typer.Option(help="A run or encoder to compare with; minilm for short.")] = "minilm",
    limit: Annotated[int, typer.Option(min=1, help="Records of each corpus to measure, by sampling key.")] = 500,
    out: Annotated[Path | None, typer.Option(help="Draw the metric by shots into this file (.svg, .png).")] = None,
    root: Root = STORE,
    address: Address = None,
) -> None:
    """Measure how well checkpoints transfer to other corpora.

    Each run is fine-tuned on a few records of each category and measured on records it never saw, and so is
    --against. All use the same shots, steps and learning rates. Finished cells are kept in the store (view
    `probes`): the same command goes on where it was stopped.

    Example: ubert probe universal-small --corpora trec,wnut17 --shots 0,5,50 --out transfer.svg
    """
    from pipelines.probe.probe import probe as job
    from pipelines.probe.report import curves
    from pipelines.probe.report import table as rows

    names = list(dict.fromkeys([*runs, *([against] if against else [])]))
    results = job(
        names,
        [name.strip() for name in corpora.split(",")],
        shots=[_shots(word.strip()) for word in shots.split(",")],
        seeds=seeds,
        limit=limit,
        root=root,
        address=address,
    )
    table(rows(results))
    if out:
        curves(results, out)
        console.print(f"curves: {out}", soft_wrap=True, highlight=False)


def _shots(word: str) -> Shots:
    if word == "all":
        return "all"
    if not word.isdecimal():
        raise typer.BadParameter(f"{word!r} is no number of shots; expected numbers with commas between, or all")
    return int(word)
