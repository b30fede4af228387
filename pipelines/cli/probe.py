"""The command that asks whether a checkpoint transfers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import STORE, Address, Json, Root, Wide, app, say
from pipelines.report.render import show

if TYPE_CHECKING:
    from pipelines.probe.cell import Shots


@app.command()
def probe(
    runs: Annotated[list[str], typer.Argument(help="Name runs, checkpoints, models of ours, or encoders.")],
    corpora: Annotated[str, typer.Option(help="Measure on these ingested corpora, separated by commas.")],
    shots: Annotated[str, typer.Option(help="Train on this many records per category, or all.")] = "0,5,50",
    seeds: Annotated[int, typer.Option(min=1, help="Draw the shots this many times.")] = 3,
    against: Annotated[str, typer.Option(help="Compare with this run or encoder; minilm for short.")] = "minilm",
    limit: Annotated[int, typer.Option(min=1, help="Measure this many records of each corpus.")] = 500,
    out: Annotated[Path | None, typer.Option(help="Draw the metric by shots into this .svg or .png.")] = None,
    root: Root = STORE,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Measure how well checkpoints transfer to other corpora.

    It fine-tunes each run, and --against, on a few records per category, and measures it on records that it never
    saw. All use the same shots, steps and learning rates. The store keeps finished runs (view `probes`), so that
    the same command continues after a stop. --json prints each of them.

    Example: ubert probe universal-small --corpora trec,wnut17 --shots 0,5,50 --out transfer.svg
    """
    import pyarrow as pa

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
    show(pa.Table.from_pylist(results) if as_json else rows(results), as_json=as_json, wide=wide)
    if out:
        curves(results, out)
        say(f"wrote {out}", as_json=as_json)


def _shots(word: str) -> Shots:
    if word == "all":
        return "all"
    if not word.isdecimal():
        raise typer.BadParameter(f"{word!r} is no number of shots; expected numbers with commas between, or all")
    return int(word)
