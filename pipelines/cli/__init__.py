"""The `ubert` command. Each subcommand parses its arguments, calls one job and prints the result."""

from __future__ import annotations

import gc
import signal
import sys
from io import TextIOWrapper

from pipelines import openmp

NEW_OBJECTS = 50_000  # between garbage collections; imports create a million objects and almost no garbage


def main() -> None:
    """Run the command. During the imports Ctrl-C ends it at once, because an exception would print a traceback."""
    openmp.set_variables()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # other encodings lack most characters of texts
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    at_interrupt = signal.getsignal(signal.SIGINT)
    if at_interrupt is signal.default_int_handler:  # else it is ignored: the command runs in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipelines.cli.commands import app
    from pipelines.cli.shared import with_plain_errors

    signal.signal(signal.SIGINT, at_interrupt)
    with_plain_errors(app)
