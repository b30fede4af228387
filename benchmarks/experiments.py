"""Compare one recipe with variants that change one thing each, at an equal number of tokens.

Each run is measured without examples on corpora that the mixture holds out, and on unseen splits of corpora that
it has. Thresholds of mentions are fitted on other corpora of the mixture. The table has means over the seeds, and
the difference of each variant from its base with the same seed. Each result is a line of `--results`, so that the
same command continues after a stop. Use another file for another `--mixture` or `--start`.

    python benchmarks/experiments.py [--variants recipe "focal loss" ...] [--seeds 0 1 2] [--steps 500]
        [--mixture universal-small-commercial] [--start ENCODER_OR_RUN] [--root store]
        [--results experiments.jsonl] [--out experiments.svg]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from experiment_descriptions import NO_DESCRIPTIONS, asked_with, descriptions
from experiment_losses import computed_by
from experiment_variants import RECIPE, TOKENS, VARIANTS, mixed
from matplotlib.figure import Figure
from measure import ENCODER, ROOT

import ubert
from pipelines import specs
from pipelines.mixtures.mix import mix
from pipelines.models import thresholds
from pipelines.models.evaluate import measure
from pipelines.progress import progress
from pipelines.ray_tasks import completed
from pipelines.report.pictures import BLUE, ORANGE, save
from pipelines.shards.shard import shard
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from pipelines.training.short_run import short, train, use_threads_of_task
from ubert.evaluation import MAIN
from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.specs.recipe import Recipe

FITTED = 25  # validation records of each corpus of mentions, for the threshold
GROUPS: dict[str, tuple[tuple[str, Split, int], ...]] = {
    "held out": (
        ("wnut17", "validation", 100),
        ("restaurant8k", "train", 100),
        ("mams_absa", "validation", 100),
        ("trec", "train", 100),
        ("tweeteval_emotion", "validation", 100),
        ("ade_corpus_sentences", "train", 100),
        ("rte", "train", 100),
    ),
    "trained on": (
        ("broad_twitter", "test", 100),
        ("snips", "validation", 100),
        ("semeval2010_task8", "test", 60),
        ("clinc150", "validation", 50),
        ("csabstruct_sentences", "validation", 100),
        ("goemotions_sentiment", "validation", 100),
        ("medical_rqe", "test", 100),
        ("query_wellformedness", "validation", 100),
    ),
}


class Trial(NamedTuple):
    """A variant and a seed. The threshold of mentions is fitted on the corpora `fitted`."""

    variant: str
    seed: int
    recipe: Recipe
    shards: StorePath
    fitted: tuple[str, ...]
    root: StorePath


def run(trial: Trial) -> dict[str, Any]:
    """Train a variant, and measure it on the corpora of both groups."""
    use_threads_of_task()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with computed_by(VARIANTS[trial.variant].loss):
            trained = train(trial.recipe, Path(str(trial.shards)), Path(folder))
        seconds = time.perf_counter() - began
        with asked_with(descriptions() if VARIANTS[trial.variant].described == "always" else NO_DESCRIPTIONS):
            thresholds.fit(trained, corpora=trial.fitted, limit=FITTED, root=trial.root)
            predictor = ubert.load(trained)
            done = [
                measure(predictor, corpus=corpus, split=split, limit=limit, root=trial.root)
                for group in GROUPS.values()
                for corpus, split, limit in group
            ]
    return {
        "variant": trial.variant,
        "seed": trial.seed,
        "steps": trial.recipe.steps,
        "values": {one["corpus"]: round(one["metrics"][MAIN[one["task"]]], 4) for one in done},
        "training_seconds": round(seconds),
        "seconds": round(time.perf_counter() - began),
    }


def shards_of(given: argparse.Namespace, root: Path) -> dict[str, StorePath]:
    """Draw the mixtures, build their shards and return those of each variant."""
    base, recipe = specs.mixture(given.mixture, given.specs), specs.recipe(given.mixture, given.specs)
    described = {name: [one] for name, one in descriptions().items()}
    built: dict[tuple[str, bool], StorePath] = {}
    shards = {}
    for name in given.variants:
        mixture, variant = mixed(base, VARIANTS[name]), VARIANTS[name]
        key = mixture.name, bool(variant.described)
        if key not in built:
            words = described if variant.described else specs.paraphrases(given.specs)
            mix(mixture, root=root)
            shard(mixture.name, encoder=recipe.encoder, max_tokens=recipe.max_tokens, root=root, paraphrases=words)
            built[key] = Store(root).current("shards", mixture.name)[0]
        shards[name] = built[key]
    return shards


def trials_of(given: argparse.Namespace, root: Path) -> list[Trial]:
    """Return the trials: all variants of the first seed come first."""
    base, recipe = specs.mixture(given.mixture, given.specs), specs.recipe(given.mixture, given.specs)
    start = given.start if ":" in given.start else str(ubert.checkpoint(given.start))
    shards = shards_of(given, root)
    measured = {corpus for group in GROUPS.values() for corpus, _, _ in group}
    fitted = tuple(name for name in thresholds.measurable(base, "validation", root)["ner"] if name not in measured)
    trials = []
    for seed in given.seeds:
        for name in given.variants:
            changes = {"encoder": start, **RECIPE, **VARIANTS[name].recipe}
            changes["steps"] = given.steps * TOKENS // changes["tokens_per_batch"]
            short_recipe = short(recipe, name="experiment", seed=seed, **changes)
            trials.append(Trial(name, seed, short_recipe, shards[name], fitted, root))
    return trials


def scored(result: dict[str, Any], group: str) -> float:
    values: dict[str, float] = result["values"]
    return mean(values[corpus] for corpus, _, _ in GROUPS[group])


def differences(results: Sequence[dict[str, Any]], group: str) -> dict[str, list[float]]:
    """Return the difference of each variant from its base, seed by seed."""
    scores = {(one["variant"], one["seed"]): scored(one, group) for one in results}
    return {
        name: [
            score - scores[variant.of, seed]
            for (one, seed), score in sorted(scores.items())
            if one == name and name != variant.of and (variant.of, seed) in scores
        ]
        for name, variant in VARIANTS.items()
    }


def print_table(results: Sequence[dict[str, Any]]) -> None:
    print("| variant | seeds | " + " | ".join(f"{group} | difference" for group in GROUPS) + " |")
    print("|---|---" + "|--:|--:" * len(GROUPS) + "|")
    for name, variant in VARIANTS.items():
        if of_variant := [one for one in results if one["variant"] == name]:
            cells = [name if variant.of == "recipe" else f"{name} (of: {variant.of})", str(len(of_variant))]
            for group in GROUPS:
                apart = differences(results, group)[name]
                spread = f" ± {stdev(apart):.3f}" if len(apart) > 1 else ""
                cells.append(f"{mean(scored(one, group) for one in of_variant):.3f}")
                cells.append(f"{mean(apart):+.3f}{spread}" if apart else "")
            print(f"| {' | '.join(cells)} |")


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot a dot for each seed of each variant: its difference on both groups of corpora."""
    apart = {group: differences(results, group) for group in GROUPS}
    first = next(iter(apart.values()))
    names = sorted((name for name in first if first[name]), key=lambda name: mean(first[name]))
    figure = Figure(figsize=(7, 0.24 * len(names) + 0.9), layout="tight")
    axes = figure.subplots(1, len(GROUPS), sharey=True)
    for axis, (group, of_group), colour in zip(axes, apart.items(), (BLUE, ORANGE), strict=True):
        for row, name in enumerate(names):
            axis.plot(of_group[name], [row] * len(of_group[name]), "o", color=colour, markersize=3, alpha=0.6)
            axis.plot([mean(of_group[name])], [row], "|", color="black", markersize=9)
        axis.axvline(0, color="black", linewidth=0.6)
        axis.set_title(group, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set_yticks(range(len(names)), names)
    figure.supxlabel("difference of the mean score", fontsize=9)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=500, help=f"steps of a run, of {TOKENS} tokens each")
    parser.add_argument("--mixture", default="universal-small-commercial", help="mixture and recipe")
    parser.add_argument("--start", default=ENCODER)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--specs", type=Path, default=Path("corpus_specs"))
    parser.add_argument("--results", type=Path, default=Path("experiments.jsonl"))
    parser.add_argument("--out", type=Path, help="a picture of the differences, .svg or .png")
    given = parser.parse_args()
    trials = {(one.variant, one.seed, one.recipe.steps): one for one in trials_of(given, given.root.absolute())}
    lines = given.results.read_text(encoding="utf-8").splitlines() if given.results.exists() else []
    found = {(one["variant"], one["seed"], one["steps"]): one for one in map(json.loads, lines)}
    results = [found[key] for key in trials if key in found]
    jobs = [(trial,) for key, trial in trials.items() if key not in found]
    for _, outcome in progress(completed(run, jobs), len(jobs), "runs"):
        if isinstance(outcome, UserError):
            raise outcome
        results.append(outcome)
        with given.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
        print(json.dumps(outcome), flush=True)
    print_table(results)
    if given.out:
        draw(results, given.out)


if __name__ == "__main__":
    main()
