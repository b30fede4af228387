"""Measure how the validation loss of each corpus changes when another source is added to its own, at equal budget.

Each source is trained alone, and with each other source. All runs have the same number of steps. So if the loss of
a corpus falls although it gets only half of the steps, the other source helps it.

Shapes: C measured corpora, K sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from pipelines.store.storage import StorePath
from pipelines.store.store import now, write_json
from pipelines.tuning.clusters import clustered
from pipelines.tuning.proxy import Finished, Proxy, explained, run_all
from pipelines.tuning.setup import Setup
from pipelines.tuning.space import Floats, pool_of
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture

DRAWS = 20_000  # limit of draws from each source; a short run sees no more


class Affinity(NamedTuple):
    """The result of `affinity`.

    `change_CK` is the relative change of the loss of each corpus when each source is added, NaN if it wasn't
    measured. `clusters` are groups of sources that help one another most, or harm one another least. `rows` are
    those of the view `affinity`.
    """

    corpora: list[str]
    sources: list[str]
    change_CK: Floats
    clusters: list[list[str]]
    rows: list[dict[str, Any]]
    died: dict[str, str]


def affinity(setup: Setup, *, seeds: int, root: StorePath, address: str | None = None) -> Affinity:
    """Measure the affinity of all pairs. The store keeps finished runs, so that an interrupted command can resume.
    The result replaces an earlier one of the same mixture name.

    Raises:
        UserError: the mixture has one source, or every run fails.
    """
    leaves = setup.mixture.leaves
    if len(leaves) == 1:
        raise UserError(
            f"mixture {setup.mixture.name} has only one source, so nothing can be added to it; add others"
        )
    names = [leaf.name for leaf in leaves]
    own = {name: next((leaf.name for leaf in leaves if leaf.corpus == name), "") for name in setup.targets}
    if outside := [name for name, leaf in own.items() if not leaf]:
        raise UserError(
            f"corpus {outside[0]} is not a source of mixture {setup.mixture.name}, so nothing can be added to it; "
            "leave it out of --for"
        )
    runs = {
        (frozenset(group), seed): setup.proxy(_equal_mixture(setup, group), seed)
        for group in [*combinations(names, 1), *combinations(names, 2)]
        if {*own.values()} & {*group}
        for seed in range(seeds)
    }
    finished = run_all([*runs.values()], root, address, "runs")
    rows = [
        {"mixture": setup.mixture.name, "fingerprint": setup.drawn.fingerprint, "steps": setup.recipe.steps, **row}
        for row in _rows(runs, finished, own, names, seeds)
    ]
    if not rows:
        raise UserError(f"no corpus has a run alone and one with another source; {explained(finished.died)}")
    found = _matrix(rows, setup.targets, names, own, finished.died)
    content = {"rows": found.rows, "clusters": found.clusters, "died": list(found.died.values()), "created": now()}
    write_json(root.absolute() / "affinity" / f"{setup.mixture.name}.json", content)
    return found


def _equal_mixture(setup: Setup, names: Sequence[str]) -> Mixture:
    """Return a mixture of some sources, with the same number of draws from each, whatever their sizes."""
    mixture = setup.mixture
    pools = {
        leaf.name: pool_of(leaf, source) for leaf, source in zip(mixture.leaves, setup.drawn.sources, strict=True)
    }
    draws = min(DRAWS, max(pools.values()))
    sources = [
        leaf.model_copy(
            update={"weight": 1.0, "max_copies": max(leaf.max_copies, math.ceil(draws / pools[leaf.name]))}
        )
        for leaf in mixture.leaves
        if leaf.name in names
    ]
    kept = mixture.model_dump(
        include={"name", "seed", "leaks", "duplicates", "suspects", "evidence", "hold_out", "licences"}
    )
    return Mixture(**kept, policy="equal", size=draws * len(sources), sources=sources)


def _rows(
    runs: dict[tuple[frozenset[str], int], Proxy],
    finished: Finished,
    own: dict[str, str],
    sources: Sequence[str],
    seeds: int,
) -> Iterator[dict[str, Any]]:
    """Yield the losses with and without each source, by corpus and seed, if both runs finished."""
    for corpus, leaf in own.items():
        for added in sources:
            for seed in range(seeds) if added != leaf else ():
                alone, both = (
                    finished.losses.get(runs[frozenset(group), seed].key) for group in ([leaf], [leaf, added])
                )
                if alone and both:
                    loss_alone, loss_with = alone[corpus], both[corpus]
                    yield {
                        "corpus": corpus,
                        "added": added,
                        "seed": seed,
                        "loss_alone": loss_alone,
                        "loss_with": loss_with,
                        "change": loss_with / loss_alone - 1,
                    }


def _matrix(
    rows: list[dict[str, Any]], corpora: list[str], sources: list[str], own: dict[str, str], died: dict[str, str]
) -> Affinity:
    change_CK = np.full((len(corpora), len(sources)), np.nan)
    for c, corpus in enumerate(corpora):
        for k, added in enumerate(sources):
            seen = [row["change"] for row in rows if (row["corpus"], row["added"]) == (corpus, added)]
            change_CK[c, k] = mean(seen) if seen else np.nan
    of_source = {leaf: change_CK[corpora.index(corpus)] for corpus, leaf in own.items()}
    order, clusters = clustered([of_source.get(name) for name in sources])
    named = [[sources[k] for k in members] for members in clusters]
    number = {name: i for i, members in enumerate(named) for name in members}
    rows = [{**row, "cluster": number[row["added"]]} for row in rows]
    kept = [sources[k] for k in order]
    by_corpus = sorted(range(len(corpora)), key=lambda c: kept.index(own[corpora[c]]))
    return Affinity([corpora[c] for c in by_corpus], kept, change_CK[by_corpus][:, order], named, rows, died)
