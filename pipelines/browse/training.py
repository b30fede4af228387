"""Runs of a store, and the curves of their logs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import SEEK_END
from pathlib import Path
from typing import NamedTuple

from pipelines.serving.wire import AbsentError
from pipelines.store.storage import Place, on_disk
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, RunManifest, read_manifest
from ubert.schema.names import is_name
from ubert.training.log import JSONL, Row, curves, read

WIDTH, HEIGHT = 640, 200  # of a plot, in units of its own
LEFT, BOTTOM, TOP = 56, 22, 8  # margins for numbers
POINTS = 300  # of a line; of more steps each is the mean of a few
TICKS = 4
RECIPE = "recipe.yaml"
END = 1 << 16  # bytes of a log that hold its last line


class Run(NamedTuple):
    """A run, and its manifest where it is finished. `last` is the last step in its log."""

    name: str
    folder: Path
    manifest: RunManifest | None
    last: Row | None


class Tick(NamedTuple):
    """A number beside an axis, and its place on it."""

    at: float
    words: str


class Line(NamedTuple):
    """The curve of one run: its points as SVG has them, and its last, least and greatest value."""

    run: str
    points: str
    last: float
    least: float
    most: float


class Plot(NamedTuple):
    """A curve of one or several runs over the steps."""

    name: str
    lines: list[Line]
    x: list[Tick]
    y: list[Tick]


def runs(root: Place) -> list[Run]:
    """All runs of the store, by name."""
    folders = sorted((on_disk(root) / "runs").glob(f"*/{RECIPE}"))
    return [_run(path.parent) for path in folders if is_name(path.parent.name)]


def run(root: Place, name: str) -> Run:
    """One run.

    Raises:
        AbsentError: there is none of that name.
    """
    folder = Store(root).run(name)
    if not (folder / RECIPE).exists():
        raise AbsentError(f"{folder}: no run here; `ubert pretrain {name}` makes it, if there is such a recipe")
    return _run(folder)


def _run(folder: Path) -> Run:
    try:
        manifest = read_manifest(RunManifest, folder) if (folder / MANIFEST).exists() else None
    except UserError:  # of another version: its log can be read all the same
        manifest = None
    return Run(folder.name, folder, manifest, _last(folder))


def _last(folder: Path) -> Row | None:
    """The last step in the log, of which just the end is read."""
    if not (folder / JSONL).exists():
        return None
    with (folder / JSONL).open("rb") as file:
        file.seek(-min(END, file.seek(0, SEEK_END)), SEEK_END)
        whole = file.read().rpartition(b"\n")[0]  # the line behind it is being written
    return Row(**json.loads(whole.rpartition(b"\n")[2])) if whole else None


def plots(some: Sequence[Run]) -> list[Plot]:
    """The curves of runs, each name in one plot."""
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
    """At most `POINTS` points, each the mean of some that follow one another."""
    size = -(-len(points) // POINTS)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in some) / len(some), sum(y for _, y in some) / len(some)) for some in groups]
