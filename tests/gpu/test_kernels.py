"""On a GPU: the kernels equal the sums over tiles, for every width, length and region of a model."""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType

import pytest
import torch
from dense_tables import REGIONS, Pieces, random_batch
from torch import Tensor

from ubert.schema.specs.recipe import Loss
from ubert.structure import cells, tiles
from ubert.structure.batch import Region
from ubert.structure.structure_table import StructureTable

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SPANS = [Region.TRIANGLE, Region.RECTANGLE, Region.ANCHOR | Region.TRIANGLE]
BATCHES: dict[str, Pieces] = {
    "one token": [(1, SPANS)],
    "anchors alone": [(9, [Region.ANCHOR]), (3, [Region.ANCHOR])],
    "a block and one more": [(17, REGIONS), (16, REGIONS), (1, REGIONS)],
    "mixed": [(130, REGIONS * 3), (5, []), (64, SPANS), (65, [Region.ANCHOR])],
    "long": [(4096, [Region.TRIANGLE]), (700, SPANS)],
}


def found(
    sums: ModuleType, head: StructureTable, hidden: Tensor, pieces: Pieces, kind: Loss, half: bool
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the loss in float64, and its gradients by the hidden states and the head's weights."""
    batch = random_batch(3, pieces).to("cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "_sums", lambda scores: sums)
        with torch.autocast("cuda", torch.bfloat16) if half else nullcontext():
            loss, _ = cells.loss(head(hidden, batch), batch, kind=kind)
    return loss.double(), list(torch.autograd.grad(loss, [hidden, *head.parameters()], allow_unused=True))


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["bce", "zlpr"])
@pytest.mark.parametrize("width", [64, 100, 128, 256])
@pytest.mark.parametrize("pieces", BATCHES.values(), ids=BATCHES)
def test_kernels_equal_tiles(pieces: Pieces, width: int, kind: Loss, half: bool) -> None:
    from ubert.structure import triton_cells

    torch.manual_seed(0)
    head = StructureTable(64, width, conditioned=True).cuda()
    torch.nn.init.normal_(head.U, std=width**-0.5)
    shape = random_batch(3, pieces).ids_BL.shape
    hidden = torch.randn(*shape, 64, device="cuda", requires_grad=True)
    loss, grads = found(triton_cells, head, hidden, pieces, kind, half)
    _, rounded = found(tiles, head, hidden, pieces, kind, half)
    head, hidden = head.double(), hidden.detach().double().requires_grad_()
    expected, wanted = found(tiles, head, hidden, pieces, kind, half=False)
    torch.testing.assert_close(loss, expected, rtol=2e-2 if half else 1e-4, atol=1e-4)
    # the long table has over a million gold cells: on a GPU, gradients were up to 2.4e-3 from float64
    near = 2e-2 if half else 5e-3 if pieces is BATCHES["long"] else 1e-3
    for grad, of_tiles, want in zip(grads, rounded, wanted, strict=True):
        assert (grad is None) == (want is None)
        if grad is not None and of_tiles is not None and want is not None:
            # in bfloat16, the layers before the table alone move gradients of one token by up to 4 %
            bound = near * max(float(want.abs().max()), 1e-3) + half * 1.2 * float((of_tiles - want).abs().max())
            assert float((grad - want).abs().max()) <= bound
