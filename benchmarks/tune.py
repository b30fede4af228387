"""The mixture that `ubert tune` finds, against common manual choices, on the same corpora.

Theirs takes the same sources and as many draws, with temperature 1 (proportional to records), 2 and 5, or in equal
shares. All mixtures are trained from the same encoder for `--final` steps with each seed. The metric is the
validation loss of each target, and its mean (of logarithms, as in the search). Runs are kept in the store, so that
an interrupted benchmark resumes. The corpora must be ingested first.

    python benchmarks/tune.py [--trials 48] [--steps 300] [--final 1000] [--seeds 3] [--root store] [--quick]
"""

from __future__ import annotations

import argparse
import sys
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

from measure import ROOT, report

from pipelines import specs
from pipelines.tuning.proxy import explained, run_all
from pipelines.tuning.setup import proxy_recipe, setup
from pipelines.tuning.space import weighted
from pipelines.tuning.tune import MIN_TRIALS, tune, verdict
from ubert.schema.specs.mixture import Mixture

TARGETS = "sst,rte,snips_intent,snips,wnut17,squad2_cs224n"  # corpora of first-mixture with a validation split
UNIT = "validation loss"
POLICIES: dict[str, dict[str, Any]] = {
    "temperature 1": {"policy": "proportional"},
    "temperature 2": {"policy": "temperature", "temperature": 2.0},
    "temperature 5": {"policy": "temperature", "temperature": 5.0},
    "equal": {"policy": "equal"},
}


def by_policy(mixture: Mixture, size: int, policy: dict[str, Any]) -> Mixture:
    """Return the mixture with another policy."""
    kept = mixture.model_dump(exclude={"policy", "temperature", "sources"})
    return Mixture(**{**kept, "size": size, "sources": mixture.sources, **policy})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixture", default="first-mixture")
    parser.add_argument("--for", dest="targets", default=TARGETS)
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--steps", type=int, default=300, help="steps of each trial")
    parser.add_argument("--final", type=int, default=1000, help="steps of each run that is compared")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=500, help="validation records of each corpus")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--specs", type=Path, default=Path("corpus_specs"))
    parser.add_argument("--quick", action="store_true", help="the fewest trials, three steps, two seeds")
    given = parser.parse_args()
    if given.quick:
        given.trials, given.steps, given.final, given.seeds, given.limit = MIN_TRIALS, 3, 3, 2, 10
    mixture = specs.mixture(given.mixture, given.specs)
    recipe = proxy_recipe(None, given.mixture, given.specs)
    shared: dict[str, Any] = {"targets": given.targets.split(","), "limit": given.limit, "root": given.root}
    trials = setup(mixture, recipe, steps=given.steps, **shared)
    tuned = tune(trials, trials=given.trials, seeds=given.seeds, seed=0, root=given.root)
    rank = tuned.fit.held_back
    held_back = f"Held-back trials: rank correlation {rank.correlation:.2f} (p = {rank.chance:.2g})"
    print(f"{verdict(tuned)} {held_back}", file=sys.stderr, flush=True)

    final, size = setup(mixture, recipe, steps=given.final, **shared), tuned.space.size
    mixtures = {"found": weighted(mixture, size, tuned.shares, name=mixture.name)}
    mixtures |= {name: by_policy(mixture, size, policy) for name, policy in POLICIES.items()}
    runs = {name: [final.proxy(one, seed) for seed in range(given.seeds)] for name, one in mixtures.items()}
    finished = run_all([run for of_one in runs.values() for run in of_one], given.root, None, "compare")
    if finished.died:
        print(explained(finished.died), file=sys.stderr, flush=True)
    losses = {
        name: [finished.losses[run.key] for run in of_one if run.key in finished.losses]
        for name, of_one in runs.items()
    }
    for name in POLICIES:
        ours, theirs = losses["found"], losses[name]
        if not ours or not theirs:
            continue
        n = min(len(ours), len(theirs))
        for corpus in final.targets:
            mine, others = (mean(of_run[corpus] for of_run in side) for side in (ours, theirs))
            report("tune", f"{name}, {corpus}", mine, others, UNIT, n)
        mine, others = (
            exp(mean(log(of_run[c]) for of_run in side for c in final.targets)) for side in (ours, theirs)
        )
        report("tune", f"{name}, mean", mine, others, UNIT, n)


if __name__ == "__main__":
    main()
