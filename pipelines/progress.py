"""A line that says how far a long job is, how fast, and how long it still takes."""

from __future__ import annotations

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
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

Item = TypeVar("Item")


class Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def progress(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """Pass `items` through, with a bar on the terminal's error stream (nothing where that is not a terminal)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            yield item
            bar.advance(task)


@contextmanager
def transfer() -> Iterator[Callable[[str, int, int | None], None]]:
    """What shows downloads on the terminal's error stream: the name of one, its bytes that are here and in all."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:

        def show(name: str, here: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(escape(name), total=total)
            bar.update(tasks[name], completed=here, total=total)

        yield show
