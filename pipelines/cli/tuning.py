"""Commands that find what helps what, and how to mix it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import STORE, Address, Root, Specs, app, console
from pipelines.render import table

if TYPE_CHECKING:
    from pipelines.tuning.affinity import Affinity
    from pipelines.tuning.setup import Setup
    from pipelines.tuning.tune import Tuned

Targets = Annotated[
    str | None,
    typer.Option("--for", help="Corpora whose validation loss counts, with commas between; default: all."),
]
RecipeName = Annotated[
    str | None, typer.Option(help="Recipe of the runs; default: the mixture's name, else default settings.")
]
Limit = Annotated[int, typer.Option(min=1, help="Validation records of each corpus to measure, by sampling key.")]


@app.command()
def affinity(
    mixture: str,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 100,
    targets: Targets = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each pair.")] = 1,
    recipe: RecipeName = None,
    limit: Limit = 200,
    out: Annotated[Path | None, typer.Option(help="Draw the heat map into this file (.svg, .png).")] = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
) -> None:
    """Measure which sources of a mixture help which corpora.

    Each source is trained alone and with each other one, for as many steps. A negative number says that a corpus
    gains although it gave half of its steps away. The numbers are in the view `affinity`. Finished runs are kept
    in the store: the same command goes on where it was stopped.

    Example: ubert affinity first-mixture --for sst,rte,wnut17 --steps 100 --out affinity.svg
    """
    from pipelines.tuning.affinity import affinity as job
    from pipelines.tuning.heat_map import heat_map

    found = job(
        _setup(mixture, recipe, steps, targets, limit, root, specs), seeds=seeds, root=root, address=address
    )
    _show_affinity(found)
    if out:
        heat_map(found, out)
        console.print(f"heat map: {out}", soft_wrap=True, highlight=False)


@app.command()
def tune(
    mixture: str,
    trials: Annotated[int, typer.Option(min=1, help="Proxy runs of drawn weights.")] = 48,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 300,
    targets: Targets = None,
    seeds: Annotated[int, typer.Option(min=2, help="Runs that compare the found mixture with the given one.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws and of the trials.")] = 0,
    recipe: RecipeName = None,
    limit: Limit = 200,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the mixture here, and its page beside it; default: MIXTURE-tuned.yaml."),
    ] = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
) -> None:
    """Find the weights of a mixture by proxy runs and a regression.

    Trials train on drawn weights, a regression predicts losses from weights, and the weights that it finds are
    compared with those of the mixture, at the same steps. Finished runs are kept in the store: the same command
    goes on where it was stopped, and more --trials add to the others.

    Example: ubert tune first-mixture --trials 48 --steps 300 --for sst,rte,wnut17
    """
    from pipelines.tuning.page import write
    from pipelines.tuning.tune import tune as job
    from ubert.schema.names import checked_name

    place = out or Path(f"{checked_name('mixture', mixture)}-tuned.yaml")
    checked_name("mixture", place.stem)
    chosen = _setup(mixture, recipe, steps, targets, limit, root, specs)
    tuned = job(chosen, trials=trials, seeds=seeds, seed=seed, root=root, address=address)
    _show_tuned(tuned)
    written = write(tuned, place)
    console.print(f"written: {', '.join(map(str, written))}", soft_wrap=True, highlight=False)


def _setup(
    mixture: str, recipe: str | None, steps: int, targets: str | None, limit: int, root: Root, specs: Specs
) -> Setup:
    from pipelines.specs import mixture as load_mixture
    from pipelines.specs import specs_folder
    from pipelines.tuning.setup import proxy_recipe, setup

    folder = specs_folder(specs)
    asked = [name.strip() for name in targets.split(",")] if targets else None
    chosen = load_mixture(mixture, folder)
    return setup(chosen, proxy_recipe(recipe, mixture, folder), steps=steps, targets=asked, limit=limit, root=root)


def _show_affinity(found: Affinity) -> None:
    import numpy as np
    import pyarrow as pa

    rows = [
        {"corpus": corpus}
        | {
            added: "" if np.isnan(change) else f"{change:+.1%}"
            for added, change in zip(found.sources, changes, strict=True)
        }
        for corpus, changes in zip(found.corpora, found.change_CK, strict=True)
    ]
    table(pa.Table.from_pylist(rows), "change of a corpus's loss when a source is added")
    groups = "; ".join(", ".join(group) for group in found.clusters)
    console.print(f"groups: {groups}", soft_wrap=True, highlight=False, markup=False)
    _show_died(found.died)


def _show_tuned(tuned: Tuned) -> None:
    import pyarrow as pa

    from pipelines.tuning.tune import verdict

    space, fit = tuned.space, tuned.fit
    rows = [
        {"source": name, "natural": f"{natural:.1%}", "now": f"{own:.1%}", "found": f"{found:.1%}"}
        for name, natural, own, found in zip(space.names, space.natural_K, space.own_K, tuned.shares, strict=True)
    ]
    table(pa.Table.from_pylist(rows), "shares of draws")
    held = f"{fit.held_back.correlation:.2f} on held-back trials (p = {fit.held_back.chance:.2g})"
    console.print(
        f"{tuned.trials} trials, {fit.kind} fit: rank correlation {held}", soft_wrap=True, highlight=False
    )
    console.print(verdict(tuned), soft_wrap=True, highlight=False, markup=False)
    _show_died(tuned.died)


def _show_died(died: dict[str, str]) -> None:
    from pipelines.tuning.proxy import explained

    if died:
        console.print(explained(died), soft_wrap=True, highlight=False, markup=False)
