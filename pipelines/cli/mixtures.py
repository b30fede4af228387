"""Commands that mix and tokenise data."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from pipelines.cli.shared import ENCODER, STORE, Address, Encoder, Json, Root, Specs, Wide, app, resumable, say
from pipelines.report.render import show

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.command()
def mix(
    name: Annotated[str, typer.Argument(help="Name a mixture that has a spec.")],
    root: Root = STORE,
    specs: Specs = None,
    encoder: Encoder = ENCODER,
    dry_run: Annotated[bool, typer.Option(help="Show what would be drawn, and write nothing.")] = False,
    explain: Annotated[bool, typer.Option(help="Print the SQL, and draw nothing.")] = False,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Draw a mixture from corpora.

    The table has a row per source: its records, how often they are drawn, and their share of the mixture's tokens.
    A second table lists the categories of balanced sources, the rarest first.

    Example: ubert mix first-mixture --dry-run
    """
    from pipelines.mixtures.mix import composition
    from pipelines.mixtures.mix import mix as job
    from pipelines.mixtures.sql import explain as mixture_sql
    from pipelines.specs import mixture, specs_folder

    chosen = mixture(name, specs_folder(specs))
    if explain and as_json:
        raise typer.BadParameter("--explain prints SQL; give it without --json")
    if explain:
        typer.echo(mixture_sql(chosen))
        return
    manifest = job(chosen, root=root, encoder=encoder, dry_run=dry_run)
    tables = {"sources": composition(manifest)}
    balanced = [
        {"source": f"{source.corpus}/{source.split}", **category.model_dump()}
        for source in manifest.sources
        for category in source.categories
    ]
    if balanced:
        tables["categories"] = pa.Table.from_pylist(balanced)
    spare = ["suspects", "held out", "repeats", "leaks", "available"]
    show(tables, as_json=as_json, wide=wide, formats={"share": ".1%"}, optional=spare)
    end = "a dry run, nothing is written" if dry_run else f"tokenise it with `ubert shard {name}`"
    say(
        f"{name}: {sum(source.draws for source in manifest.sources):,} draws ({manifest.fingerprint}); {end}",
        as_json=as_json,
    )


@app.command()
def shard(
    mixture: Annotated[str, typer.Argument(help="Name a drawn mixture.")],
    root: Root = STORE,
    specs: Specs = None,
    encoder: Encoder = ENCODER,
    max_tokens: Annotated[int, typer.Option(min=8, help="Split or cut texts longer than this.")] = 256,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Tokenise a mixture into shards.

    Training maps these files into memory. The command reuses shards that exist already. The tables count the
    annotations that were lost, with the reasons.

    Example: ubert shard first-mixture
    """
    from pipelines.shards.shard import Work
    from pipelines.shards.shard import shard as job
    from pipelines.specs import paraphrases, specs_folder

    works: list[Work] = []
    with resumable():
        manifest = job(
            mixture,
            encoder=encoder,
            max_tokens=max_tokens,
            root=root,
            paraphrases=paraphrases(specs_folder(specs)),
            address=address,
            report=works.append,
        )
    links = any(alignment.links for alignment in manifest.alignment)
    rows = [
        alignment.model_dump(exclude={"lost_links"} | (set() if links else {"links"}))
        | {"lost": sum(alignment.lost.values())}
        | ({"lost links": sum(alignment.lost_links.values())} if links else {})
        for alignment in manifest.alignment
    ]
    tables = {"alignment": pa.Table.from_pylist(rows)}
    losses = [
        {"corpus": alignment.corpus, "lost": what, "because": reason, "times": count}
        for alignment in manifest.alignment
        for what, lost in (("spans", alignment.lost), ("links", alignment.lost_links))
        for reason, count in lost.items()
    ]
    if losses:
        tables["losses"] = pa.Table.from_pylist(losses)
    show(tables, as_json=as_json, wide=wide)
    if manifest.cut_categories:
        say(f"{manifest.cut_categories:,} category names, questions or instructions were cut", as_json=as_json)
    tokens = sum(alignment.tokens for alignment in manifest.alignment)
    say(
        f"{mixture}: {len(manifest.shards)} shards, {works[0].reused} of them reused, {tokens:,} tokens "
        f"({manifest.fingerprint})",
        as_json=as_json,
    )
