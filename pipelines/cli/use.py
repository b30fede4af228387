"""Commands that use a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import (
    STORE,
    Address,
    Checkpoint,
    Computing,
    OverlapOption,
    Root,
    Texts,
    Threshold,
    Verify,
    app,
    console,
    given_texts,
    print_rows,
)


@app.command()
def predict(
    checkpoint: Checkpoint,
    text: Annotated[
        str | None, typer.Argument(help="One text; else --input, else a text a line of stdin.")
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            help="classification, multilabel, pair, choice, regression, ner, relation, event, coref or qa."
        ),
    ] = "ner",
    categories: Annotated[
        str,
        typer.Option(
            help="Labels, entity types, or numbers of a scale, with commas between; one with a comma in quotes."
        ),
    ] = "",
    relation: Annotated[
        list[str] | None, typer.Option(help='"NAME" or "NAME:HEAD TYPE:TAIL TYPE"; may be repeated.')
    ] = None,
    event: Annotated[list[str] | None, typer.Option(help='"TYPE:ROLE,ROLE"; may be repeated.')] = None,
    question: Annotated[list[str] | None, typer.Option(help="A question, for qa; may be repeated.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of TEXT.")] = None,
    source: Texts = None,
    output: Annotated[
        Path | None, typer.Option(help="Write to this file; a command that was stopped goes on where it was.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that predict, on Ray; needs --output.")] = 1,
    address: Address = None,
    instruction: Annotated[str | None, typer.Option(help="The task in words, as its corpus says it.")] = None,
    threshold: Threshold = None,
    overlap: OverlapOption = None,
    discontinuous: Annotated[bool, typer.Option(help="For ner: mentions may have several fragments.")] = False,
    precision: Computing = "auto",
    verify: Verify = True,
    root: Root = STORE,
) -> None:
    """Predict texts as JSON lines, in their order.

    Other fields of the input, such as an id, are kept.

    Example: ubert predict mit_movie --task ner --categories actor,genre "a comedy with Jim Carrey"

    Example: ubert predict deals --task relation --relation "works for:person:organisation" "Ada joined Quillfen."

    Example: ubert predict deals --task event --event "hiring:employer,employee" "Ada joined Quillfen."

    Example: ubert predict mit_movie --categories actor,title --input texts.jsonl --output found.jsonl --workers 4

    Example: ubert predict squad --task qa --question "Who wrote it?" --input texts.csv --output answers.jsonl

    Example: ubert predict quiz --task choice --categories '"yes, it is",no' --pair "Is it shut?" "No light."
    """
    from pipelines.evaluate import find_checkpoint
    from pipelines.predict import Ask, comma_separated, event_types, overlap_policies, predict_file, relation_types
    from pipelines.predict import predict as job

    if (output is not None and source is None) or (workers > 1 and output is None):
        raise typer.BadParameter("--output needs --input, and --workers needs --output")
    ask = Ask(
        task=task,
        categories=[*comma_separated(categories), *(question or [])],
        relations=relation_types(relation or []),
        events=event_types(event or []),
        instruction=instruction,
        threshold=threshold,
        overlap=overlap_policies(overlap or []),
        discontinuous=discontinuous,
    )
    found = find_checkpoint(checkpoint, root)
    if source is None or output is None:
        inputs, chunk = given_texts(text, pair, source)
        print_rows(job(found, inputs, precision=precision, verify=verify, chunk=chunk, **ask))
        return
    if text is not None or pair is not None:
        raise typer.BadParameter("give a text or --input, not both")
    texts = predict_file(
        found, source, output, precision=precision, verify=verify, workers=workers, address=address, **ask
    )
    console.print(f"{output}: {texts:,} texts", soft_wrap=True, highlight=False)
