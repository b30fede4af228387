"""Draw the matrix of `ubert affinity` as a heat map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.report.pictures import BLUE, GREY, ORANGE, save
from pipelines.tuning.affinity import Affinity


def heat_map(found: Affinity, path: Path) -> None:
    """Draw the matrix, with blue for a falling loss and orange for a rising one.

    Raises:
        UserError: the file can't be written.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    rows, columns = found.change_CK.shape
    figure = Figure(figsize=(2.5 + 0.6 * columns, 2 + 0.4 * rows), layout="tight")
    axes: Any = figure.subplots()
    most = float(np.nanmax(np.abs(found.change_CK)))
    colours = LinearSegmentedColormap.from_list("change", [BLUE, "white", ORANGE])
    axes.set_facecolor(f"{GREY}33")  # cells that were not measured
    axes.imshow(found.change_CK, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    for (c, k), change in np.ndenumerate(found.change_CK):
        if not np.isnan(change):
            axes.text(k, c, f"{change:+.0%}", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(columns), labels=found.sources, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(rows), labels=found.corpora, fontsize=8)
    axes.set_xlabel("source that is added", fontsize=8)
    axes.set_title("change of the validation loss", fontsize=9)
    save(figure, path)
