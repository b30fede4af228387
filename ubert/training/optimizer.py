"""AdamW with two peak learning rates, and a learning-rate schedule that is a pure function of the step."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from ubert.schema.specs.recipe import Recipe
from ubert.training import parallel

ENCODER = "encoder."  # prefix of the names of its parameters


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Create AdamW (Loshchilov and Hutter 2019, algorithm 2) with four groups: encoder and heads, each with
    and without weight decay.

    Biases and norms, which have at most one dimension, don't decay. Frozen parameters are in no group.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    share_of = {name: recipe.layer_decay ** _layers_above(name, model) for name, _ in trained}
    groups = []
    for inside, rate in ((True, recipe.learning_rate), (False, recipe.head_learning_rate)):
        mine = [(name, p) for name, p in trained if name.startswith(ENCODER) == inside]
        for share in sorted({share_of[name] for name, _ in mine}, reverse=True):
            same = [p for name, p in mine if share_of[name] == share]
            for parameters, decay in (
                ([p for p in same if p.dim() > 1], recipe.weight_decay),
                ([p for p in same if p.dim() <= 1], 0.0),
            ):
                lr = rate * share
                groups.append({"params": parameters, "lr": lr, "initial_lr": lr, "weight_decay": decay})
    return torch.optim.AdamW(groups, fused=True)  # on a CPU too: a seventh of the time of the loop over tensors


def _layers_above(name: str, model: nn.Module) -> int:
    """Return how many of the encoder's layers are above a parameter: all for embeddings, 0 for heads."""
    if not name.startswith(ENCODER):
        return 0
    layers = len(list(parallel.layers(model.encoder)))  # type: ignore[arg-type]
    number = re.search(r"\.layers?\.(\d+)\.", name)
    return layers - 1 - int(number[1]) if number else layers


def share_of_peak(step: int, total: int, recipe: Recipe) -> float:
    """Return the learning rate of step 0 <= `step` < `total` as a share of its peak, in (0, 1].

    It rises linearly over the first `warmup` share of the steps. Then it falls linearly and would reach 0 at
    `total`. With wsd it stays at the peak, and falls over the last `decay` share by a square root (Hägele et
    al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", the cooldown
    1-sqrt).
    """
    rising = math.ceil(recipe.warmup * total)
    if step < rising:
        return (step + 1) / rising
    if recipe.schedule == "linear":
        return (total - step) / (total - rising)
    stable = decay_start(total, recipe)
    return 1 - math.sqrt((step - stable) / (total - stable)) if step > stable else 1.0


def decay_start(total: int, recipe: Recipe) -> int:
    """Return the last step (from 0) of wsd at the peak rate."""
    return max(math.ceil(recipe.warmup * total), total - math.ceil(recipe.decay * total))


def set_rates(optimizer: torch.optim.Optimizer, share: float) -> float:
    """Set each group to `share` of its peak. Return the encoder's rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * share
    return float(optimizer.param_groups[0]["lr"])
