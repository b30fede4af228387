"""Plot a metric of runs over their steps, from the evaluations (`evaluate_every`) in their logs.

    python benchmarks/curve.py running_text --metric running_text_wikitext2/validation/perplexity \
        --out docs/perplexity.svg [--root store]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from measure import ROOT

from ubert.schema.errors import UserError
from ubert.training.logs import log


def points(run: Path, metric: str) -> list[tuple[int, float]]:
    """Read pairs of step and metric from a run's log.

    Raises:
        UserError: the log has no such metric.
    """
    rows, _ = log.read(run)
    found = [(row.step, row.metrics[metric]) for row in rows if row.metrics and metric in row.metrics]
    if not found:
        raise UserError(f"{run}: its log has no {metric}; give the recipe `evaluate_every`")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="names of runs of the store")
    parser.add_argument("--metric", required=True, help="<corpus>/<split>/<metric>")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=ROOT)
    given = parser.parse_args()
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ubert"})
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for run in given.runs:
        axes.plot(*zip(*points(given.root / "runs" / run, given.metric), strict=True), marker=".", label=run)
    axes.set(xlabel="steps", ylabel=given.metric, yscale="log")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(given.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
