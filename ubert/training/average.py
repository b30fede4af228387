"""An exponential moving average of the weights, kept in addition to the trained weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Average = dict[str, Tensor]
"""Averages by parameter name. Frozen parameters have none."""


def start(model: nn.Module) -> Average:
    """Start an average at the current weights."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def advance(average: Average, model: nn.Module, decay: float, step: int) -> None:
    """Update the average with the weights after step `step` (from 1).

    average = d average + (1 - d) weights, where d rises to `decay` as (1 + step) / (10 + step). The average
    therefore soon forgets the initial weights (as in TensorFlow's `ExponentialMovingAverage` with
    `num_updates`).
    """
    trained = dict(model.named_parameters())
    share = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.values()), [trained[name] for name in average], share)
