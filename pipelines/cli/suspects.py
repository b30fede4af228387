"""The command that finds wrong annotations."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import STORE, Address, Root, Specs, app, console
from pipelines.render import table


@app.command()
def suspects(
    corpus: Annotated[str, typer.Argument(help="Name of an ingested corpus.")],
    recipe: Annotated[
        str | None, typer.Option(help="Train the folds as this recipe says; default: briefly.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Models to train, each without a part of the corpus.")] = 5,
    run: Annotated[str | None, typer.Option(help="A run with dynamics, in place of folds.")] = None,
    show: Annotated[int, typer.Option("-n", "--show", min=0, help="Suspects to print.")] = 20,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
) -> None:
    """Rank records whose annotations models contradict.

    Each model is trained without a part of the corpus and asked about it. Labels are judged by confident learning;
    mentions are missed, spurious, of a wrong type or with a wrong boundary. Folds are kept in the store: the same
    command goes on where it was stopped. All evidence is in the view `suspects`.

    Example: ubert suspects trec --folds 5

    Example: ubert suspects trec --run trec
    """
    from pipelines.specs import recipe as load_recipe
    from pipelines.specs import specs_folder
    from pipelines.suspects.suspects import DEFAULT
    from pipelines.suspects.suspects import suspects as job
    from pipelines.warehouse import sql

    given = load_recipe(recipe, specs_folder(specs)) if recipe else DEFAULT
    made = job(corpus, root=root, recipe=given, folds=folds, run=run, address=address)
    if show:
        columns = "rank, record_id, kind, said, predicted, round(confidence, 3) AS confidence, flagged"
        table(sql(root, f"SELECT {columns} FROM suspects WHERE corpus = '{corpus}' ORDER BY rank LIMIT {show}"))
    console.print(
        f"{corpus}: {made.counts['records']:,} suspects, of which {made.counts['flagged']:,} are flagged "
        f"({made.parameters['source']})",
        soft_wrap=True,
        highlight=False,
    )
