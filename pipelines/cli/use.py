"""Commands that use a model: on texts, and behind a web server, where a store can be browsed, too."""

from __future__ import annotations

from functools import partial
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
    errors,
    given_texts,
    print_rows,
)

Host = Annotated[str, typer.Option(help="Address to serve at; others than this machine's are open to all.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")]
ApiKey = Annotated[
    str | None,
    typer.Option(envvar="UBERT_API_KEY", help="Require `Authorization: Bearer KEY`.", show_default=False),
]


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


@app.command()
def serve(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="As in predict; default: universal-small.", show_default=False)
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: ApiKey = None,
    most_texts: Annotated[int, typer.Option(min=1, help="Texts of one request.")] = 128,
    most_categories: Annotated[int, typer.Option(min=1, help="Categories of one request.")] = 256,
    most_bytes: Annotated[int, typer.Option(min=1, help="Bytes of one request.")] = 1 << 20,
    most_waiting: Annotated[int, typer.Option(min=1, help="Texts that may wait before others get a 429.")] = 1024,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until a request gets a 503.")] = 30,
    together: Annotated[int, typer.Option(min=1, help="Texts of one pass of the model.")] = 64,
    precision: Computing = "auto",
    root: Root = STORE,
) -> None:
    """Serve a model over HTTP, with a page to try it.

    POST /v1/predict predicts texts; /openapi.json describes it. /health and /metrics are for operators.

    Example: ubert serve mit_movie

    Example: UBERT_API_KEY=... ubert serve store/runs/shop --host 0.0.0.0 --port 80
    """
    from pipelines.serving.run import serve as job
    from pipelines.serving.wire import Limits

    limits = Limits(
        body=most_bytes, texts=most_texts, categories=most_categories, waiting=most_waiting, seconds=timeout
    )
    job(
        checkpoint,
        root=root,
        host=host,
        port=port,
        key=api_key,
        limits=limits,
        precision=precision,
        together=together,
        announce=partial(_announce, host, api_key),
    )


@app.command()
def browse(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="Serve this model, too, as `ubert serve` does.", show_default=False)
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: ApiKey = None,
    precision: Computing = "auto",
    root: Root = STORE,
) -> None:
    """Browse the store in a web browser.

    It shows corpora, records, rejects, duplicates, leaks, mixtures and runs, and runs SQL as `ubert sql` does.

    Example: ubert browse --root store

    Example: ubert browse mit_movie --port 0
    """
    from pipelines.browse.routes import browser
    from pipelines.serving.run import serve as job
    from pipelines.serving.wire import Limits

    job(
        checkpoint,
        root=root,
        host=host,
        port=port,
        key=api_key,
        limits=Limits(),
        precision=precision,
        browser=browser(root, host),
        announce=partial(_announce, host, api_key),
    )


def _announce(host: str, api_key: str | None, address: str) -> None:
    console.print(f"{address} (Ctrl-C ends it)", soft_wrap=True, highlight=False)
    if api_key is None and host not in ("127.0.0.1", "::1", "localhost"):
        errors.print("whoever reaches this address can use it; UBERT_API_KEY makes them send a key")
