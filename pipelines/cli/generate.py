"""The command that writes texts."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import STORE, Checkpoint, Computing, Root, Texts, Verify, app, given_texts, print_rows


@app.command()
def generate(
    checkpoint: Checkpoint,
    text: Annotated[
        str | None, typer.Argument(help="One text; else --input, else a text a line of stdin.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of TEXT.")] = None,
    source: Texts = None,
    instruction: Annotated[str | None, typer.Option(help="What to write, as its corpus says it.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Texts that are kept at each word.")] = 4,
    longest: Annotated[int, typer.Option(min=1, help="Tokens of a written text.")] = 64,
    length_penalty: Annotated[float, typer.Option(min=0, help="0 to 10; the higher, the longer the texts.")] = 0.6,
    no_repeat: Annotated[
        int, typer.Option(min=0, help="So many words in a row occur once in a text; 0: they may repeat.")
    ] = 3,
    best: Annotated[int, typer.Option(min=1, help="Texts to print for each one, at most one a beam.")] = 1,
    precision: Computing = "auto",
    verify: Verify = True,
    root: Root = STORE,
) -> None:
    """Write a text from each text: JSON lines, in the order of the texts.

    Example: ubert generate titles --instruction "write a title" "Shares of Quillfen fell by a tenth on Monday."

    Example: ubert generate questions --instruction "write the question that has this answer" --input texts.jsonl
    """
    from pipelines.evaluate import find_checkpoint
    from pipelines.generate import generate as job
    from ubert.inference.beam import Search

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
