"""Show the results of a probe as a table, and plot the metric against the number of shots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow as pa

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")  # Okabe and Ito's
COLUMNS = 4  # plots in a row


def table(results: Sequence[dict[str, Any]]) -> pa.Table:
    """Return a row for each corpus and number of shots, and one for the mean of all corpora. Each has the mean and
    standard deviation of each side, and how far the first side is ahead of the last."""
    sides = list(dict.fromkeys(result["name"] for result in results))
    corpora = list(dict.fromkeys(result["corpus"] for result in results))
    counts = list(dict.fromkeys(str(result["shots"]) for result in results))
    rows = [_row(results, corpus, shots, sides) for shots in counts for corpus in corpora]
    for shots in counts:
        of_shots = [row for row in rows if row["shots"] == shots]
        rows.append(
            {
                "corpus": "(mean)",
                "metric": "",
                "shots": shots,
                **{side: f"{mean(row[f'{side} mean'] for row in of_shots):.3f}" for side in sides},
                "ahead": f"{mean(row['gain'] for row in of_shots):+.3f}",
            }
        )
    shown = ["corpus", "metric", "shots", *sides, *(["ahead"] if len(sides) > 1 else [])]
    return pa.Table.from_pylist([{name: row[name] for name in shown} for row in rows])


def _row(results: Sequence[dict[str, Any]], corpus: str, shots: str, sides: Sequence[str]) -> dict[str, Any]:
    same = [one for one in results if one["corpus"] == corpus and str(one["shots"]) == shots]
    row: dict[str, Any] = {"corpus": corpus, "metric": same[0]["metric"], "shots": shots}
    for side in sides:
        values = [one["value"] for one in same if one["name"] == side]
        row[f"{side} mean"] = mean(values)
        row[side] = f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
    row["gain"] = row[f"{sides[0]} mean"] - row[f"{sides[-1]} mean"]
    return {**row, "ahead": f"{row['gain']:+.3f}"}


def curves(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot the metric of each corpus against the shots, with one line and its range for each side.

    Raises:
        UserError: the file can't be written.
    """
    from matplotlib.figure import Figure

    from pipelines.report.pictures import save

    sides, corpora, counts = (
        list(dict.fromkeys(str(result[name]) for result in results)) for name in ("name", "corpus", "shots")
    )
    columns = min(COLUMNS, len(corpora))
    rows = -(-len(corpora) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows), layout="tight")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(corpora) :]:
        axis.set_visible(False)
    for axis, corpus in zip(axes.flat, corpora, strict=False):
        of_corpus = [result for result in results if result["corpus"] == corpus]
        for side, colour in zip(sides, cycle(COLOURS), strict=False):
            values = [
                [one["value"] for one in of_corpus if (one["name"], str(one["shots"])) == (side, count)]
                for count in counts
            ]
            axis.plot(counts, list(map(mean, values)), "o-", color=colour, label=side, markersize=4)
            axis.fill_between(counts, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.2)
        axis.set_title(f"{corpus}, {of_corpus[0]['metric']}", fontsize=8)
        axis.tick_params(labelsize=8)
    axes.flat[0].legend(fontsize=8)
    figure.supxlabel("shots of each category", fontsize=9)
    save(figure, path)
