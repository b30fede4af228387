"""Draw plots as SVG to embed in a page, without URLs, fonts or styles. The output is deterministic."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from rich.cells import cell_len

from pipelines.report.visible import fitted
from ubert.schema.errors import UserError

# Okabe and Ito's colours, which colour-blind people can distinguish.
BLUE, ORANGE, GREY = "#0072b2", "#e69f00", "#999999"
_ROW, _WIDTH, _TOP, _BOTTOM, _RIGHT = 0.21, 4.3, 0.1, 0.22, 0.1  # inches
_SPREAD = 50  # if the ratio of the largest to the smallest value is higher, bars have a logarithmic axis
_STYLE: dict[Any, object] = {
    "svg.fonttype": "none",  # keeps text as text, because the browser has a font for every script
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "text.parse_math": False,  # a category's name may contain a $
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.spines.bottom": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GREY,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.5,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}
# Clip paths are removed, because nothing is drawn outside the axes.
_SUPERFLUOUS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"<style.*?</style>",
        r"<defs>\s*(<clipPath.*?</clipPath>)?\s*</defs>",
        r' clip-path="[^"]*"',
        r' transform="rotate\(-0 [^"]*"',
        r" font-family: 'DejaVu Sans', sans-serif;",
        r'<g id="[^"]*"/>',
        r"(?<=>)\s+(?=<)",
    )
]


def bars(names: Sequence[str], series: dict[str, Sequence[int]], tail: str | None = None) -> str:
    """Draw horizontal bars, one of each series for each name. `tail` is the label of a last, grey bar. The axis is
    logarithmic if many bars would be invisible otherwise."""
    labels = [fitted(name, 28) for name in [*names, *([tail] if tail else [])]]
    positive = [value for values in series.values() for value in values if value] or [1]
    logarithmic = max(positive) > _SPREAD * min(positive)
    low = min(positive) / 2 if logarithmic else 0

    def draw(axes: Axes) -> None:
        height = 0.8 / len(series)
        for i, ((label, values), colour) in enumerate(zip(series.items(), (BLUE, ORANGE), strict=False)):
            places = [row + (i + 0.5) * height - 0.4 for row in range(len(labels))]
            colours = [GREY if tail and row == len(names) else colour for row in range(len(labels))]
            lengths = [max(0, value - low) for value in values]
            drawn = axes.barh(places, lengths, height * 0.92, low, color=colours, label=label)
            axes.bar_label(drawn, [f"{value:,}" if value else "" for value in values], padding=2, fontsize=7)
        if logarithmic:
            axes.set_xscale("log")
            axes.set_xlabel("logarithmic", fontsize=7, labelpad=1)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlim(low, max(positive) * (3 if logarithmic else 1.18))
        axes.xaxis.set_major_formatter(_short)
        axes.set_yticks(range(len(labels)), labels=labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        if len(series) > 1:
            axes.legend(loc="lower right", fontsize=7, frameon=False, ncols=2, bbox_to_anchor=(1, 1))

    row, legend = (_ROW, 0.0) if len(series) == 1 else (_ROW * 1.35, 0.2)
    below = _BOTTOM + (0.12 if logarithmic else 0)
    size = (_WIDTH, row * len(labels) + _TOP + legend + below)
    return _svg(draw, size, left=_label_width(labels), top=_TOP + legend, bottom=below)


def histogram(counts: Sequence[int], edges: Sequence[float], *, whole: bool = True) -> str:
    """Draw the number of items between each two edges. `whole` means that the values are integers."""

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, fill=True, color=BLUE)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
        axes.xaxis.set_major_formatter(_short)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(_short)
        axes.grid(visible=False, axis="x")

    return _svg(draw, (2.9, 1.5), left=0.45)


def ranges(names: Sequence[str], quantiles: Sequence[Sequence[int]]) -> str:
    """Draw for each name a line from the 5th to the 95th percentile, a bar from the 25th to the 75th, and a dot at
    the median. The axis is logarithmic."""
    labels = [fitted(name, 34) for name in names]

    def draw(axes: Axes) -> None:
        rows = range(len(names))
        p5, p25, p50, p75, p95 = zip(*quantiles, strict=True)
        axes.hlines(rows, p5, p95, color=BLUE, linewidth=1)
        axes.hlines(rows, p25, p75, color=BLUE, linewidth=5)
        axes.plot(p50, rows, "o", color=ORANGE, markersize=4.5, markeredgecolor="white", markeredgewidth=0.6)
        axes.set_xscale("log")
        # within two decades, powers of ten alone would be too few
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(p95) < 100 * min(p5) else (1,)))
        axes.xaxis.set_major_formatter(_short)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(rows, labels=labels)
        axes.set_ylim(len(names) - 0.4, -0.6)

    return _svg(draw, (6.5, _ROW * len(names) + _TOP + _BOTTOM), left=_label_width(labels))


def _short(number: float, _: float) -> str:
    """Format a number of an axis, with k, M or G for thousands, millions or billions."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{unit}"
    return f"{number:.6g}"


def _label_width(labels: Sequence[str]) -> float:
    return 0.12 + 0.072 * max(map(cell_len, labels))


def _svg(
    draw: Callable[[Axes], None],
    size: tuple[float, float],
    left: float,
    top: float = _TOP,
    bottom: float = _BOTTOM,
) -> str:
    """Draw on axes with the given margins in inches."""
    width, height = size
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has the glyph
        figure = Figure(figsize=size)
        axes = figure.add_axes(
            (left / width, bottom / height, 1 - (left + _RIGHT) / width, 1 - (bottom + top) / height)
        )
        draw(axes)
        return _inline(figure)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's suffix.

    Raises:
        UserError: the file can't be written.
    """
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # ValueError: the suffix is not a known format
        raise UserError(f"{path}: cannot be written: {error}; choose another file with --out") from None


def _inline(figure: Figure) -> str:
    """Return the SVG of a figure without prologue, namespaces and unused ids, which only a file needs."""
    file = StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": "ubert"}):
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    head, body = text[text.index("<svg") :].split(">", 1)
    head = re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", head)
    for superfluous in _SUPERFLUOUS:
        body = superfluous.sub("", body)
    return head + ">" + re.sub(r'<g id="[^"]*">', "<g>", body)
