"""Commands of mixtures, shards, training and the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import typer

from pipelines.cli.shared import (
    ENCODER,
    STORE,
    Address,
    Checkpoint,
    Computing,
    Encoder,
    OverlapOption,
    Root,
    Specs,
    Threshold,
    Verify,
    app,
    console,
    errors,
    size,
    write,
)
from pipelines.disk_cache import CACHE
from pipelines.render import table
from ubert.schema.record import Split

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.command()
def mix(
    name: str,
    root: Root = STORE,
    specs: Specs = None,
    encoder: Encoder = ENCODER,
    dry_run: Annotated[bool, typer.Option(help="Say what would be drawn, and write nothing.")] = False,
    explain: Annotated[bool, typer.Option(help="Print the SQL, and do nothing.")] = False,
) -> None:
    """Draw a mixture from the corpora.

    Example: ubert mix first-mixture --dry-run
    """
    from pipelines.mix import composition
    from pipelines.mix import mix as job
    from pipelines.mixture_sql import explain as mixture_sql
    from pipelines.specs import mixture, specs_folder

    chosen = mixture(name, specs_folder(specs))
    if explain:
        typer.echo(mixture_sql(chosen))
        return
    manifest = job(chosen, root=root, encoder=encoder, dry_run=dry_run)
    table(composition(manifest))
    for source in manifest.sources:
        if source.categories:
            rows = [category.model_dump() for category in source.categories]
            table(pa.Table.from_pylist(rows), f"{source.corpus}/{source.split}, by its rarest category")


@app.command()
def shard(
    mixture: str,
    root: Root = STORE,
    specs: Specs = None,
    encoder: Encoder = ENCODER,
    max_tokens: Annotated[int, typer.Option(min=8, help="Of one text; a longer one becomes windows.")] = 256,
    address: Address = None,
) -> None:
    """Tokenise a mixture once, into files that training maps into memory.

    Example: ubert shard first-mixture
    """
    from pipelines.shard import Work
    from pipelines.shard import shard as job
    from pipelines.specs import paraphrases, specs_folder

    works: list[Work] = []
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
    table(pa.Table.from_pylist(rows), "what became of texts and spans")
    losses = [
        {"corpus": alignment.corpus, "lost": what, "because": reason, "times": count}
        for alignment in manifest.alignment
        for what, lost in (("spans", alignment.lost), ("links", alignment.lost_links))
        for reason, count in lost.items()
    ]
    if losses:
        table(pa.Table.from_pylist(losses))
    if manifest.cut_categories:
        console.print(f"{manifest.cut_categories:,} category names, questions or instructions were cut")
    tokens = sum(alignment.tokens for alignment in manifest.alignment)
    console.print(
        f"{mixture}: {len(manifest.shards)} shards, {works[0].reused} of them there already, {tokens:,} tokens "
        f"({manifest.fingerprint})"
    )


@app.command()
def pretrain(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or its YAML file.")],
    root: Root = STORE,
    specs: Specs = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train together.")] = 1,
    resume: Annotated[str | None, typer.Option(help="Go on with this run, perhaps for more steps.")] = None,
    cache: Annotated[
        int,
        typer.Option(
            parser=size,
            metavar="BYTES",
            show_default="200GB",
            help="Shards of an object store that each machine keeps.",
        ),
    ] = CACHE,
    address: Address = None,
) -> None:
    """Train a recipe, and measure the model before and after. A stopped run goes on where it was.

    Example: ubert pretrain trec --workers 2
    """
    from pipelines.compare import comparison_table
    from pipelines.pretrain import pretrain as job
    from pipelines.specs import recipe as load_recipe
    from pipelines.specs import specs_folder

    folder = specs_folder(specs)
    chosen = load_recipe(recipe, folder)
    try:
        checkpoint = job(
            chosen, root=root, specs=folder, workers=workers, resume=resume, address=address, cache=cache
        )
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
    threshold: Threshold = None,
    overlap: OverlapOption = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Of task seq2seq, as in generate.")] = None,
    longest: Annotated[int | None, typer.Option(min=1, help="Of task seq2seq, as in generate.")] = None,
    precision: Computing = "auto",
    verify: Verify = True,
    output: Annotated[Path | None, typer.Option("--json", help="Write the metrics to this file.")] = None,
    root: Root = STORE,
) -> None:
    """Measure a checkpoint on a split of a corpus.

    Example: ubert evaluate mit_movie --corpus mit_movie_trivia --json metrics.json

    Example: ubert evaluate questions --corpus squad2_questions --split validation --beams 1
    """
    from pipelines.evaluate import evaluate as job
    from pipelines.evaluate import find_checkpoint
    from pipelines.predict import overlap_policies
    from ubert.inference.beam import Search

    how = {name: given for name, given in (("beams", beams), ("longest", longest)) if given}
    found = find_checkpoint(checkpoint, root)
    result = job(
        found,
        corpus=corpus,
        split=split,
        limit=limit,
        threshold=threshold,
        overlap=overlap_policies(overlap or []),
        search=Search(**how) if how else None,
        precision=precision,
        verify=verify,
        root=root,
    )
    rows = [{"metric": name, "value": round(value, 4)} for name, value in result["metrics"].items()]
    title = f"{corpus}/{split}: {result['records']:,} records in {result['seconds']:.1f} s"
    table(pa.Table.from_pylist(rows), title)
    if output is not None:
        write(output, json.dumps(result, indent=1) + "\n")


@app.command()
def threshold(
    checkpoint: Checkpoint,
    corpus: Annotated[list[str] | None, typer.Option(help="Name of an ingested corpus; may be repeated.")] = None,
    mixture: Annotated[
        str | None, typer.Option(help="All corpora of this mixture instead, each task by itself.")
    ] = None,
    split: Annotated[Split, typer.Option(help="train, validation or test.")] = "validation",
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many records by sampling key.")] = None,
    overlap: OverlapOption = None,
    precision: Computing = "auto",
    verify: Verify = True,
    root: Root = STORE,
    specs: Specs = None,
) -> None:
    """Fit the thresholds of tasks on a split.

    The checkpoint keeps them, and evaluate and predict use them from then on.

    Example: ubert threshold mit_movie --corpus mit_movie_trivia --limit 1000

    Example: ubert threshold universal-small --mixture universal-small --limit 200
    """
    from pipelines.evaluate import find_checkpoint
    from pipelines.predict import overlap_policies
    from pipelines.specs import mixture as load_mixture
    from pipelines.specs import specs_folder
    from pipelines.thresholds import fit, measurable

    if bool(corpus) == bool(mixture):
        raise typer.BadParameter("expected --corpus or --mixture, one of them")
    found = find_checkpoint(checkpoint, root)
    groups = [corpus or []]
    if mixture:
        groups = list(measurable(load_mixture(mixture, specs_folder(specs)), split, root).values())
    for corpora in groups:
        task, chosen, tried = fit(
            found,
            corpora=corpora,
            split=split,
            limit=limit,
            overlap=overlap_policies(overlap or []),
            precision=precision,
            verify=verify,
            root=root,
        )
        rows = [
            {"threshold": p, **{name: round(value, 4) for name, value in of_p.items()}}
            for p, of_p in tried.items()
        ]
        table(pa.Table.from_pylist(rows), f"{', '.join(corpora)}/{split}: {chosen.records:,} records")
        console.print(f"threshold of {task}: {chosen.threshold:g}, stored in the checkpoint", highlight=False)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="A hub name, or a folder.")],
    out: Annotated[Path, typer.Argument(help="A new folder, for our checkpoint.")],
) -> None:
    """Make a checkpoint of ours from a public one of UBERT (Fengshenbang-LM), with equal scores.

    It predicts as it did with the prompts that it has learnt: --instruction "TASK[SEP]SUBTASK", its questions as
    categories of --task ner.

    Example: ubert convert IDEA-CCNL/Erlangshen-Ubert-110M-Chinese erlangshen
    """
    from ubert.model.public import convert as job

    job(source, out)
    console.print(f"checkpoint: {out}", soft_wrap=True, highlight=False)


@app.command()
def pack(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Argument(help="A new folder, for the small form.")],
    root: Root = STORE,
) -> None:
    """Write a checkpoint in a small form, to hand it on.

    Weights are in half precision, and word embeddings are left out: they stay those of the encoder (train with
    `freeze_words: true`). It loads, predicts and is trained further as any other checkpoint.

    Example: ubert pack shop shop-small
    """
    import ubert
    from pipelines.evaluate import find_checkpoint
    from ubert.training.packed import pack as job

    folder = job(ubert.checkpoint(find_checkpoint(checkpoint, root)), out)
    size = sum(path.stat().st_size for path in folder.iterdir())
    console.print(f"{folder}: {size / 2**20:,.1f} MiB", soft_wrap=True, highlight=False)


@app.command()
def card(
    checkpoint: Checkpoint,
    name: Annotated[str, typer.Option(help="What the card calls the model; default: the folder's name.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the card to this file.")] = None,
    root: Root = STORE,
) -> None:
    """Write the model card of a checkpoint.

    It lists the corpora with their licences, the training, the thresholds, and the results of `ubert probe`.

    Example: ubert card universal-small --out README.md
    """
    from pipelines.card import model_card
    from pipelines.evaluate import find_checkpoint

    found = find_checkpoint(checkpoint, root)
    text = model_card(found, name or checkpoint.name, root)
    if out is None:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
    else:
        write(out, text)


@app.command()
def export(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Argument(help="The ONNX file to write.")],
    verify: Verify = True,
    root: Root = STORE,
) -> None:
    """Write encoder and head of a checkpoint as one ONNX file, for other runtimes.

    Example: ubert export mit_movie mit_movie.onnx
    """
    import ubert
    from pipelines.evaluate import find_checkpoint
    from ubert.model.onnx import export as job

    job(ubert.load(find_checkpoint(checkpoint, root), verify=verify).model, out)
    console.print(f"{out}: {out.stat().st_size / 2**20:,.1f} MiB", soft_wrap=True, highlight=False)


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
