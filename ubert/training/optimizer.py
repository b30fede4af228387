"""AdamW with two peak learning rates, and a learning-rate schedule that is a pure function of the step."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import nn

from ubert.schema.specs.recipe import Recipe
from ubert.training import parallel

ENCODER = "encoder."  # prefix of the names of its parameters


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Create AdamW (Loshchilov and Hutter 2019, algorithm 2) with a group for each learning rate, with and
    without weight decay: that of the encoder's highest layer first, those of the heads last.

    Biases and norms, which have at most one dimension, don't decay. Frozen parameters are in no group.
    """
    above = _layers_above(model)
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = []
    for inside, rate in ((True, recipe.learning_rate), (False, recipe.head_learning_rate)):
        mine = [
            (p, rate * recipe.layer_decay ** above[name])
            for name, p in trained
            if name.startswith(ENCODER) == inside
        ]
        for lr in sorted({rate, *(own for _, own in mine)}, reverse=True):
            same = [p for p, own in mine if own == lr]
            for parameters, decay in (
                ([p for p in same if p.dim() > 1], recipe.weight_decay),
                ([p for p in same if p.dim() <= 1], 0.0),
            ):
                groups.append({"params": parameters, "lr": lr, "initial_lr": lr, "weight_decay": decay})
    return torch.optim.AdamW(groups, fused=True)  # on a CPU too: a seventh of the time of the loop over tensors


def _layers_above(model: nn.Module) -> dict[str, int]:
    """Return how many of the encoder's layers are above each parameter: all for what comes before the first of
    them, such as embeddings; none for what comes after the last, such as a final norm, and for the heads."""
    layers = list(parallel.layers(model.encoder))  # type: ignore[arg-type]
    of_layer = {p: len(layers) - 1 - number for number, layer in enumerate(layers) for p in layer.parameters()}
    above, place = {}, len(layers)
    for name, parameter in model.named_parameters():
        place = of_layer.get(parameter, place)
        above[name] = place if name.startswith(ENCODER) else 0
    return above


def share_of_peak(step: int, total: int, recipe: Recipe) -> float:
    """Return the learning rate of step 0 <= `step` < `total` as a share of its peak, in (0, 1].

    It rises linearly over the first `warmup` share of the steps. Then it falls linearly and would reach 0 at
    `total`. With wsd it stays at the peak, and falls over the last `decay` share by a square root (Hägele et
    al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", the cooldown
    1-sqrt).
    """
    rising = _steps(recipe.warmup, total)
    if step < rising:
        return (step + 1) / rising
    if recipe.schedule == "linear":
        return (total - step) / (total - rising)
    stable = decay_start(total, recipe)
    return 1 - math.sqrt((step - stable) / (total - stable)) if step > stable else 1.0


def decay_start(total: int, recipe: Recipe) -> int:
    """Return the last step (from 0) of wsd at the peak rate."""
    return max(_steps(recipe.warmup, total), total - _steps(recipe.decay, total))


def _steps(share: float, total: int) -> int:
    """Return a share of the steps, rounded up. The share is taken as written: 0.07 of 100 steps are 7, not 8."""
    return math.ceil(Fraction(str(share)) * total)


def set_rates(optimizer: torch.optim.Optimizer, share: float) -> float:
    """Set each group to `share` of its peak. Return the encoder's rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * share
    return float(optimizer.param_groups[0]["lr"])
