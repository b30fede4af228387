"""Write the result of a search: the mixture's YAML, a page, and a plot of the fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pipelines.pages.markdown import markdown_table
from pipelines.report.pictures import BLUE, GREY
from pipelines.tuning.proxy import explained
from pipelines.tuning.tune import Tuned, verdict
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture

EDITOR = "# yaml-language-server: $schema=../schemas/mixture.json\n"


def write(tuned: Tuned, out: Path) -> list[Path]:
    """Write the mixture to `out`, and beside it the page (.md) and its plot (.svg). Return all three paths.

    Raises:
        UserError: a file can't be written.
    """
    page, picture = out.with_suffix(".md"), out.with_suffix(".svg")
    try:
        out.write_text(EDITOR + as_yaml(tuned.mixture(out.stem)), encoding="utf-8")
        page.write_text(markdown(tuned, out.stem, picture.name), encoding="utf-8")
        _plot(tuned, picture)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}; choose another file with --out") from None
    return [out, page, picture]


def as_yaml(mixture: Mixture) -> str:
    """Format a mixture as the YAML of its file, with definitions of nested mixtures, as they may have no file."""
    content = mixture.model_dump(mode="json", exclude_defaults=True)
    first = ("name", "description", "policy", "size")
    ordered = {key: content[key] for key in (*first, *sorted(content.keys() - {*first, "sources"}), "sources")}
    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=115)


def markdown(tuned: Tuned, name: str, picture: str) -> str:
    setup, fit, confirmed = tuned.setup, tuned.fit, tuned.confirmed
    died = f"\n{explained(tuned.died)}\n" if tuned.died else ""
    return f"""# {name}

{verdict(tuned)}

{tuned.trials} trials of {setup.recipe.steps} steps were drawn around the natural shares of {setup.mixture.name},
for the validation loss of {", ".join(setup.targets)}. The evidence is {tuned.evidence}.
{died}
## Shares of draws

{_shares(tuned)}
## Confirmed

Both mixtures were trained for {setup.recipe.steps} steps with {confirmed.seeds} seeds that no trial had. The loss
is that of a validation record, averaged over the seeds.

{_losses(tuned)}
## The fit

The {fit.kind} regression was chosen by cross-validation, with a rank correlation of {_validated(fit.validated)}.
On the trials that were held back, the rank correlation of predicted and true mean loss is
{fit.held_back.correlation:.2f} (p = {fit.held_back.chance:.2g}). For each corpus:

{_ranks(tuned)}
![Predicted and true losses of the trials that were held back]({picture})
"""


def _validated(validated: dict[str, float]) -> str:
    return " and ".join(f"{correlation:.2f} ({kind})" for kind, correlation in validated.items())


def _shares(tuned: Tuned) -> str:
    space = tuned.space
    columns = (space.natural_K, space.own_K, tuned.shares)
    rows = [
        [name, *(f"{share:.1%}" for share in shares)] for name, *shares in zip(space.names, *columns, strict=True)
    ]
    return markdown_table(["source", "natural", tuned.setup.mixture.name, "found"], rows)


def _losses(tuned: Tuned) -> str:
    own, found = tuned.confirmed.own, tuned.confirmed.found
    rows = [
        [
            f"**{name}**" if name in tuned.setup.targets else name,
            f"{own[name]:.4f}",
            f"{found[name]:.4f}",
            f"{found[name] / own[name] - 1:+.1%}",
        ]
        for name in own
    ]
    return markdown_table(["corpus", tuned.setup.mixture.name, "found", "change"], rows)


def _ranks(tuned: Tuned) -> str:
    rows = [[name, f"{rank.correlation:.2f}", f"{rank.chance:.2g}"] for name, rank in tuned.fit.corpora.items()]
    return markdown_table(["corpus", "rank correlation", "p"], rows)


def _plot(tuned: Tuned, path: Path) -> None:
    from matplotlib.figure import Figure

    fit = tuned.fit
    figure = Figure(figsize=(4, 4), layout="tight")
    axes: Any = figure.subplots()
    ends = min(*fit.predicted_H, *fit.true_H), max(*fit.predicted_H, *fit.true_H)
    axes.plot(ends, ends, color=GREY, linewidth=1)
    axes.plot(fit.predicted_H, fit.true_H, "o", color=BLUE, markersize=4)
    axes.set_xlabel("predicted mean log loss", fontsize=9)
    axes.set_ylabel("true mean log loss", fontsize=9)
    axes.set_title(f"held-back trials, rank correlation {fit.held_back.correlation:.2f}", fontsize=9)
    axes.tick_params(labelsize=8)
    figure.savefig(path)
