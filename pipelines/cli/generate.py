"""The command that generates texts."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import STORE, Checkpoint, Computing, Root, Texts, Verify, app, given_texts, print_rows


@app.command()
def generate(
    checkpoint: Checkpoint,
    text: Annotated[
        str | None, typer.Argument(help="Read this text; default: --input, else lines of stdin.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Give the second text of a pair.")] = None,
    source: Texts = None,
    instruction: Annotated[str | None, typer.Option(help="Say what to write, as the corpus does.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Keep this many beams.")] = 4,
    longest: Annotated[int, typer.Option(min=1, help="Generate at most this many tokens.")] = 64,
    length_penalty: Annotated[float, typer.Option(min=0, help="Prefer longer texts, from 0 to 10.")] = 0.6,
    no_repeat: Annotated[
        int, typer.Option(min=0, help="Forbid repeated n-grams of this length; 0: allow them.")
    ] = 3,
    best: Annotated[int, typer.Option(min=1, help="Print this many texts per input, up to --beams.")] = 1,
    precision: Computing = "auto",
    verify: Verify = True,
    root: Root = STORE,
) -> None:
    """Generate texts from texts, as JSON lines.

    The lines are in the order of the input.

    Example: ubert generate titles --instruction "write a title" "Shares of Quillfen fell by a tenth on Monday."

    Example: ubert generate questions --instruction "write the question that has this answer" --input texts.jsonl
    """
    from pipelines.models.find import find_checkpoint
    from pipelines.models.generate import generate as job
    from ubert.inference.generation.beam import Search

    inputs, chunk = given_texts(text, pair, source)
    search = Search(beams, longest, length_penalty, no_repeat)
    found = find_checkpoint(checkpoint, root)
    print_rows(
        job(
            found,
            inputs,
            instruction=instruction,
            search=search,
            best=best,
            precision=precision,
            verify=verify,
            chunk=chunk,
        )
    )
