"""The log of a run: the numbers of each step as JSONL, for TensorBoard, and as a progress line."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ubert.schema.disk import write_whole
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Trained
from ubert.training.logs.pace import Pace, TimeLeft, format_left

JSONL = Path("logs/train.jsonl")
PLAIN_EVERY = 10.0  # seconds between two lines if there is no terminal


class Row(NamedTuple):
    """The numbers of one step. `step` of `steps` are done. `loss` is the mean per text or per masked token,
    depending on `objective`. `tokens` exclude padding."""

    step: int
    steps: int
    objective: Trained
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    seconds: float
    metrics: dict[str, float] | None = None  # if they were measured after this step


LogRow = Callable[[Row], None]


def curves(row: Row) -> dict[str, float]:
    """Return the values to plot by name. Each objective has its own loss curve."""
    return {
        f"loss/{row.objective}": row.loss,
        "learning_rate": row.learning_rate,
        "gradient_norm": row.gradient_norm,
        "tokens_per_second": row.tokens_per_second,
    } | (row.metrics or {})


@contextmanager
def logging_to(run: Path, done: int) -> Iterator[LogRow]:
    """Write rows to `<run>/logs`. Remove rows of steps after `done`, which are repeated.

    Raises:
        UserError: the log cannot be written, or its disk is full.
    """
    from torch.utils.tensorboard import SummaryWriter  # imports torch, which reading a log doesn't need

    path = run / JSONL
    kept = [_line(row) for row in read(run)[0] if row.step <= done]
    with _written(run):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in kept))
        writer = SummaryWriter(str(path.parent), purge_step=done + 1)
    with path.open("ab", buffering=0) as file:

        def log_row(row: Row) -> None:
            with _written(run):
                line = _line(row).encode() + b"\n"
                if file.write(line) < len(line):  # no error if a part of it fits
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                for name, value in curves(row).items():
                    writer.add_scalar(name, value, row.step)

        try:
            yield log_row
        finally:
            with _written(run):
                writer.close()


@contextmanager
def _written(run: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{run / JSONL.parent}: the log cannot be written ({error.strerror or error}); free some disk "
            "space, then run the same command again: it continues from the last checkpoint"
        ) from None


def _line(row: Row) -> str:
    return json.dumps({name: value for name, value in row._asdict().items() if value is not None})


def read(run: Path, start: int = 0) -> tuple[list[Row], int]:
    """Read the rows of a run's log from byte `start` on. Return them and the byte to continue from.

    A line that is still being written is left for the next call.
    """
    path = run / JSONL
    if not path.exists():
        return [], 0
    with path.open("rb") as file:
        # a resumed run rewrites its log: read from the beginning if `start` is no longer the start of a line
        if start:
            file.seek(start - 1)
            start = start if file.read(1) == b"\n" else 0
        file.seek(start)
        whole = file.read().rpartition(b"\n")[0]
    return [Row(**json.loads(line)) for line in whole.splitlines()], start + len(whole) + bool(whole)


@contextmanager
def progress(console: Console | None = None) -> Iterator[LogRow]:
    """Show rows: as a progress bar in a terminal, as a plain line every few seconds elsewhere."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _plain(console)
        return
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[rate]:,.0f} tokens/s "),
        TimeLeft(),
    )
    with Progress(*columns, console=console) as bar:
        task: TaskID | None = None

        def log_row(row: Row) -> None:
            nonlocal task
            if task is None:
                task = bar.add_task("", total=row.steps, completed=row.step, loss=0.0, rate=0.0)
            bar.update(task, completed=row.step, loss=row.loss, rate=row.tokens_per_second)

        yield log_row


def _plain(console: Console) -> LogRow:
    shown = float("-inf")
    rows: list[Row] = []
    pace, trained = Pace(), 0.0

    def log_row(row: Row) -> None:
        nonlocal shown, trained
        pace.observe(trained, row.step - 1)
        trained += row.seconds
        pace.observe(trained, row.step)
        rows.append(row)
        if monotonic() - shown < PLAIN_EVERY and row.step < row.steps:
            return
        seconds = sum(r.seconds for r in rows)
        loss = sum(r.loss for r in rows) / len(rows)
        rate = sum(r.tokens for r in rows) / seconds
        left = format_left(pace.left(trained, row.steps))
        line = f"step {row.step}/{row.steps}  loss {loss:.4f}  {rate:,.0f} tokens/s  {left}"
        console.print(line, highlight=False, soft_wrap=True)
        shown = monotonic()
        rows.clear()

    return log_row
