"""The bi-encoder variant of the joint layout, for a BERT: names of categories are encoded apart from the text.

For training, both are in one joint sequence under a block mask: each name attends only to itself, with positions
of its own, and the text only to the text. For prediction, names and texts are separate sequences, with the same
scores. A table is conditioned on its name, as in the joint layout. Its anchor cell is at [CLS].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ubert.inference import scoring
from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.objectives import Cells, Scored
from ubert.structure import cells
from ubert.structure.batch import Batch, Example, Piece, Prompt, Special, collate, prompt
from ubert.structure.structure_table import Scores, StructureTable


class ApartTable(StructureTable):
    """A structure table whose anchor cells are at [CLS]. `kept`: what its tables are conditioned on, if the names
    are not in the batch."""

    kept: Tensor | None = None
    cls_TD: Tensor

    def forward(self, hidden_BLD: Tensor, batch: Batch) -> Scores:
        self.cls_TD = hidden_BLD[:, 0].index_select(0, batch.piece_T)
        return super().forward(hidden_BLD, batch)

    def _condition(self, anchor_TD: Tensor, shift_d: Tensor, weight_d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.kept is None:
            return super()._condition(anchor_TD, shift_d, weight_d)
        scale_Td, shift_Td, weight_Td = self.kept.chunk(3, dim=-1)
        return 1 + scale_Td, shift_d + shift_Td, weight_d + weight_Td

    def _anchors(
        self, anchor_TD: Tensor, bilinear_dd: Tensor, scale_Td: Tensor, shift_Td: Tensor, weight_Td: Tensor
    ) -> Tensor:
        return super()._anchors(self.cls_TD, bilinear_dd, scale_Td, shift_Td, weight_Td)


class BiEncoder(UbertModel):
    """The variant. Whoever makes one sets `special`."""

    special: Special
    table: ApartTable

    def _new_table(self, width: int) -> StructureTable:
        return ApartTable(width, self.shape.table_size, conditioned=True)

    def forward(self, batch: Batch) -> Scores:
        """Score joint sequences under the block mask, for training."""
        part_BL, position_BL = parts(batch.ids_BL, self.special)
        seen_BLL = (part_BL[:, :, None] == part_BL[:, None, :]) & batch.mask_BL[:, None, :]
        hidden_BLD = self.encoder(
            input_ids=batch.ids_BL,
            attention_mask=seen_BLL[:, None],
            position_ids=position_BL,
            token_type_ids=batch.types_BL,
        ).last_hidden_state
        scores: Scores = self.table(hidden_BLD, batch)
        return scores

    def conditions(self, names: Sequence[tuple[int, ...]]) -> Tensor:
        """Encode names; return what their tables are conditioned on [k, 3d]."""
        assert self.table.conditioning is not None
        length_k = torch.tensor([1 + len(name) for name in names])
        mask_kL = torch.arange(int(length_k.max())) < length_k[:, None]
        ids_kL = torch.full(mask_kL.shape, self.special.pad)
        ids_kL[mask_kL] = torch.tensor([token for name in names for token in (self.special.marker, *name)])
        hidden_kLD = self.encode(ids_kL, mask_kL, torch.zeros_like(ids_kL))
        conditions: Tensor = self.table.conditioning(hidden_kLD[:, 1])
        return conditions

    def score_texts(self, batch: Batch, conditions_Tc: Tensor) -> Scores:
        """Score sequences without names, for prediction."""
        self.table.kept = conditions_Tc
        scores = UbertModel.forward(self, batch)
        self.table.kept = None
        return scores


def parts(ids_BL: Tensor, special: Special) -> tuple[Tensor, Tensor]:
    """Return the part of each token, 0 for the text and c for the c-th name of its sequence, and its position in
    it. A marker begins a name, and the second [SEP] ends the names."""
    named_BL = (ids_BL == special.sep).cumsum(1) == 1
    marker_BL = (ids_BL == special.marker) & named_BL
    part_BL = marker_BL.cumsum(1) * named_BL
    place_BL = torch.arange(ids_BL.shape[1]).expand_as(ids_BL)
    begin_BL = torch.where(marker_BL, place_BL, 0).cummax(1).values
    in_text_BL = part_BL == 0
    return part_BL, torch.where(in_text_BL, in_text_BL.cumsum(1) - 1, place_BL - begin_BL)


class Apart(Predictor):
    """A predictor for the variant. `kept` has what the tables of each name are conditioned on."""

    def __init__(self, model: BiEncoder, tokenizer: Tokenizer) -> None:
        super().__init__(model, tokenizer)
        self.variant, self.kept = model, dict[tuple[int, ...], Tensor]()

    @torch.inference_mode()
    def _score(
        self, examples: Sequence[Example], threshold: float, owned: Sequence[tuple[int, int]] | None = None
    ) -> list[Scored]:
        owned = owned or [(0, len(example.text)) for example in examples]
        found: dict[int, Scored] = {}
        order = sorted(range(len(examples)), key=lambda i: -len(examples[i].text))
        while order:
            size = len(self._piece(order[0], examples[order[0]]))
            now, order = order[: max(1, self.batch_tokens // size)], order[max(1, self.batch_tokens // size) :]
            items = [self._piece(i, examples[i]) for i in now]
            batch = collate(items, self.tokenizer.special, len(items))
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                conditions_Tc = torch.cat([self._conditions(item.source) for item in items])
                scores = self.variant.score_texts(batch, conditions_Tc)
            above = cells.above(scores, threshold, scoring.MOST_CELLS)
            rows_N4, score_N = scoring._cells(above, scores, batch, threshold, owned)
            anchors = scores.anchor_T.float().split([len(item.source.categories) for item in items])
            for i, anchor in zip(now, anchors, strict=True):
                own = rows_N4[:, 0] == i
                category_N, start_N, end_N = rows_N4[own, 1:].T
                found[i] = Scored(anchor.numpy(), Cells(category_N, start_N, end_N, score_N[own]))
        return [found[i] for i in range(len(examples))]

    def _piece(self, i: int, example: Example) -> Piece:
        """Make a sequence without names, whose tables have their anchor at [CLS]."""
        none = np.empty(0, np.int32)
        ids = prompt(example.instruction, [], example.regions, none, "joint", self.tokenizer.special).ids
        every = np.arange(len(example.categories), dtype=np.int32)
        return Piece(i, example, Prompt(ids, np.zeros_like(every), every, example.regions))

    def _conditions(self, example: Example) -> Tensor:
        names = [tuple(ids.tolist()) for ids in example.categories]
        if missing := [name for name in dict.fromkeys(names) if name not in self.kept]:
            self.kept.update(zip(missing, self.variant.conditions(missing), strict=True))
        return torch.stack([self.kept[name] for name in names])
