"""Batches of random tables and their dense losses: the oracle for losses that don't build the table."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from ubert.schema.specs.recipe import Loss, LossScale
from ubert.structure.batch import Batch, Region
from ubert.structure.structure_table import StructureTable

REGIONS = [
    Region.ANCHOR,
    Region.TRIANGLE,
    Region.ANCHOR | Region.TRIANGLE,
    Region.RECTANGLE,
]


Pieces = list[tuple[int, list[Region]]]


def random_batch(seed: int, pieces: Pieces) -> Batch:
    """Make a batch with no, some or all cells of each table gold, in random order.

    Args:
        pieces: for each piece, text tokens and the region of each table.
    """
    draw = torch.Generator().manual_seed(seed)
    prompt = 5
    longest = prompt + max(tokens for tokens, _ in pieces) + 1
    piece_T, region_T, gold = [], [], []
    for row, (tokens, regions) in enumerate(pieces):
        for region in regions:
            share = (0.0, 0.01, 0.3, 1.0)[int(torch.randint(4, (), generator=draw))]
            chosen = (torch.rand(tokens, tokens, generator=draw) < share) & valid(int(region), tokens)
            gold += [(len(piece_T), start, end) for start, end in torch.nonzero(chosen).tolist()]
            piece_T.append(row)
            region_T.append(int(region))
    count = len(pieces)
    cells_G3 = torch.tensor(gold, dtype=torch.int64).reshape(-1, 3)
    return Batch(
        ids_BL=torch.zeros(count, longest, dtype=torch.int64),
        mask_BL=torch.ones(count, longest, dtype=torch.bool),
        types_BL=torch.zeros(count, longest, dtype=torch.int64),
        text_start_B=torch.full((count,), prompt),
        text_length_B=torch.tensor([tokens for tokens, _ in pieces]),
        example_B=torch.arange(count),
        piece_T=torch.tensor(piece_T),
        anchor_T=torch.randint(prompt, (len(piece_T),), generator=draw),
        category_T=torch.zeros(len(piece_T), dtype=torch.int64),
        region_T=torch.tensor(region_T),
        gold_anchor_T=torch.randint(2, (len(piece_T),), generator=draw).float(),
        gold_cells_G3=cells_G3[torch.randperm(len(gold), generator=draw)],
        examples=count,
    )


def dense_table(head: StructureTable, hidden_BLD: Tensor, batch: Batch, table: int) -> tuple[Tensor, Tensor]:
    """Compute the paper's formula, with our conditioning: scores [n, n] of a text, and the anchor's score."""
    piece = int(batch.piece_T[table])
    start, length = int(batch.text_start_B[piece]), int(batch.text_length_B[piece])
    at = int(batch.anchor_T[table])
    h_LD = hidden_BLD[piece]
    one = torch.ones(len(h_LD), 1, dtype=h_LD.dtype)
    query, key = F.gelu(head.start(h_LD)), F.gelu(head.end(h_LD))
    plain = torch.cat([query, one], 1) @ head.U @ torch.cat([key, one], 1).T
    if head.conditioning is not None:
        scale, shift, weight = head.conditioning(h_LD[at]).chunk(3)
        plain = plain + (query @ head.U[:-1, :-1] * scale) @ key.T + key @ shift + (query @ weight)[:, None]
    text = slice(start, start + length)
    return plain[text, text], plain[at, at] - head.U[-1, -1] + head.anchor_bias[0]


def valid(region: int, length: int) -> Tensor:
    ones = torch.ones(length, length, dtype=torch.bool)
    return ones.triu() if region & Region.TRIANGLE else ones & bool(region & Region.RECTANGLE)


def dense_loss(head: StructureTable, hidden_BLD: Tensor, batch: Batch, scale: LossScale, kind: Loss) -> Tensor:
    """Compute the loss formula over all cells of each table, anchor included."""
    total = [torch.zeros((), dtype=hidden_BLD.dtype) for _ in range(batch.examples)]
    count, golds = [0] * batch.examples, [0] * batch.examples
    for table in range(len(batch.piece_T)):
        scores, anchor = dense_table(head, hidden_BLD, batch, table)
        gold = torch.zeros_like(scores)
        for _, start, end in batch.gold_cells_G3[batch.gold_cells_G3[:, 0] == table].tolist():
            gold[start, end] = 1
        region = int(batch.region_T[table])
        inside = valid(region, len(scores))
        score_V, gold_V = scores[inside], gold[inside]
        if region & Region.ANCHOR:
            score_V = torch.cat([score_V, anchor[None]])
            gold_V = torch.cat([gold_V, batch.gold_anchor_T[table : table + 1].to(gold_V)])
        example = int(batch.example_B[batch.piece_T[table]])
        total[example] = total[example] + (dense_bce if kind == "bce" else dense_zlpr)(score_V, gold_V)
        count[example] += len(score_V)
        golds[example] += int(gold_V.sum())
    of_scale = {"sum": [1.0] * batch.examples, "log": [math.log(1 + n) for n in count]}
    weights = [1 / n for n in of_scale.get(scale, [max(1, n) for n in golds])]
    return torch.stack([weight * part for weight, part in zip(weights, total, strict=True)]).sum()


def dense_bce(score_V: Tensor, gold_V: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(score_V, gold_V, reduction="sum")


def dense_zlpr(score_V: Tensor, gold_V: Tensor) -> Tensor:
    zero = torch.zeros(1, dtype=score_V.dtype)
    negative = torch.cat([zero, score_V[gold_V == 0]]).logsumexp(0)
    return negative + torch.cat([zero, -score_V[gold_V == 1]]).logsumexp(0)


def make(seed: int, batch: Batch, conditioned: bool, dtype: torch.dtype) -> tuple[StructureTable, Tensor]:
    torch.manual_seed(seed)
    head = StructureTable(12, 8, conditioned=conditioned).to(dtype)
    torch.nn.init.normal_(head.U, std=0.3)
    torch.nn.init.normal_(head.anchor_bias)
    hidden = torch.randn(*batch.ids_BL.shape, 12, dtype=dtype, requires_grad=True)
    return head, hidden


pieces_strategy = st.lists(
    st.tuples(st.integers(1, 40), st.lists(st.sampled_from(REGIONS), min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)
