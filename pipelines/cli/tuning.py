"""Commands that measure which sources help, and that find the weights of a mixture."""

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
    check_folder,
    corpus_names,
    picture,
    resumable,
    say,
)
from pipelines.report.render import show

if TYPE_CHECKING:
    from pipelines.tuning.affinity import Affinity
    from pipelines.tuning.setup import Setup
    from pipelines.tuning.tune import Tuned

Targets = Annotated[
    str | None, typer.Option("--for", help="Measure the validation loss of these corpora; default: all.")
]
MixtureName = Annotated[str, typer.Argument(help="Name a mixture that has a spec.")]
RecipeName = Annotated[str | None, typer.Option(help="Train by this recipe; default: the mixture's name.")]
Limit = Annotated[int, typer.Option(min=1, help="Measure this many validation records per corpus.")]


@app.command()
def affinity(
    mixture: MixtureName,
    steps: Annotated[int, typer.Option(min=1, help="Train each run for this many steps.")] = 100,
    targets: Targets = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each pair this many times.")] = 1,
    recipe: RecipeName = None,
    limit: Limit = 200,
    out: Annotated[
        Path | None,
        typer.Option(parser=picture, metavar="FILE", help="Draw the heat map: .svg, .png or .pdf."),
    ] = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Measure which sources of a mixture help which corpora.

    It trains each source alone and with each other source, for the same number of steps. A negative number means
    that the other source lowers the loss of the corpus, although it takes half of the steps. The view `affinity`
    has the numbers. The store keeps finished runs, so that the same command continues after a stop.

    Example: ubert affinity first-mixture --for sst,rte,wnut17 --steps 100 --out affinity.svg
    """
    from pipelines.tuning.affinity import affinity as job
    from pipelines.tuning.heat_map import heat_map

    chosen = _setup(mixture, recipe, steps, targets, limit, root, specs)
    with resumable():
        found = job(chosen, seeds=seeds, root=root, address=address)
    _show_affinity(found, as_json=as_json, wide=wide)
    if out:
        heat_map(found, out)
        say(f"wrote {out}", as_json=as_json)


@app.command()
def tune(
    mixture: MixtureName,
    trials: Annotated[int, typer.Option(min=1, help="Train this many runs with random mixture weights.")] = 48,
    steps: Annotated[int, typer.Option(min=1, help="Train each run for this many steps.")] = 300,
    targets: Targets = None,
    seeds: Annotated[int, typer.Option(min=2, help="Compare both mixtures in this many runs each.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed the random weights and the trials.")] = 0,
    recipe: RecipeName = None,
    limit: Limit = 200,
    out: Annotated[
        Path | None, typer.Option(help="Write mixture and page here; default: MIXTURE-tuned.yaml.")
    ] = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Find mixture weights by short runs and a regression.

    It trains short runs with random mixture weights, and fits a regression that predicts the loss from them.
    Then it compares the best weights with those of the mixture, for the same number of steps. The store keeps
    finished runs, so that the same command continues after a stop. A higher --trials adds to the finished trials.

    Example: ubert tune first-mixture --trials 48 --steps 300 --for sst,rte,wnut17
    """
    from pipelines.tuning.page import write
    from pipelines.tuning.tune import tune as job
    from ubert.schema.names import checked_name

    place = out or Path(f"{checked_name('mixture', mixture)}-tuned.yaml")
    if place.suffix not in (".yaml", ".yml"):
        raise typer.BadParameter(
            f"--out: expected a .yaml file, got {place}; the page and the plot get the same name"
        )
    checked_name("mixture", place.stem)
    check_folder(place)
    chosen = _setup(mixture, recipe, steps, targets, limit, root, specs)
    with resumable():
        tuned = job(chosen, trials=trials, seeds=seeds, seed=seed, root=root, address=address)
    _show_tuned(tuned, as_json=as_json, wide=wide)
    say(f"wrote {', '.join(map(str, write(tuned, place)))}", as_json=as_json)


def _setup(
    mixture: str, recipe: str | None, steps: int, targets: str | None, limit: int, root: Root, specs: Specs
) -> Setup:
    from pipelines.specs import mixture as load_mixture
    from pipelines.specs import specs_folder
    from pipelines.tuning.setup import proxy_recipe, setup

    folder = specs_folder(specs)
    corpora = corpus_names(targets) if targets else None
    chosen = load_mixture(mixture, folder)
    return setup(
        chosen, proxy_recipe(recipe, mixture, folder), steps=steps, targets=corpora, limit=limit, root=root
    )


def _show_affinity(found: Affinity, *, as_json: bool, wide: bool) -> None:
    import numpy as np
    import pyarrow as pa

    changes = {
        source: pa.array(change_C, pa.float64(), mask=np.isnan(change_C))
        for source, change_C in zip(found.sources, found.change_CK.T, strict=True)
    }
    rows = pa.table({"corpus": found.corpora, **changes})
    if not as_json:
        say("change of a corpus's loss when a source is added", style="bold")
    show(rows, as_json=as_json, wide=wide, formats=dict.fromkeys(found.sources, "+.1%"))
    groups = "; ".join(", ".join(group) for group in found.clusters)
    say(f"groups of sources that harm one another least: {groups}", as_json=as_json)
    _show_died(found.died, as_json=as_json)


def _show_tuned(tuned: Tuned, *, as_json: bool, wide: bool) -> None:
    import pyarrow as pa

    from pipelines.tuning.tune import verdict

    space, fit = tuned.space, tuned.fit
    shares = {"natural": space.natural_K, "now": space.own_K, "found": tuned.shares}
    rows = pa.table({"source": space.names, **shares})
    if not as_json:
        say("shares of draws", style="bold")
    show(rows, as_json=as_json, wide=wide, formats=dict.fromkeys(shares, ".1%"))
    held = f"{fit.held_back.correlation:.2f} on held-back trials (p = {fit.held_back.chance:.2g})"
    say(f"{tuned.trials} trials, {fit.kind} fit: rank correlation {held}", as_json=as_json)
    say(verdict(tuned), as_json=as_json)
    _show_died(tuned.died, as_json=as_json)


def _show_died(died: dict[str, str], *, as_json: bool) -> None:
    from pipelines.tuning.proxy import explained

    if died:
        say(explained(died), as_json=as_json)
