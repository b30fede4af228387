"""The command that measures how well checkpoints transfer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import (
    STORE,
    Address,
    Json,
    Root,
    Specs,
    Wide,
    app,
    corpus_names,
    picture,
    resumable,
    say,
)
from pipelines.report.render import json_array, show, write_out

if TYPE_CHECKING:
    from pipelines.probe.cell import Shots


@app.command()
def probe(
    runs: Annotated[list[str], typer.Argument(help="Name runs, checkpoints, packaged models or encoders.")],
    corpora: Annotated[str, typer.Option(help="Measure on these ingested corpora, separated by commas.")],
    shots: Annotated[str, typer.Option(help="Train on this many records per category, or all.")] = "0,5,50",
    seeds: Annotated[int, typer.Option(min=1, help="Draw the shots this many times.")] = 3,
    against: Annotated[str, typer.Option(help="Compare with this run or encoder; minilm for short.")] = "minilm",
    limit: Annotated[int, typer.Option(min=1, help="Measure this many records of each corpus.")] = 500,
    replay: Annotated[str, typer.Option(help="Measure forgetting of this mixture, without and with replay.")] = "",
    share: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.99, help="Replay this share of the training records; default: 0.2."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Measure these of its corpora; default: all possible.")] = "",
    out: Annotated[
        Path | None,
        typer.Option(parser=picture, metavar="FILE", help="Draw the metric by shots: .svg, .png or .pdf."),
    ] = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Measure how well checkpoints transfer to other corpora.

    It fine-tunes each run, and --against, on a few records per category, and measures it on held-out records. All
    use the same shots, epochs and learning rates. The store keeps finished runs (view `probes`), so that the same
    command continues after a stop. --json prints each of them. --replay also measures how much of a mixture the
    checkpoints forget, without and with a share of its records in the training.

    Example: ubert probe universal-small --corpora trec,wnut17 --shots 0,5,50 --out transfer.svg
    """
    from pipelines.probe.probe import SHARE
    from pipelines.probe.probe import probe as job
    from pipelines.probe.report import curves, forgotten
    from pipelines.probe.report import table as rows
    from pipelines.specs import mixture, specs_folder

    if keep and not replay:
        raise typer.BadParameter("--keep needs --replay, the mixture that has these corpora")
    if share and not replay:
        raise typer.BadParameter("--share needs --replay, the mixture to replay")
    names = list(dict.fromkeys([*runs, *([against] if against else [])]))
    with resumable():
        results = job(
            names,
            corpus_names(corpora),
            shots=[_shots(word.strip()) for word in shots.split(",")],
            seeds=seeds,
            limit=limit,
            root=root,
            address=address,
            replay=mixture(replay, specs_folder(specs)) if replay else None,
            share=share or SHARE,
            keep=corpus_names(keep) if keep else None,
        )
    plain = [one for one in results if not one.get("replay")]
    if as_json:
        write_out(json_array(results))  # no table: shots are numbers or "all"
    else:
        show(rows(plain), as_json=False, wide=wide)
        if replay:
            show(forgotten(results), as_json=False, wide=wide)
    if out:
        curves(plain, out)
        say(f"wrote {out}", as_json=as_json)


def _shots(word: str) -> Shots:
    if word == "all":
        return "all"
    if not word.isdecimal():
        raise typer.BadParameter(
            f"{word!r} is not a number of shots; expected numbers separated by commas, or all"
        )
    return int(word)
