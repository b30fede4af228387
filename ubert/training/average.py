"""An exponential moving average of the weights, beside those that are trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Average = dict[str, Tensor]
"""Averages by the names of parameters; what is not trained has none."""


def start(model: nn.Module) -> Average:
    """An average of the present weights alone."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def advance(average: Average, model: nn.Module, decay: float, step: int) -> None:
    """Take in the weights after step `step` (from 1).

    average = d average + (1 - d) weights, where d rises to `decay` as (1 + step) / (10 + step): the weights before
    training are soon forgotten (as in TensorFlow's `ExponentialMovingAverage` with `num_updates`).
    """
    trained = dict(model.named_parameters())
    share = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.values()), [trained[name] for name in average], share)
