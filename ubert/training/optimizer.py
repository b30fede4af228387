"""AdamW with two peak learning rates, warmed up and decayed as a pure function of the step."""

from __future__ import annotations

import math

import torch
from torch import nn

from ubert.schema.recipe import Recipe

ENCODER = "encoder."  # names of its parameters begin so


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2), a group for each of encoder and head, matrices and vectors.

    Biases and norms, the parameters of one dimension at most, don't decay. What is frozen is in no group.
    """
    groups = []
    for inside, rate in ((True, recipe.learning_rate), (False, recipe.head_learning_rate)):
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        mine = [p for name, p in trained if name.startswith(ENCODER) == inside]
        for parameters, decay in (
            ([p for p in mine if p.dim() > 1], recipe.weight_decay),
            ([p for p in mine if p.dim() <= 1], 0.0),
        ):
            groups.append({"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay})
    return torch.optim.AdamW(groups, fused=True)  # also on a CPU: a seventh of the time of the loop over tensors


def share_of_peak(step: int, total: int, recipe: Recipe) -> float:
    """Learning rate of step 0 <= `step` < `total` as a share of its peak, in (0, 1].

    It rises linearly over the first `warmup` share of the steps. Then it falls linearly and would reach 0 at
    `total`; or, with wsd, it stays, and falls over the last `decay` share by a square root (Hägele et al. 2024,
    "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", the cooldown 1-sqrt).
    """
    rising = math.ceil(recipe.warmup * total)
    if step < rising:
        return (step + 1) / rising
    if recipe.schedule == "linear":
        return (total - step) / (total - rising)
    stable = decay_start(total, recipe)
    return 1 - math.sqrt((step - stable) / (total - stable)) if step > stable else 1.0


def decay_start(total: int, recipe: Recipe) -> int:
    """The last step (from 0) of wsd that has the whole rate."""
    return max(math.ceil(recipe.warmup * total), total - math.ceil(recipe.decay * total))


def set_rates(optimizer: torch.optim.Optimizer, share: float) -> float:
    """Set each group to `share` of its peak; returns the encoder's rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * share
    return float(optimizer.param_groups[0]["lr"])
