"""Commands of sources and corpora."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import (
    STORE,
    Address,
    Corpora,
    Data,
    Output,
    Root,
    Specs,
    app,
    console,
    errors,
    write,
)
from pipelines.render import PRINTERS, table
from ubert.schema.manifest import AuditManifest, CorpusManifest

if TYPE_CHECKING:
    from pipelines.ingest import Work

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.command()
def samples(
    out: Annotated[Path, typer.Option(help="Folder to write to: a mirror for `ubert ingest --data`.")],
    records: Annotated[int, typer.Option(min=3, help="Records of each dataset.")] = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    noise: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of training records with a wrong annotation.")
    ] = 0.0,
    useless: Annotated[bool, typer.Option("--useless", help="Add a dataset that teaches nothing.")] = False,
) -> None:
    """Write an invented world as labelled datasets in five formats, at any size.

    With --noise some labels are wrong, and some mentions are missed or shifted; `truth.jsonl` in the folder of
    each dataset has what is right.

    Example: ubert samples --records 2000 --seed 0 --out world

    Example: ubert samples --records 2000 --noise 0.05 --useless --out noisy
    """
    from pipelines.samples.generate import generate_files

    for file, count in generate_files(records, seed, out, noise=noise, with_useless=useless):
        console.print(f"{out / file}: {count:,} records", soft_wrap=True, highlight=False)


@app.command()
def corpora(root: Root = STORE, specs: Specs = None) -> None:
    """Specs, their task, language and licence, and what is ingested of them.

    Example: ubert corpora
    """
    from pipelines.specs import specs_folder
    from pipelines.stats import catalogue

    table(catalogue(root, specs_folder(specs)))


@app.command()
def ingest(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of datasets; `ubert corpora` lists them.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All datasets that have a spec and whose sources are here.")
    ] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
    strict: Annotated[bool, typer.Option(help="A refused row is an error, and nothing is published.")] = False,
) -> None:
    """Raw sources to corpora. What is ingested already is not read again.

    Example: ubert ingest trec wnut17 --data ../mirror

    Example: ubert ingest --all --data ../mirror
    """
    from pipelines.ingest import ingest as job
    from pipelines.ingest import with_sources
    from pipelines.specs import specs_folder

    if bool(names) == every:
        raise typer.BadParameter("give the names of datasets, or --all")
    folder = specs_folder(specs)
    if not names:
        names, without = with_sources(folder, data, root)
        if without:
            errors.print(
                f"left out: {len(without)} of {len(names) + len(without)} datasets, whose sources are not here: "
                f"{', '.join(without)}; `ubert fetch` brings those whose specs say where from",
                soft_wrap=True,
                highlight=False,
            )
    job(
        names,
        specs=folder,
        data=data,
        root=root,
        address=address,
        strict=strict,
        report=_ingested,
    )


def _warned(manifest: CorpusManifest) -> None:
    for of in manifest.splits:
        for warning, count in of.warnings.items():
            line = f"warning: {manifest.name}: {of.split}: {warning}: {count:,}"
            errors.print(line, soft_wrap=True, highlight=False, markup=False, style="yellow")


def _ingested(manifest: CorpusManifest, work: Work) -> None:
    splits = manifest.splits
    kept, rejected, files = (sum(getattr(of, count) for of in splits) for count in ("kept", "rejected", "files"))
    console.print(
        f"{manifest.name}: {kept:,} records kept, {rejected:,} rejected ({manifest.fingerprint}); "
        f"{files - work.files:,} of {files:,} files unchanged, {work.files:,} read ({work.rows:,} rows)",
        soft_wrap=True,
    )
    _warned(manifest)


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names of datasets.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All datasets that have a spec.")] = False,
    upstream: Annotated[
        bool,
        typer.Option("--upstream", help="Fetch all once more and compare; what is there is not replaced."),
    ] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
) -> None:
    """Fill the mirror of raw sources (--data, else raw/ in the store), and check what is there. `ubert ingest`
    does so too where something is missing; this is for machines that ingest without a network. With --upstream a
    source that has changed since is an error that says what changed.

    Example: ubert fetch trec --data ../mirror
    """
    from pipelines.fetch import fetch as job
    from pipelines.specs import dataset_names, specs_folder

    if bool(names) == every:
        raise typer.BadParameter("give the names of datasets, or --all")
    folder = specs_folder(specs)
    for line in job(names or dataset_names(folder), specs=folder, data=data, root=root, upstream=upstream):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


@app.command()
def rejects(
    name: str,
    root: Root = STORE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows to show of each reason.")] = 3,
) -> None:
    """Why rows of a corpus were refused: how many for each reason, then the first of them. Where the last ingest
    refused too many to be published, they are those.

    Example: ubert rejects stsb --limit 10
    """
    from pipelines.stats import refused
    from pipelines.store import Store
    from pipelines.visible import shortened, visible

    reasons, rows = refused(root, name, limit)
    if Store(root.absolute()).attempt(name):
        errors.print(f"{name}: the last ingest was not published; it refused these rows", soft_wrap=True)
    if not len(reasons):
        console.print(f"{name}: no row was refused", highlight=False)
        return
    table(reasons)
    for row in rows.to_pylist():
        place = f"{row['path']}:{row['line']}: {row['reason']}: {row['detail']}"
        console.print(visible(place), markup=False, highlight=False, soft_wrap=True)
        console.print(shortened(row["raw"], 1000), markup=False, highlight=False, soft_wrap=True, style="dim")
        console.print()


@app.command()
def stats(
    root: Root = STORE,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page with pictures and records.")] = None,
) -> None:
    """The corpus at a glance: tables, or one page that needs no network.

    Example: ubert stats --html report.html
    """
    if page is not None:
        from pipelines.report.page import html

        write(page, html(root))
        console.print(f"{page}: {page.stat().st_size:,} bytes", soft_wrap=True, highlight=False)
        return
    from pipelines.stats import overview

    for title, rows in overview(root).items():
        table(rows, title)


@app.command()
def sql(
    statement: str,
    root: Root = STORE,
    output: Annotated[Output, typer.Option("--format", help="How to print the rows.")] = "table",
) -> None:
    """One SELECT over the store, which it cannot change.

    Views: records, categories, labels, spans, relations, events, arguments, rejects, corpora, mixtures, shards,
    affinity, duplicates, contradictions, leaks, contamination, suspects, dropped, dynamics, cartography.

    Example: ubert sql "SELECT category, count(*) FROM spans WHERE corpus = 'wnut17' GROUP BY category"
    """
    from pipelines.sandbox import sql as query

    PRINTERS[output](query(root, statement))


@app.command()
def duplicates(
    names: Corpora = None,
    near: Annotated[float, typer.Option(help="Share of two texts' shingles from which they are near.")] = 0.8,
    root: Root = STORE,
    address: Address = None,
) -> None:
    """Find records that repeat others, texts that leak into training, and texts with contradicting labels.

    The evidence is in the views duplicates, leaks and contradictions, one row a match.

    Example: ubert duplicates --near 0.8
    """
    from pipelines.audit.duplicates import duplicates as job

    _found(job(names or [], root=root, near=near, address=address))


@app.command()
def contamination(
    names: Corpora = None,
    against: Annotated[
        list[str] | None, typer.Option(help="CORPUS/SPLIT or CORPUS; default: every test and validation split.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Words of an n-gram.")] = 13,
    root: Root = STORE,
    address: Address = None,
) -> None:
    """Find training records that share n-grams with evaluation splits.

    The evidence is in the view contamination, one row a training record and evaluation split.

    Example: ubert contamination --against squad2_cs224n/validation -n 13
    """
    from pipelines.audit.contamination import contamination as job

    _found(job(names or [], root=root, against=against or [], n=n, address=address))


def _found(manifest: AuditManifest) -> None:
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in manifest.counts.items())
    console.print(f"{manifest.name}: {counts} ({manifest.fingerprint})", soft_wrap=True)
