"""The reference of all commands, from their help."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from pipelines.cli import app

_HEAD = """# Commands

`ubert COMMAND --help` shows the same. A command exits with 0 on success, with 1 and a sentence on an error, and
with 2 on wrong usage. `ubert --debug COMMAND` shows the traceback of an error.
"""


def page() -> str:
    """The page, as Markdown."""
    command = get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="ubert"), name="ubert")
    _, _, options = text.partition("\n\n")
    summary = re.compile(r"^\* `(\S+)`: .*$", re.MULTILINE)
    head, commands, rest = options.partition("**Commands**:")
    listed, _, sections = rest.partition("\n## ")
    links = summary.sub(lambda one: f"* [`{one[1]}`](#ubert-{one[1]}): {_first_line(one[1])}", listed)
    body = f"{_HEAD}\n{head}{commands}{links}\n## {sections}"
    return re.sub(r"^Example: (.*)$", r"```console title='Example'\n$ \1\n```", body, flags=re.MULTILINE)


def _first_line(name: str) -> str:
    """The first sentence of a command's help, where Typer's own list cuts it short."""
    found = next(one for one in app.registered_commands if _name(one) == name)
    text = " ".join((found.help or getattr(found.callback, "__doc__", "") or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text)[0]


def _name(command: typer.models.CommandInfo) -> str:
    return command.name or getattr(command.callback, "__name__", "").replace("_", "-")
