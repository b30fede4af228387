"""Generate the reference of all commands from their help."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from pipelines.cli.commands import app

_HEAD = """# Commands

`ubert COMMAND --help` shows the same. A command exits with 0 on success, with 1 and a sentence on an error, and
with 2 on wrong usage. `ubert --debug COMMAND` shows the traceback of an error.

A table fits the terminal. Numbers and names stay whole, long texts end in an ellipsis, and a line below the table
names the columns that did not fit. `--wide` shows everything, and so does a pipe or a file. `--json` prints an
array of rows, or an object of arrays if the command prints several tables. Messages then go to the error stream.
"""


def page() -> str:
    """Return the page as Markdown. It is Typer's output, with the examples as code blocks."""
    command = get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="ubert"), name="ubert")
    _, _, sections = text.partition("\n## ")
    return re.sub(r"^Example: (.*)$", r"```console\n$ \1\n```", f"{_HEAD}\n## {sections}", flags=re.MULTILINE)
