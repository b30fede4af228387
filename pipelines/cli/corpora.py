"""Commands that collect, show and check corpora."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import (
    STORE,
    Address,
    Corpora,
    Data,
    Json,
    Output,
    Root,
    Specs,
    Wide,
    app,
    note,
    resumable,
    say,
    write,
)
from pipelines.report.render import csv_lines, show
from ubert.schema.manifest import AuditManifest, CorpusManifest

if TYPE_CHECKING:
    from pipelines.ingest.ingest import Work

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.command()
def samples(
    out: Annotated[Path, typer.Option(help="Write to this folder, for `ubert ingest --data`.")],
    records: Annotated[int, typer.Option(min=3, help="Write this many records per dataset.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed the random generator.")] = 0,
    noise: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Make this share of training annotations wrong.")
    ] = 0.0,
    useless: Annotated[bool, typer.Option("--useless", help="Add a dataset that teaches nothing.")] = False,
) -> None:
    """Generate synthetic labelled datasets.

    The datasets have five formats. With --noise some labels are wrong and some mentions are missing or shifted.
    `truth.jsonl` in the folder of a dataset has the correct annotation of each changed record.

    Example: ubert samples --records 2000 --seed 0 --out world

    Example: ubert samples --records 2000 --noise 0.05 --useless --out noisy
    """
    from pipelines.samples.generate import generate_files

    for file, count in generate_files(records, seed, out, noise=noise, with_useless=useless):
        say(f"wrote {out / file}: {count:,} records")
    say(f"ingest them with `ubert ingest --all --data {shlex.quote(str(out))}`")


@app.command()
def corpora(root: Root = STORE, specs: Specs = None, as_json: Json = False, wide: Wide = False) -> None:
    """List specs and the corpora that are ingested.

    Counts are empty for datasets that are not ingested. Corpora without a spec come last. The error of a spec is a
    warning on the error stream.

    Example: ubert corpora
    """
    from pipelines.report.stats import catalogue
    from pipelines.specs import specs_folder

    listed, problems = catalogue(root, specs_folder(specs))
    show(listed, as_json=as_json, wide=wide)
    for problem in problems:
        note(f"warning: {problem}", "yellow")


@app.command()
def ingest(
    names: Annotated[list[str] | None, typer.Argument(help="Name datasets; `ubert corpora` lists them.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Ingest every dataset whose raw sources are here.")] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
    strict: Annotated[bool, typer.Option(help="Fail if any row is rejected.")] = False,
) -> None:
    """Ingest raw sources into corpora.

    It fetches missing files if the spec says where from, and reads only files that are new or have changed.
    Rejected rows are stored with the reason: see `ubert rejects`.

    Example: ubert ingest trec wnut17 --data ../mirror

    Example: ubert ingest --all --data ../mirror
    """
    from pipelines.ingest.ingest import ingest as job
    from pipelines.ingest.ingest import with_sources
    from pipelines.report.described import few
    from pipelines.specs import specs_folder

    if bool(names) == every:
        raise typer.BadParameter("give the names of datasets, or --all")
    folder = specs_folder(specs)
    if not names:
        names, without = with_sources(folder, data, root)
        if without:
            note(
                f"skipped {len(without)} of {len(names) + len(without)} datasets whose raw sources are not all "
                f"here: {few(without)}; `ubert fetch NAME` downloads those whose specs say where from, and "
                "`ubert corpora` lists all"
            )
    with resumable():
        job(names, specs=folder, data=data, root=root, address=address, strict=strict, report=_report_ingest)


def _report_warnings(manifest: CorpusManifest) -> None:
    for of in manifest.splits:
        for warning, count in of.warnings.items():
            note(f"warning: {manifest.name}: {of.split}: {warning}: {count:,}", "yellow")


def _report_ingest(manifest: CorpusManifest, work: Work) -> None:
    splits = manifest.splits
    kept, rejected, files = (sum(getattr(of, count) for of in splits) for count in ("kept", "rejected", "files"))
    say(
        f"{manifest.name}: {kept:,} records kept, {rejected:,} rejected ({manifest.fingerprint}); "
        f"{files - work.files:,} of {files:,} files unchanged, {work.files:,} read ({work.rows:,} rows)"
    )
    _report_warnings(manifest)


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Name datasets.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Fetch every dataset that has a spec.")] = False,
    upstream: Annotated[
        bool, typer.Option("--upstream", help="Compare remote sources with your files, without changing these.")
    ] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
) -> None:
    """Download raw sources into the mirror.

    It also checks the files that you have, and prints a `blake3:` line for each file that the spec does not pin.
    `ubert ingest` fetches missing files too, so you need this command only to fill a mirror for machines without a
    network. With --upstream, it fails if a remote source has changed, and tells what changed.

    Example: ubert fetch trec --data ../mirror
    """
    from pipelines.mirror.fetch import fetch as job
    from pipelines.specs import dataset_names, specs_folder

    if bool(names) == every:
        raise typer.BadParameter("give the names of datasets, or --all")
    folder = specs_folder(specs)
    with resumable():
        for line in job(names or dataset_names(folder), specs=folder, data=data, root=root, upstream=upstream):
            say(line)


@app.command()
def rejects(
    name: Annotated[str, typer.Argument(help="Name an ingested corpus.")],
    root: Root = STORE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show this many rows per reason.")] = 3,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Show the rejected rows of a corpus, with their reasons.

    It counts the rows of each reason, then shows the first of them. If the last ingest rejected too many rows to
    be published, it shows the rows of that ingest.

    Example: ubert rejects stsb --limit 10
    """
    from pipelines.report.stats import rejected
    from pipelines.report.visible import shortened
    from pipelines.sources.places import reject_place
    from pipelines.store.store import Store

    reasons, rows = rejected(root, name, limit)
    if Store(root.absolute()).attempt(name):
        note(f"{name}: the last ingest was not published; it rejected these rows")
    if as_json:
        show({"reasons": reasons, "rows": rows}, as_json=True, wide=wide)
        return
    if not len(reasons):
        say(f"{name}: no row was rejected")
        return
    show(reasons, as_json=False, wide=wide)
    for row in rows.to_pylist():
        place, detail = reject_place(row["path"], row["line"], row["detail"])
        say(f"{place}: {row['reason']}: {detail}")
        say(f"{shortened(row['raw'], 1000)}\n", style="dim")


@app.command()
def stats(
    root: Root = STORE,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page with pictures and records.")] = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Summarise the store in tables, or as a page.

    The tables count records, annotations, text lengths, licences and rejects. The page is one file that needs no
    network.

    Example: ubert stats --html report.html
    """
    if page is not None and as_json:
        raise typer.BadParameter("give --html or --json, not both")
    if page is not None:
        from pipelines.report.page import html

        write(page, html(root))
        say(f"wrote {page}: {page.stat().st_size:,} bytes", as_json=as_json)
        return
    from pipelines.report.stats import EMPTY, overview

    tables = overview(root)
    show(tables, as_json=as_json, wide=wide)
    if not tables["records"].num_rows:
        note(f"{root}: {EMPTY}")


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="Run this SELECT.")],
    root: Root = STORE,
    output: Annotated[Output, typer.Option("--format", help="Print the rows in this format.")] = "table",
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Run one SELECT over the store.

    The statement can read the store, but not change it.

    Views: records, categories, labels, spans, relations, events, arguments, rejects, mismatches, files, corpora,
    mixtures, shards, audits, duplicates, contradictions, leaks, contamination, suspects, dropped, dynamics,
    cartography, probes, affinity.

    Example: ubert sql "SELECT category, count(*) FROM spans WHERE corpus = 'wnut17' GROUP BY category"
    """
    from pipelines.store.sandbox import sql as query

    if output == "csv" and as_json:
        raise typer.BadParameter("give --format csv or --json, not both")
    rows = query(root, statement)
    if output == "csv":
        csv_lines(rows)
    else:
        show(rows, as_json=as_json or output == "json", wide=wide)


@app.command()
def duplicates(
    names: Corpora = None,
    near: Annotated[
        float, typer.Option(help="Report texts whose shingles have at least this Jaccard similarity.")
    ] = 0.8,
    root: Root = STORE,
    address: Address = None,
) -> None:
    """Find repeated records, leaked texts and contradicting labels.

    Each match is a row of the view duplicates, leaks or contradictions. A leak is a test text that also occurs in
    training or validation, or a validation text that also occurs in training.

    Example: ubert duplicates --near 0.8
    """
    from pipelines.audit.duplicates import duplicates as job

    _report_audit(job(names or [], root=root, near=near, address=address))


@app.command()
def contamination(
    names: Corpora = None,
    against: Annotated[
        list[str] | None, typer.Option(help="Compare with CORPUS/SPLIT or CORPUS; default: all evaluation splits.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Compare n-grams of this many words.")] = 13,
    root: Root = STORE,
    address: Address = None,
) -> None:
    """Find training records that share n-grams with evaluation splits.

    Each pair of a training record and an evaluation split is a row of the view contamination.

    Example: ubert contamination --against squad2_cs224n/validation -n 13
    """
    from pipelines.audit.contamination import contamination as job

    _report_audit(job(names or [], root=root, against=against or [], n=n, address=address))


def _report_audit(manifest: AuditManifest) -> None:
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in manifest.counts.items())
    say(f"{manifest.name}: {counts} ({manifest.fingerprint})")
