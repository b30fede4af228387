"""The randomness that `shuffle_blocks` costs: theirs is `shuffle_blocks: 1`, a permutation of all rows.

Neighbours are two texts in the same batch, or in the same hundredth of an epoch. The benchmark prints the share of
them that are neighbours again in the next epoch. It then trains a logistic regression for two epochs, with a
linear schedule, and prints by how much its loss exceeds the least possible one. Each topic has right weights of
its own. In the case "mixed", each shard has rows of all topics. In "sorted", a shard has one topic, as in a corpus
whose files are sorted.

    python benchmarks/shuffle.py [--rows 160000] [--shards 64] [--seeds 3] [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from batches_large import generate
from measure import report

from ubert.encoder.ragged import Longs
from ubert.loader.plan import Plan
from ubert.loader.shards import Shards, open_shards
from ubert.schema.specs.recipe import Recipe

BLOCKS = (2, 8, 32)
EPOCHS = 2
TOPICS, WIDTH = 16, 16
RATE = 1.0
WINDOW = 100  # parts of an epoch

Floats = npt.NDArray[np.float64]


class Problem(NamedTuple):
    """Features and labels of R rows, and the least loss of a logistic regression on all of them."""

    feature_RW: Floats
    label_R: Floats
    least: float

    @classmethod
    def make(cls, topic_R: Longs) -> Problem:
        draw = np.random.default_rng(0)
        shared, own_TW = draw.normal(size=WIDTH), draw.normal(size=(TOPICS, WIDTH))
        feature_RW = draw.normal(size=(len(topic_R), WIDTH))
        score_R = (feature_RW * (shared + own_TW[topic_R])).sum(axis=1)
        label_R = (draw.random(len(topic_R)) < 1 / (1 + np.exp(-score_R))).astype(float)
        problem = cls(feature_RW, label_R, 0.0)
        weight_W = np.zeros(WIDTH)
        for _ in range(10):  # Newton's method
            right_R = 1 / (1 + np.exp(-feature_RW @ weight_W))
            curved_WW = (feature_RW * (right_R * (1 - right_R))[:, None]).T @ feature_RW
            weight_W -= np.linalg.solve(curved_WW, feature_RW.T @ (right_R - label_R))
        return problem._replace(least=problem.loss(weight_W))

    def loss(self, weight_W: Floats) -> float:
        score_R = self.feature_RW @ weight_W
        return float((np.logaddexp(0, score_R) - self.label_R * score_R).mean())

    def excess(self, order: list[Longs]) -> float:
        """Train on batches in this order, and return the loss beyond the least one."""
        weight_W = np.zeros(WIDTH)
        for step, row_R in enumerate(order):
            feature_RW = self.feature_RW[row_R]
            error_R = 1 / (1 + np.exp(-feature_RW @ weight_W)) - self.label_R[row_R]
            weight_W -= RATE * (1 - step / len(order)) * (error_R @ feature_RW) / len(row_R)
        return self.loss(weight_W) - self.least


def batches(shards: Shards, blocks: int, seed: int) -> list[Longs]:
    """Return the rows of each step of two epochs."""
    given: dict[str, Any] = {"shuffle_blocks": blocks, "seed": seed, "epochs": EPOCHS, "tokens_per_batch": 8192}
    recipe = Recipe(name="shuffle", mixture="generated", **given)
    plan = Plan(shards, recipe, 512)
    return [plan.row_M[np.concatenate(plan.packs(i))].astype(np.int64) for i in range(EPOCHS * plan.steps)]


def again(order: list[Longs], parts: int) -> float:
    """Return the share of neighbours that are neighbours again in the next epoch: texts of the same part, if an
    epoch has `parts` parts."""
    steps = len(order) // EPOCHS
    part_ER = []
    for epoch in range(EPOCHS):
        rows = order[epoch * steps : (epoch + 1) * steps]
        part_R = np.empty(sum(map(len, rows)), np.int64)
        part_R[np.concatenate(rows)] = np.repeat(np.arange(steps) * parts // steps, [len(row_R) for row_R in rows])
        part_ER.append(part_R)
    first_R, next_R = part_ER
    both, before = (
        np.unique(of_R, return_counts=True)[1].astype(float) for of_R in (first_R * parts + next_R, first_R)
    )
    return float((both * (both - 1)).sum() / (before * (before - 1)).sum())


def measured(shards: Shards, problems: dict[str, Problem], blocks: int, seeds: int) -> dict[str, float]:
    """Return the mean of each measurement over seeds."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        order = batches(shards, blocks, seed)
        found.setdefault("neighbours in a batch", []).append(again(order, len(order) // EPOCHS))
        found.setdefault("neighbours in a hundredth", []).append(again(order, WINDOW))
        for name, problem in problems.items():
            found.setdefault(f"excess loss, {name}", []).append(problem.excess(order))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=160_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="32,000 rows and one seed")
    asked = parser.parse_args()
    rows, seeds = (32_000, 1) if asked.quick else (asked.rows, asked.seeds)
    of_shard = rows // asked.shards
    row_R = np.arange(of_shard * asked.shards)
    problems = {"mixed": Problem.make(row_R % TOPICS), "sorted": Problem.make(row_R * TOPICS // len(row_R))}
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
        generate(Path(folder), len(row_R), of_shard)
        shards = open_shards(Path(folder), verify=False)
        whole = measured(shards, problems, 1, seeds)
        for blocks in BLOCKS:
            for name, value in measured(shards, problems, blocks, seeds).items():
                report("shuffle", f"{blocks} blocks: {name}", value, whole[name], "", seeds)


if __name__ == "__main__":
    main()
