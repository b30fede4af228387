"""Runs of a store, and plots of their logs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import SEEK_END
from pathlib import Path
from typing import NamedTuple

from pipelines.browse.copied_runs import runs_on_disk
from pipelines.serving.wire import AbsentError
from pipelines.store.storage import StorePath
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, RECIPE, RunManifest, read_manifest
from ubert.schema.names import checked_name, is_name
from ubert.training.logs.log import JSONL, Row, curves, read

WIDTH, HEIGHT = 640, 200  # of a plot, in SVG units
LEFT, BOTTOM, TOP = 56, 22, 8  # margins for the numbers on the axes
POINTS = 300  # maximum per line; further steps are averaged in groups
TICKS = 4
END = 1 << 16  # bytes at the end of a log that contain its last line


class Run(NamedTuple):
    """A run, with its manifest if it is finished. `last` is the last step in its log."""

    name: str
    folder: Path
    manifest: RunManifest | None
    last: Row | None


class Tick(NamedTuple):
    """The label of a tick on an axis, and its position."""

    at: float
    words: str


class Line(NamedTuple):
    """The curve of one run: its points in SVG's format, and its last, least and greatest value."""

    run: str
    points: str
    last: float
    least: float
    most: float


class Plot(NamedTuple):
    """A metric over the steps, with a line for each run."""

    name: str
    lines: list[Line]
    x: list[Tick]
    y: list[Tick]


def runs(root: StorePath) -> list[Run]:
    """List all runs of the store by name."""
    folders = sorted(runs_on_disk(root).glob(f"*/{RECIPE}"))
    return [_run(path.parent) for path in folders if is_name(path.parent.name)]


def run(found: Sequence[Run], name: str) -> Run:
    """Return the run of a name.

    Raises:
        UserError: the name can't be that of a run.
        AbsentError: there is no run of that name.
    """
    checked_name("run", name)
    for one in found:
        if one.name == name:
            return one
    raise AbsentError(f"{name}: no such run; `ubert pretrain {name}` makes it, if there is a recipe of this name")


def _run(folder: Path) -> Run:
    try:
        manifest = read_manifest(RunManifest, folder) if (folder / MANIFEST).exists() else None
    except UserError:  # written by another version; its log can still be read
        manifest = None
    return Run(folder.name, folder, manifest, _last(folder))


def _last(folder: Path) -> Row | None:
    """Return the last step in the log. Only the end of the file is read."""
    if not (folder / JSONL).exists():
        return None
    with (folder / JSONL).open("rb") as file:
        file.seek(-min(END, file.seek(0, SEEK_END)), SEEK_END)
        whole = file.read().rpartition(b"\n")[0]  # the last line may be incomplete
    return Row(**json.loads(whole.rpartition(b"\n")[2])) if whole else None


def plots(some: Sequence[Run]) -> list[Plot]:
    """Plot the curves of runs. Curves of the same name share a plot."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for one in some:
        for row in read(one.folder)[0]:
            for name, value in curves(row).items():
                if math.isfinite(value):
                    found.setdefault(name, {}).setdefault(one.name, {})[row.step] = value
    return [_plot(name, by_run) for name, by_run in found.items()]


def _plot(name: str, by_run: Mapping[str, Mapping[int, float]]) -> Plot:
    thinned = {of: _thinned(sorted(values.items())) for of, values in by_run.items()}
    points = [point for some in thinned.values() for point in some]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * (step - left) / ((right - left) or 1)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / ((high - low) or 1))

    lines = [
        Line(
            of,
            " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in some),
            one[max(one)],
            min(one.values()),
            max(one.values()),
        )
        for (of, one), some in zip(by_run.items(), thinned.values(), strict=True)
    ]
    steps = [Tick(x(n), f"{n:,.0f}") for n in _spread(left, right)]
    values = [Tick(y(n), f"{n:.3g}") for n in _spread(low, high)]
    return Plot(name, lines, steps, values)


def _spread(low: float, high: float) -> list[float]:
    return [low] if low == high else [low + (high - low) * i / (TICKS - 1) for i in range(TICKS)]


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """Average successive points in groups, so that at most `POINTS` remain."""
    size = -(-len(points) // POINTS)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in some) / len(some), sum(y for _, y in some) / len(some)) for some in groups]
