"""The command that finds wrong annotations."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import STORE, Address, Json, Root, Specs, Wide, app, resumable, say
from pipelines.report.render import show


@app.command()
def suspects(
    corpus: Annotated[str, typer.Argument(help="Name an ingested corpus.")],
    recipe: Annotated[
        str | None, typer.Option(help="Train the folds by this recipe; default: a short run.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Train this many models, each without one fold.")] = 5,
    run: Annotated[str | None, typer.Option(help="Use the dynamics of this run instead of folds.")] = None,
    count: Annotated[int, typer.Option("-n", "--show", min=0, help="Print this many suspects.")] = 20,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Rank records whose annotations are probably wrong.

    It trains each model without one fold of the corpus, and predicts that fold. Confident learning finds wrong
    labels. Suspect mentions are missed, spurious, of a wrong type or with a wrong boundary. The store keeps
    finished folds, so that the same command continues after a stop. The view `suspects` has all evidence.

    Example: ubert suspects trec --folds 5

    Example: ubert suspects trec --run trec
    """
    from pipelines.specs import recipe as load_recipe
    from pipelines.specs import specs_folder
    from pipelines.store.warehouse import sql
    from pipelines.suspects.suspects import suspects as job

    if recipe and run:
        raise typer.BadParameter("give --recipe or --run, not both: the dynamics of a run need no folds")
    given = load_recipe(recipe, specs_folder(specs)) if recipe else None
    with resumable():
        made = job(corpus, root=root, recipe=given, folds=folds, run=run, address=address)
    if count or as_json:
        columns = "rank, record_id, kind, said, predicted, round(confidence::DOUBLE, 3) AS confidence, flagged"
        query = f"SELECT {columns} FROM suspects WHERE corpus = '{corpus}' ORDER BY rank LIMIT {count}"
        show(sql(root, query), as_json=as_json, wide=wide, optional=["kind"])
    say(
        f"{corpus}: {made.counts['records']:,} suspects, of which {made.counts['flagged']:,} are flagged "
        f"({made.parameters['source']})",
        as_json=as_json,
    )
