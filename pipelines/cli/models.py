"""Commands that train, measure, pack and export models."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import typer

from pipelines.cli.shared import (
    STORE,
    Address,
    Checkpoint,
    Computing,
    Json,
    OverlapOption,
    Root,
    Specs,
    Threshold,
    Verify,
    Wide,
    app,
    check_folder,
    console,
    note,
    resumable,
    say,
    size,
    write,
)
from pipelines.report.render import show, write_out
from pipelines.store.disk_cache import CACHE
from ubert.schema.errors import UserError
from ubert.schema.record import Split

# Jobs are imported by the commands that run them: `ubert --help` waits for none of their libraries.


@app.command()
def pretrain(
    recipe: Annotated[str, typer.Argument(help="Name a recipe, or its YAML file.")],
    root: Root = STORE,
    specs: Specs = None,
    workers: Annotated[int, typer.Option(min=1, help="Train with this many processes.")] = 1,
    resume: Annotated[str | None, typer.Option(help="Continue this run; the recipe may have more steps.")] = None,
    cache: Annotated[
        int,
        typer.Option(
            parser=size,
            metavar="BYTES",
            show_default="200GB",
            help="Cache this much of remote shards on each machine.",
        ),
    ] = CACHE,
    address: Address = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Train a model as a recipe says.

    It measures the model before and after training, on the splits that the recipe names under `evaluate`. The same
    command continues a stopped run from its last checkpoint.

    Example: ubert pretrain trec --workers 2
    """
    with resumable():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, until the training loop has its own
        from pipelines.specs import recipe as load_recipe
        from pipelines.specs import specs_folder
        from pipelines.training.compare import comparison_table
        from pipelines.training.pretrain import pretrain as job

        folder = specs_folder(specs)
        chosen = load_recipe(recipe, folder)
        checkpoint = job(
            chosen, root=root, specs=folder, workers=workers, resume=resume, address=address, cache=cache
        )
    say(f"checkpoint: {checkpoint}", as_json=as_json)
    if chosen.evaluate or as_json:
        run = checkpoint.parents[1]
        rows = comparison_table(chosen, run, root=root) if chosen.evaluate else pa.table({})
        show(rows, as_json=as_json, wide=wide, optional=["records"])
        _note_trained_on(checkpoint, [f"{wanted.corpus}/{wanted.split}" for wanted in chosen.evaluate])


def _note_trained_on(checkpoint: Path, splits: list[str]) -> None:
    """Say which of the measured splits the model was trained on."""
    from ubert.training.run_directory import trained_on

    if known := trained_on(checkpoint, splits):
        note(f"the model was trained on records of {', '.join(known)}; records that it knows raise its metrics")


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    corpus: Annotated[str, typer.Option(help="Measure on this ingested corpus.")],
    split: Annotated[Split, typer.Option(help="Use this split.")] = "test",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use this many records, chosen by sampling key.")
    ] = None,
    threshold: Threshold = None,
    overlap: OverlapOption = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Keep this many beams, for task seq2seq.")] = None,
    longest: Annotated[
        int | None, typer.Option(min=1, help="Generate at most this many tokens, for task seq2seq.")
    ] = None,
    precision: Computing = "auto",
    verify: Verify = True,
    output: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the metrics to this file; -: print them.")
    ] = None,
    wide: Wide = False,
    root: Root = STORE,
) -> None:
    """Measure a checkpoint on a split of a corpus.

    Example: ubert evaluate mit_movie --corpus mit_movie_trivia --json metrics.json

    Example: ubert evaluate questions --corpus squad2_questions --split validation --beams 1
    """
    import ubert
    from pipelines.models.evaluate import evaluate as job
    from pipelines.models.find import find_checkpoint
    from pipelines.models.predict import overlap_policies
    from ubert.inference.generation.beam import Search

    if output is not None:
        check_folder(output)
    how = {name: given for name, given in (("beams", beams), ("longest", longest)) if given}
    found = find_checkpoint(checkpoint, root)
    with suppress(UserError):  # a damaged state.json, which the job refuses unless --no-verify
        _note_trained_on(ubert.checkpoint(found), [f"{corpus}/{split}"])
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
    text = json.dumps(result, indent=1) + "\n"
    if output == Path("-"):
        write_out(text)
        return
    rows = [{"metric": name, "value": round(value, 4)} for name, value in result["metrics"].items()]
    title = f"{corpus}/{split}: {result['records']:,} records in {result['seconds']:.1f} s"
    show({title: pa.Table.from_pylist(rows)}, as_json=False, wide=wide)
    if output is not None:
        write(output, text)


@app.command()
def threshold(
    checkpoint: Checkpoint,
    corpus: Annotated[list[str] | None, typer.Option(help="Fit on this ingested corpus; repeatable.")] = None,
    mixture: Annotated[str | None, typer.Option(help="Fit on all corpora of this mixture, task by task.")] = None,
    split: Annotated[Split, typer.Option(help="Use this split.")] = "validation",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use this many records, chosen by sampling key.")
    ] = None,
    overlap: OverlapOption = None,
    precision: Computing = "auto",
    verify: Verify = True,
    root: Root = STORE,
    specs: Specs = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Fit the decision thresholds of a checkpoint.

    The checkpoint stores one threshold per task. `ubert evaluate` and `ubert predict` use them from then on.

    Example: ubert threshold mit_movie --corpus mit_movie_trivia --limit 1000

    Example: ubert threshold universal-small --mixture universal-small --limit 200
    """
    from pipelines.models.find import find_checkpoint
    from pipelines.models.predict import overlap_policies
    from pipelines.models.thresholds import fit, measurable
    from pipelines.specs import mixture as load_mixture
    from pipelines.specs import specs_folder

    if bool(corpus) == bool(mixture):
        raise typer.BadParameter("expected exactly one of --corpus and --mixture")
    found = find_checkpoint(checkpoint, root)
    groups = [corpus or []]
    if mixture:
        groups = list(measurable(load_mixture(mixture, specs_folder(specs)), split, root).values())
    tables: dict[str, pa.Table] = {}
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
        tables[task] = pa.Table.from_pylist(rows)
        if not as_json:
            title = f"{', '.join(corpora)}/{split}: {chosen.records:,} records"
            show({title: tables[task]}, as_json=False, wide=wide)
        say(f"threshold of {task}: {chosen.threshold:g}, stored in the checkpoint", as_json=as_json)
    if as_json:
        show(tables, as_json=True, wide=wide)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="Read this checkpoint: a hub name or a folder.")],
    out: Annotated[Path, typer.Argument(help="Write our checkpoint to this new folder.")],
) -> None:
    """Convert a public UBERT checkpoint (Fengshenbang-LM) into ours.

    Both give equal scores. Prompt it as it was trained: --task ner --instruction "TASK[SEP]SUBTASK", with its
    questions as --categories.

    Example: ubert convert IDEA-CCNL/Erlangshen-Ubert-110M-Chinese erlangshen
    """
    from ubert.model.convert_public import convert as job

    job(source, out)
    say(f"checkpoint: {out}")


@app.command()
def pack(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Argument(help="Write the small checkpoint to this new folder.")],
    average_with: Annotated[
        str, typer.Option(metavar="RUN,...", help="Average the weights with those of these checkpoints.")
    ] = "",
    root: Root = STORE,
) -> None:
    """Write a small copy of a checkpoint to share.

    The copy has the weights in half precision, without the word embeddings, which have to be those of the encoder.
    So set `freeze_words: true` in the recipe. The copy loads, predicts and trains like any other checkpoint. An
    average of runs that began with the same weights is often better than each of them. Fit its thresholds again.

    Example: ubert pack shop shop-small --average-with shop-b,shop-c
    """
    import ubert
    from pipelines.models.find import find_checkpoint
    from pipelines.models.predict import comma_separated
    from ubert.training.checkpoints.packed import pack as job

    first, *others = (
        ubert.checkpoint(find_checkpoint(one, root))
        for one in (checkpoint, *map(Path, comma_separated(average_with)))
    )
    folder = job(first, out, average_with=others)
    size = sum(path.stat().st_size for path in folder.iterdir())
    say(f"wrote {folder}: {size / 2**20:,.1f} MiB")


@app.command()
def card(
    checkpoint: Checkpoint,
    name: Annotated[str, typer.Option(help="Give the model this name; default: the folder's name.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the card to this file; default: print it.")] = None,
    root: Root = STORE,
    specs: Specs = None,
) -> None:
    """Write the model card of a checkpoint.

    It lists the corpora with their licences, the training, the thresholds, and the results of `ubert probe`. The
    store has to be the one that the model was trained in.

    Example: ubert card shop --out README.md
    """
    from pipelines.models.card import model_card
    from pipelines.models.find import find_checkpoint
    from pipelines.specs import specs_folder

    found = find_checkpoint(checkpoint, root)
    text = model_card(found, name or checkpoint.absolute().name, root, specs_folder(specs))
    if out is None:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
    else:
        write(out, text)


@app.command()
def export(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Argument(help="Write this ONNX file.")],
    verify: Verify = True,
    root: Root = STORE,
) -> None:
    """Export a checkpoint as one ONNX file.

    The file has the encoder and the head, and gives equal scores in other runtimes.

    Example: ubert export mit_movie mit_movie.onnx
    """
    import ubert
    from pipelines.models.find import find_checkpoint
    from ubert.model.onnx import export as job

    job(ubert.load(find_checkpoint(checkpoint, root), verify=verify).model, out)
    say(f"wrote {out}: {out.stat().st_size / 2**20:,.1f} MiB")


@app.command()
def peek(
    stage: Annotated[Literal["corpus", "mixture", "shard", "batch"], typer.Argument(help="Choose what to print.")],
    name: Annotated[str, typer.Argument(help="Name the corpus, the mixture, or the batch's recipe.")],
    count: Annotated[int, typer.Option("-n", min=1, help="Print this many items.")] = 1,
    root: Root = STORE,
    specs: Specs = None,
) -> None:
    """Print one record, mixture entry, shard row or batch.

    Example: ubert peek corpus wnut17 -n 3
    """
    from pipelines.report import peek as stages
    from pipelines.specs import specs_folder

    more = {"specs": specs_folder(specs)} if stage == "batch" else {}
    for item in getattr(stages, stage)(name, count, root, **more):
        console.print(item, soft_wrap=True)
