"""Show the progress of a long job, its rate and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ubert.training.logs.pace import Pace, TimeLeft, format_left, pace_of

Item = TypeVar("Item")
SILENCE = 10.0  # seconds between lines of a log
REFRESH = 0.1  # seconds between updates of a bar


class Rate(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        rate = pace_of(task).rate
        return Text("" if rate is None else f"{rate:,.0f}/s")


def progress(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """Yield `items`. Show a bar on stderr if that is a terminal, and else print a line every ten seconds."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeLeft())
    console = Console(stderr=True)
    logged, pace = time.monotonic(), Pace()
    pace.observe(logged, 0)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        for done, item in enumerate(items, 1):
            yield item
            bar.advance(task)
            if console.is_terminal:
                continue
            now = time.monotonic()
            pace.observe(now, done)
            if now - logged >= SILENCE:
                # The first item waits for what is loaded once, and for the rest of its batch.
                left = pace.left(now, total) if 1 < done < total else None
                _log(console, f"{label}: {done:,} of {total:,}", left)
                logged = now


def _log(console: Console, shown: str, left: float | None) -> None:
    """Print a line of a log: what is done, and the seconds left if they are known."""
    console.print(
        ", ".join(filter(None, (shown, format_left(left)))), highlight=False, markup=False, soft_wrap=True
    )


@contextmanager
def meter(label: str, size: int, unit: str) -> Iterator[Callable[[float, float], None]]:
    """Yield a function to report progress: how much more of `size` is done, and how many more of `unit`. If `size`
    is 0, it is not known.

    It may be called at any rate. On a terminal it updates a bar; elsewhere it prints a line every ten seconds.
    Progress before the first of `unit` was made by an earlier run, so it does not count for the rate.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeLeft())
    console = Console(stderr=True)
    began = logged = shown = time.monotonic()
    done = count = 0.0
    pace = Pace()
    pace.observe(began, done)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=size or None, rate="")

        def advance(more: float, counted: float) -> None:
            nonlocal done, count, logged, shown, pace
            done, count, now = done + more, count + counted, time.monotonic()
            if not count:
                pace = Pace()
                pace.observe(now, done)
                bar.update(task, completed=done, pace=Pace())
            if now - shown < REFRESH:
                return
            shown = now
            pace.observe(now, done)
            rate = f"{count:,.0f} {unit}, {count / max(now - began, 1e-9):,.0f} {unit}/s"
            bar.update(task, completed=done, rate=rate)
            if not console.is_terminal and now - logged >= SILENCE:
                left = pace.left(now, size) if 0 < done < size else None
                _log(console, f"{label}: {done / size:.0%}, {rate}" if size else f"{label}: {rate}", left)
                logged = now

        yield advance


@contextmanager
def transfer() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function that shows a download on stderr: its name, the bytes so far, and the total bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, TimeLeft(), console=console, transient=True, disable=not console.is_terminal) as bar:

        def show(name: str, here: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(escape(name), total=total, completed=here)
            bar.update(tasks[name], completed=here, total=total)

        yield show
