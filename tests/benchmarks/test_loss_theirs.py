"""The public implementation's loss is the sum of its three formulas, computed cell by cell in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks import loss_theirs

LENGTH, PROMPT = 7, 3
GOLD = [[(3, 3), (4, 6)], [], [(4, 6), (5, 4)]]  # of three span tables; the last has a cell below the diagonal
HOLDS = [True, False, True]  # of three classification tables


def zlpr(cells: list[tuple[Tensor, bool]]) -> Tensor:
    """log(1 + sum of e^z over the others) + log(1 + sum of e^-z over the gold ones): Su et al. 2022."""
    one = torch.ones((), dtype=torch.float64)
    others, gold = ([z if not holds else -z for z, holds in cells if holds is which] for which in (False, True))
    return sum((torch.stack([one, *map(torch.exp, each)]).sum().log() for each in (others, gold)), 0 * one)


def restated(scores: Tensor) -> Tensor:
    """10 * (100 * BCE over all cells + ZLPR of each table + ZLPR of each place), of 2 texts with 3 tables each.
    Of a text's spans all cells after the prompt count, of a classification the first one; z of others is -10,000
    lower."""
    tables: dict[tuple[int, int], list[tuple[Tensor, bool]]] = {}
    places: dict[tuple[int, int, int], list[tuple[Tensor, bool]]] = {}
    total = torch.zeros((), dtype=torch.float64)
    for text, table, row, column in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
        if text == 0:
            counts, holds = min(row, column) >= PROMPT, (row, column) in GOLD[table]
        else:
            counts, holds = row == column == 0, row == column == 0 and HOLDS[table]
        z = scores[text, table, row, column] - (0 if counts else 10_000)
        total = total + torch.logaddexp(z, 0 * z) - (z if holds else 0)
        tables.setdefault((text, table), []).append((z, holds))
        places.setdefault((text, row, column), []).append((z, holds))
    means = [torch.stack([zlpr(cells) for cells in each.values()]).mean() for each in (tables, places)]
    return 10 * (100 * total / scores.numel() + means[0] + means[1])


def test_value_and_gradient_are_those_of_the_three_formulas() -> None:
    built = [[loss_theirs.span_table(LENGTH, PROMPT, gold) for gold in GOLD]]
    built += [[loss_theirs.classification_table(LENGTH, holds) for holds in HOLDS]]
    labels, mask = torch.tensor(np.array(built)).unbind(2)
    scores = 3 * torch.randn(labels.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores.requires_grad_()
    value, expected = loss_theirs.loss(scores, labels, mask), restated(scores)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)
    [gradient], [wanted] = (torch.autograd.grad(each, scores) for each in (value, expected))
    assert float((gradient - wanted).norm()) <= 1e-10 * float(wanted.norm())
