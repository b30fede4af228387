"""The losses of `benchmarks/experiments.py` against the one that they replace."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from dense_tables import Pieces, make, random_batch

from ubert.structure import cells
from ubert.structure.batch import Region

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def losses() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import experiment_losses
    finally:
        sys.path.remove(str(BENCHMARKS))
    return experiment_losses


PIECES: Pieces = [
    (5, [Region.ANCHOR, Region.ANCHOR]),
    (7, [Region.TRIANGLE, Region.TRIANGLE]),
    (70, [Region.TRIANGLE, Region.RECTANGLE]),
    (3, [Region.ANCHOR]),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("sharpness", "equal"), [(0.0, True), (2.0, False)])
def test_a_focal_loss_without_sharpness_is_cross_entropy(
    losses: ModuleType, monkeypatch: pytest.MonkeyPatch, seed: int, sharpness: float, equal: bool
) -> None:
    monkeypatch.setattr(losses, "SHARPNESS", sharpness)
    batch = random_batch(seed, PIECES)
    head, hidden = make(seed, batch, True, torch.float64)
    wanted_T = cells.losses(head(hidden, batch), batch, "log")[1]
    wanted_grad = torch.autograd.grad(cells.losses(head(hidden, batch), batch, "log")[0], hidden)[0]
    summed, part_T = losses.focal(head(hidden, batch), batch, "log")
    grad = torch.autograd.grad(summed, hidden)[0]
    of_text_T = torch.zeros(2, batch.examples, dtype=torch.float64)
    of_text_T.index_add_(1, batch.piece_T, torch.stack([wanted_T.double(), part_T.double()]))
    assert torch.allclose(*of_text_T) == torch.allclose(grad, wanted_grad) == equal
    assert grad.isfinite().all()


def test_texts_of_each_kind_weigh_the_inverse_of_their_mean_loss(losses: ModuleType) -> None:
    batch = random_batch(7, PIECES)
    head, hidden = make(7, batch, True, torch.float64)
    scores = head(hidden, batch)
    before = cells.losses(scores, batch)[0]
    with losses.computed_by("uncertainty"):
        summed, part_T = cells.losses(scores, batch)
    part_E = torch.zeros(4, dtype=torch.float64).index_add(0, batch.piece_T, part_T.double())
    two_of_labels, mentions, relations = part_E[0] + part_E[3], part_E[1], part_E[2]
    assert [float(part) for part in (two_of_labels, mentions, relations)] == pytest.approx([2, 1, 1], rel=1e-5)
    assert float(summed.detach()) == pytest.approx(4, rel=1e-5)
    assert cells.losses(scores, batch)[0].equal(before)  # the loss is put back
