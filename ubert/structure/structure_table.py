"""The biaffine structure table (UBERT, section 3.1), kept as factors: the score tables are not built here.

    score_t[s, e] = [q_s; 1]^T U [k_e; 1],   q = GELU(W_s h), k = GELU(W_e h)

In the joint layout, table t is conditioned on g_t, the encoder's output at its anchor. Each coordinate of the
bilinear term is scaled by 1 + W_c g_t; W_k g_t and W_q g_t are added to the terms that are linear in k and in
q. In both layouts a score is

    score_t[s, e] = (q_s U_11 * scale_t + shift_t) . k_e + q_s . weight_t + bias

and the loss and the decoding (`cells.py`) need nothing but these factors.

Shapes: B pieces, L tokens of a piece, D encoder width, d table width, N = B * L (0 if no piece has a span
table), T tables, S span tables, P groups of span tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ubert.schema.specs.recipe import INITIAL_BIAS
from ubert.structure.batch import Batch, SpanGroup


@dataclass(slots=True)
class Scores:
    """Scores of the anchors, and the factors of the span tables' scores. Scores are logits: above 0 means yes."""

    anchor_T: Tensor
    query_Nd: Tensor  # q
    key_Nd: Tensor  # k
    bilinear_dd: Tensor  # U_11
    scale_Sd: Tensor
    shift_Sd: Tensor
    weight_Sd: Tensor
    bias: Tensor
    table_S: Tensor  # index of a span table among all tables; a piece's triangles come before its rectangles
    groups: list[SpanGroup]


class StructureTable(nn.Module):
    """Module that computes the factors of the structure tables from the encoder's output.

    Args:
        width: D, the encoder's width.
        size: d, the width of the two feed-forward networks.
        conditioned: condition each table on its anchor (joint layout).
    """

    def __init__(self, width: int, size: int, *, conditioned: bool) -> None:
        super().__init__()
        self.start = nn.Linear(width, size)
        self.end = nn.Linear(width, size)
        self.U = nn.Parameter(torch.zeros(size + 1, size + 1))
        self.anchor_bias = nn.Parameter(torch.zeros(1))  # FSDP takes no scalars
        self.conditioning = nn.Linear(width, 3 * size) if conditioned else None
        nn.init.normal_(self.U[:-1, :-1], std=4 / size)
        self.start_at(INITIAL_BIAS)
        if self.conditioning is not None:
            nn.init.normal_(self.conditioning.weight, std=1 / math.sqrt(self.conditioning.in_features))
            nn.init.zeros_(self.conditioning.bias)

    def start_at(self, bias: float) -> None:
        """Set the bias of all cells. Few cells are gold; a bias below 0 saves the steps to learn that."""
        nn.init.constant_(self.U[-1:, -1:], bias)

    def forward(self, hidden_BLD: Tensor, batch: Batch) -> Scores:
        """Return the factors of all tables of a batch. Without span tables, only the anchors are computed."""
        bilinear_dd, shift_d, weight_d, bias = self._quarters()
        anchor_TD = self._at_anchors(hidden_BLD, batch)
        condition = self._condition(anchor_TD, shift_d, weight_d)
        anchor_T = at_least_float32(self._anchors(anchor_TD, bilinear_dd, *condition))
        groups, table_S = batch.work.groups, batch.work.table_S
        if not groups:
            none = hidden_BLD.new_empty(0, len(shift_d))
            return Scores(anchor_T, none, none, bilinear_dd, none, none, none, bias, table_S, groups)
        # Run the networks on prompts and padding too: copying the text's rows would cost more.
        text_ND = hidden_BLD.flatten(0, 1)
        scale_Sd, shift_Sd, weight_Sd = (of_tables.index_select(0, table_S) for of_tables in condition)
        return Scores(
            anchor_T=anchor_T,
            query_Nd=F.gelu(self.start(text_ND)),
            key_Nd=F.gelu(self.end(text_ND)),
            bilinear_dd=bilinear_dd,
            scale_Sd=scale_Sd,
            shift_Sd=shift_Sd,
            weight_Sd=weight_Sd,
            bias=bias,
            table_S=table_S,
            groups=groups,
        )

    def dense(self, hidden_BLD: Tensor, piece_T: Tensor, anchor_T: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same scores with every cell of a piece, for other runtimes: anchors [T], cells [T, L, L]."""
        bilinear_dd, shift_d, weight_d, bias = self._quarters()
        anchor_TD = hidden_BLD[piece_T, anchor_T]
        scale_Td, shift_Td, weight_Td = condition = self._condition(anchor_TD, shift_d, weight_d)
        query_TLd, key_TLd = F.gelu(self.start(hidden_BLD))[piece_T], F.gelu(self.end(hidden_BLD))[piece_T]
        mixed_TLd = query_TLd @ bilinear_dd * scale_Td[:, None] + shift_Td[:, None]
        linear_TL1 = query_TLd @ weight_Td[:, :, None]
        return self._anchors(anchor_TD, bilinear_dd, *condition), mixed_TLd @ key_TLd.mT + linear_TL1 + bias

    def _quarters(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Split U into U_11, u_21 (linear in k), u_12 (linear in q) and u_22.

        It is split, not sliced: the gradient of a slice is as large as the whole tensor.
        """
        size = self.start.out_features
        upper, lower = self.U.split([size, 1])
        bilinear_dd, weight_d1 = upper.split([size, 1], dim=1)
        shift_1d, bias_11 = lower.split([size, 1], dim=1)
        return bilinear_dd, shift_1d.squeeze(0), weight_d1.squeeze(1), bias_11.squeeze()

    def _anchors(
        self, anchor_TD: Tensor, bilinear_dd: Tensor, scale_Td: Tensor, shift_Td: Tensor, weight_Td: Tensor
    ) -> Tensor:
        query_Td, key_Td = F.gelu(self.start(anchor_TD)), F.gelu(self.end(anchor_TD))
        mixed_Td = torch.addcmul(shift_Td, query_Td @ bilinear_dd, scale_Td)
        return torch.addcmul(query_Td * weight_Td, mixed_Td, key_Td).sum(-1) + self.anchor_bias

    def _at_anchors(self, hidden_BLD: Tensor, batch: Batch) -> Tensor:
        """Return the encoder's output at each table's anchor, or zeros if no score depends on it."""
        if self.conditioning is None and not batch.work.anchored:
            # avoid the gather: its gradient is as large as its source
            return hidden_BLD.new_zeros(len(batch.piece_T), hidden_BLD.shape[2])
        return hidden_BLD.flatten(0, 1).index_select(0, batch.piece_T * hidden_BLD.shape[1] + batch.anchor_T)

    def _condition(self, anchor_TD: Tensor, shift_d: Tensor, weight_d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, shift and weight of each table."""
        if self.conditioning is None:
            tables = anchor_TD.shape[0]  # len() would be a constant in an exported graph
            return (
                torch.ones_like(shift_d).expand(tables, -1),
                shift_d.expand(tables, -1),
                weight_d.expand(tables, -1),
            )
        scale_Td, shift_Td, weight_Td = self.conditioning(anchor_TD).chunk(3, dim=-1)
        return 1 + scale_Td, shift_d + shift_Td, weight_d + weight_Td


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert to float32 unless it is float64: a sum over a million cells needs the precision."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
