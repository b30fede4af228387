"""The loss of the public UBERT implementation (Fengshenbang-LM), as it stands: dense, to be compatible with it.

Labels and mask are tables of every category over a padded sequence: a mask is 0 where a cell counts and -10,000,
added to its score, elsewhere. A span table counts every cell behind the prompt, its lower triangle, [SEP] and
padding too; a classification table counts its (CLS, CLS) alone. Nothing of the project trains with it.

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
    """Labels and mask [L, L] of a category: `gold` are (start, end) in the sequence, after `prompt` tokens."""
    labels, mask = np.zeros((length, length)), np.full((length, length), MASKED)
    mask[prompt:, prompt:] = 0
    for start, end in gold:
        labels[start, end] = 1
    return labels, mask


def classification_table(length: int, holds: bool) -> tuple[Table, Table]:
    """Labels and mask [L, L] of a category that holds for the whole text, or not."""
    labels, mask = np.zeros((length, length)), np.full((length, length), MASKED)
    labels[0, 0], mask[0, 0] = holds, 0
    return labels, mask


def loss(scores_BKLL: Tensor, labels_BKLL: Tensor, mask_BKLL: Tensor) -> Tensor:
    """10 * (100 * mean BCE + ZLPR over each flattened table + ZLPR over the categories at each cell)."""
    z_BKLL = scores_BKLL + mask_BKLL
    bce = F.binary_cross_entropy_with_logits(z_BKLL, labels_BKLL)
    tables = zlpr(z_BKLL.flatten(2), labels_BKLL.flatten(2))
    cells = zlpr(z_BKLL.movedim(1, -1), labels_BKLL.movedim(1, -1))
    return 10 * (100 * bce + tables + cells)


def zlpr(scores: Tensor, labels: Tensor) -> Tensor:
    """Multi-label softmax over the last dimension, threshold 0 (Su et al., ZLPR, 2022), mean over the others."""
    signed = (1 - 2 * labels) * scores
    zero = torch.zeros_like(scores[..., :1])
    negative = torch.cat([signed - labels * 1e12, zero], -1).logsumexp(-1)
    positive = torch.cat([signed - (1 - labels) * 1e12, zero], -1).logsumexp(-1)
    return (negative + positive).mean()
