"""Commands that predict texts, and that serve a model or the store over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    check_given,
    given_texts,
    note,
    print_rows,
    resumable,
    say,
)
from ubert.schema.errors import UserError
from ubert.schema.record import Task

if TYPE_CHECKING:
    from pipelines.models.predict import Ask

Host = Annotated[str, typer.Option(help="Serve at this address; 0.0.0.0: to every machine.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Serve at this port; 0: any free one.")]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="UBERT_API_KEY", help="Require the header `Authorization: Bearer KEY`.", show_default=False
    ),
]

# What a task needs, and the option for it.
_NEEDED = {
    "ner": ("entity type", "--categories person,place"),
    "relation": ("relation", '--relation "lives in:person:place"'),
    "event": ("event type", '--event "attack:attacker,target"'),
    "qa": ("question", '--question "Who wrote it?"'),
    "regression": ("value", "--categories 0,1,2,3,4,5"),
}


@app.command()
def predict(
    checkpoint: Checkpoint,
    text: Annotated[
        str | None, typer.Argument(help="Read this text; default: --input, else lines of stdin.")
    ] = None,
    task: Annotated[
        Task,
        typer.Option(
            metavar="<str>",
            help="Predict this task: classification, multilabel, pair, choice, regression, ner, relation, event, "
            "coref or qa.",
        ),
    ] = "ner",
    categories: Annotated[
        str, typer.Option(help="Predict these labels, types or scale values, separated by commas.")
    ] = "",
    relation: Annotated[
        list[str] | None,
        typer.Option(help='Predict this relation: "NAME" or "NAME:HEAD TYPE:TAIL TYPE"; repeatable.'),
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option(help='Predict this event type: "TYPE:ROLE,ROLE"; repeatable.')
    ] = None,
    question: Annotated[list[str] | None, typer.Option(help="Ask this question, for qa; repeatable.")] = None,
    pair: Annotated[str | None, typer.Option(help="Give the second text of a pair.")] = None,
    source: Texts = None,
    output: Annotated[
        Path | None, typer.Option(help="Write to this file; a repeated command continues it.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Predict with this many Ray processes; needs --output.")] = 1,
    address: Address = None,
    instruction: Annotated[str | None, typer.Option(help="Say the task in words, as its corpus does.")] = None,
    threshold: Threshold = None,
    overlap: OverlapOption = None,
    discontinuous: Annotated[
        bool, typer.Option("--discontinuous", help="Join fragments to discontinuous mentions, for ner.")
    ] = False,
    precision: Computing = "auto",
    verify: Verify = True,
    root: Root = STORE,
) -> None:
    """Predict annotations of texts, as JSON lines.

    The lines are in the order of the input and keep its other fields, such as an id. Put a category that has a
    comma, and a relation or event type that has a colon, in double quotes. When two mentions overlap, the one with
    the higher score is kept; see --overlap. A row of --input may have its own list "categories", or for qa its
    "question", which replaces the option.

    Example: ubert predict mit_movie --task ner --categories actor,genre "a comedy with Jim Carrey"

    Example: ubert predict deals --task relation --relation "works for:person:organisation" "Ada joined Quillfen."

    Example: ubert predict deals --task event --event "hiring:employer,employee" "Ada joined Quillfen."

    Example: ubert predict mit_movie --categories actor,title --input texts.jsonl --output found.jsonl --workers 4

    Example: ubert predict squad --task qa --question "Who wrote it?" --input texts.csv --output answers.jsonl

    Example: ubert predict quiz --task choice --categories '"yes, it is",no' --pair "Is it shut?" "No light."
    """
    from pipelines.models.find import find_checkpoint
    from pipelines.models.predict import (
        Ask,
        comma_separated,
        event_types,
        overlap_policies,
        predict_file,
        relation_types,
    )
    from pipelines.models.predict import predict as job
    from ubert.inference.questions import NAMED

    check_given(text, pair, source)
    if (output is not None and source is None) or (workers > 1 and output is None):
        raise typer.BadParameter("--output needs --input, and --workers needs --output")
    if address is not None and workers == 1:
        raise typer.BadParameter("--address needs --workers: without it, one process on this machine predicts")
    if question and task != "qa":
        raise typer.BadParameter(f"--question is for --task qa, got --task {task}; name labels with --categories")
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
    if source is None or task not in NAMED:  # else each row may have its own
        _check_asked(task, ask)
    found = find_checkpoint(checkpoint, root)
    if source is None or output is None:
        inputs, chunk = given_texts(text, pair, source)
        print_rows(job(found, inputs, precision=precision, verify=verify, chunk=chunk, **ask))
        return
    with resumable():
        texts = predict_file(
            found, source, output, precision=precision, verify=verify, workers=workers, address=address, **ask
        )
    say(f"wrote {output}: {texts:,} texts")


def _check_asked(task: Task, ask: Ask) -> None:
    """Check that something is asked for, as `predict` does too, but with the option to add.

    Raises:
        UserError: there is nothing to predict.
    """
    given = {"relation": ask["relations"], "event": ask["events"]}.get(task, ask["categories"])
    if not given and task not in ("coref", "seq2seq", "text"):
        needed, option = _NEEDED.get(task, ("category", "--categories positive,negative"))
        raise UserError(f"no {needed} given; task {task} needs at least one, such as {option}")


@app.command()
def serve(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(help="Name a run or folder as in predict; default: universal-small.", show_default=False),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: ApiKey = None,
    most_texts: Annotated[int, typer.Option(min=1, help="Accept at most this many texts per request.")] = 128,
    most_categories: Annotated[int, typer.Option(min=1, help="Accept at most this many categories.")] = 256,
    most_bytes: Annotated[int, typer.Option(min=1, help="Accept at most this many bytes per request.")] = 1 << 20,
    most_waiting: Annotated[
        int, typer.Option(min=1, help="Queue this many texts at most, then answer 429.")
    ] = 1024,
    timeout: Annotated[float, typer.Option(min=0.1, help="Answer 503 after this many seconds.")] = 30,
    together: Annotated[int, typer.Option(min=1, help="Batch at most this many texts.")] = 64,
    precision: Computing = "auto",
    root: Root = STORE,
) -> None:
    """Serve a model over HTTP, with a page.

    POST /v1/predict predicts texts, and /openapi.json describes the requests. Try the model on the page at /.
    /health and /metrics are for operators.

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
        Path | None, typer.Argument(help="Serve this model too, as `ubert serve` does.", show_default=False)
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: ApiKey = None,
    precision: Computing = "auto",
    root: Root = STORE,
) -> None:
    """Browse the store in a web browser.

    It shows corpora, records, rejects, duplicates, leaks, mixtures and runs. It also runs SQL, as `ubert sql`
    does.

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
    say(f"{address} (Ctrl-C ends it)")
    if api_key is None and host not in ("127.0.0.1", "::1", "localhost"):
        note("anyone who reaches this address can use it; set UBERT_API_KEY to require a key")
