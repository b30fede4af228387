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


def forgotten(results: Sequence[dict[str, Any]]) -> pa.Table:
    """Return what fine-tuning on each corpus changes there and on the corpora of a replayed mixture.

    The metric before, after, and after with replay is averaged over seeds. The last row of each corpus and number
    of shots has the mean of the mixture's corpora.
    """
    rows = []
    kept = [one for one in results if one.get("kept")]
    for name, tuned, shots in dict.fromkeys((one["name"], one["corpus"], one["shots"]) for one in kept):
        if shots == 0:
            continue
        of_side = [one for one in kept if (one["name"], one["corpus"]) == (name, tuned)]
        before = [_values(one) for one in of_side if one["shots"] == 0]
        after = [_values(one) for one in of_side if one["shots"] == shots and not one["replay"]]
        again = [_values(one) for one in of_side if one["shots"] == shots and one["replay"]]
        sides = {"before": before, "after": after, "with replay": again}
        first = {"run": name, "trained on": tuned, "shots": str(shots)}
        means = {side: {of: mean(one[of] for one in cells) for of in before[0]} for side, cells in sides.items()}
        for of in before[0]:
            rows.append(
                {**first, "measured on": of[0], "metric": of[1], **{side: means[side][of] for side in sides}}
            )
        of_kept = {side: mean(list(means[side].values())[1:]) for side in sides}
        rows.append({**first, "measured on": "(mean of the mixture)", "metric": "", **of_kept})
    return pa.Table.from_pylist([{key: _shown(value) for key, value in row.items()} for row in rows])


def _values(cell: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Return the values of a cell by corpus and metric, first that of the corpus it was trained on."""
    return {(one["corpus"], one["metric"]): one["value"] for one in [cell, *cell["kept"]]}


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.3f}"


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
