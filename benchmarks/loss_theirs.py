"""The dense loss of the public UBERT implementation (Fengshenbang-LM), for comparison.

Labels and mask are tables of every category over a padded sequence. The mask is added to the scores: 0 at
cells that count, -10,000 elsewhere. A span table counts every cell after the prompt, including its lower
triangle, [SEP] and padding. A classification table counts only its cell (CLS, CLS).

Shapes: B texts, K categories, L tokens of a padded sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

MASKED = -10000.0

Table = npt.NDArray[np.float64]


def span_table(length: int, prompt: int, gold: Sequence[tuple[int, int]]) -> tuple[Table, Table]:
    """Return labels and mask [L, L] of a category. `gold` holds (start, end) in the sequence, whose first
    `prompt` tokens are masked."""
    labels, mask = np.zeros((length, length)), np.full((length, length), MASKED)
    mask[prompt:, prompt:] = 0
    for start, end in gold:
        labels[start, end] = 1
    return labels, mask


def classification_table(length: int, holds: bool) -> tuple[Table, Table]:
    """Return labels and mask [L, L] of a category that holds for the whole text, or does not."""
    labels, mask = np.zeros((length, length)), np.full((length, length), MASKED)
    labels[0, 0], mask[0, 0] = holds, 0
    return labels, mask


def loss(scores_BKLL: Tensor, labels_BKLL: Tensor, mask_BKLL: Tensor) -> Tensor:
    """Return 10 * (100 * mean BCE + ZLPR over each flattened table + ZLPR over the categories at each cell)."""
    z_BKLL = scores_BKLL + mask_BKLL
    bce = F.binary_cross_entropy_with_logits(z_BKLL, labels_BKLL)
    tables = zlpr(z_BKLL.flatten(2), labels_BKLL.flatten(2))
    cells = zlpr(z_BKLL.movedim(1, -1), labels_BKLL.movedim(1, -1))
    return 10 * (100 * bce + tables + cells)


def zlpr(scores: Tensor, labels: Tensor) -> Tensor:
    """Multi-label softmax with threshold 0 (Su et al., ZLPR, 2022) over the last dimension; mean over the rest."""
    signed = (1 - 2 * labels) * scores
    zero = torch.zeros_like(scores[..., :1])
    negative = torch.cat([signed - labels * 1e12, zero], -1).logsumexp(-1)
    positive = torch.cat([signed - (1 - labels) * 1e12, zero], -1).logsumexp(-1)
    return (negative + positive).mean()
