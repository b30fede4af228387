"""Pictures as SVG that stands inside a page: no address, no font, no style of its own; the same bytes every time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from pipelines.visible import fitted

# Okabe and Ito's colours, which colour-blind people tell apart.
BLUE, ORANGE, GREY = "#0072b2", "#e69f00", "#999999"
_ROW, _WIDTH, _LABELS, _MARGIN = 0.21, 4.3, 1.75, 0.32  # inches
_SPREAD = 50  # from this ratio of the largest to the smallest on, bars have a logarithmic axis
_STYLE = {
    "svg.fonttype": "none",  # letters stay letters: the browser has a font for every script
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "text.parse_math": False,  # a $ of a category's name is a $
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
# Nothing is drawn outside its axes, so nothing needs clipping.
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


def bars(names: Sequence[str], series: dict[str, Sequence[float]], tail: str | None = None) -> str:
    """Horizontal bars, for each name one of each series; the last name is in grey where `tail` says what it sums."""
    shown = [*names, *([tail] if tail else [])]

    def draw(axes: Axes) -> None:
        height = 0.8 / len(series)
        for i, ((label, values), colour) in enumerate(zip(series.items(), (BLUE, ORANGE), strict=False)):
            places = [row + (i + 0.5) * height - 0.4 for row in range(len(shown))]
            colours = [GREY if tail and row == len(names) else colour for row in range(len(shown))]
            drawn = axes.barh(places, values, height=height * 0.92, color=colours, label=label)
            axes.bar_label(drawn, [f"{value:,.0f}" if value else "" for value in values], padding=2, fontsize=7)
        _counts(axes, [value for values in series.values() for value in values if value > 0])
        axes.set_yticks(range(len(shown)), labels=[fitted(name, 26) for name in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        if len(series) > 1:
            axes.legend(loc="lower right", fontsize=7, frameon=False, ncols=2, bbox_to_anchor=(1, 1))

    height = _ROW * len(shown) * (1 if len(series) == 1 else 1.35) + _MARGIN
    return _svg(draw, (_WIDTH, height + (0.2 if len(series) > 1 else 0)), left=_LABELS)


def histogram(counts: Sequence[int], edges: Sequence[float], unit: str) -> str:
    """How many items lie between each two edges."""

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, fill=True, color=BLUE)
        axes.set_xlabel(unit, labelpad=2)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(visible=False, axis="x")

    return _svg(draw, (2.9, 1.6), left=0.45, bottom=0.36)


def ranges(names: Sequence[str], quantiles: Sequence[Sequence[int]], unit: str) -> str:
    """A line from the 5th to the 95th percentile of each name, a bar from the 25th to the 75th, a dot at the
    median; the axis is logarithmic."""

    def draw(axes: Axes) -> None:
        rows = range(len(names))
        p5, p25, p50, p75, p95 = zip(*quantiles, strict=True)
        axes.hlines(rows, p5, p95, color=BLUE, linewidth=1)
        axes.hlines(rows, p25, p75, color=BLUE, linewidth=5)
        axes.plot(p50, rows, "o", color=ORANGE, markersize=4.5, markeredgecolor="white", markeredgewidth=0.6)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(unit, labelpad=2)
        axes.set_yticks(rows, labels=[fitted(name, 30) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)

    return _svg(draw, (6.5, _ROW * len(names) + _MARGIN + 0.15), left=_LABELS + 0.3, bottom=0.4)


def _counts(axes: Axes, values: Sequence[float]) -> None:
    """The axis of counts: from 0, or logarithmic from below the smallest where most bars would vanish."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    most = max(values, default=1)
    if most > _SPREAD * min(values, default=1):
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 2, most * 3)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlim(0, most * 1.18)


def _svg(
    draw: Callable[[Axes], None], size: tuple[float, float], left: float, bottom: float = 0.22, right: float = 0.1
) -> str:
    """Draw on axes with fixed margins (in inches), so that the length of a name moves nothing."""
    width, height = size
    top = 0.08
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has it
        figure = Figure(figsize=size)
        axes = figure.add_axes(
            (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
        )
        draw(axes)
        return _inline(figure)


def _inline(figure: Figure) -> str:
    """The SVG of a figure without what only a file needs: prologue, namespaces, ids that nothing refers to."""
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
