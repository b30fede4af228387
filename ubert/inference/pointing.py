"""Score the choices and best answers of examples with a span-extraction model (SpEx-BERT).

A score is the sum of a start logit and an end logit, not of log-probabilities. A long text or list of choices
needs several sequences, whose softmaxes cover different tokens. Logits are comparable across them (BERT, section
4.2).

Shapes: B sequences of a batch, n tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ubert.inference.scoring import most_categories
from ubert.model.ubert import UbertModel
from ubert.objectives import Cells, Scored
from ubert.spexbert.pointer import Phrases, padded, sequences
from ubert.structure.batch import Example, Special

NO_CELLS = Cells(*(np.empty(0, np.int32),) * 3, np.empty(0, np.float32))


@torch.inference_mode()
def point(
    model: UbertModel,
    special: Special,
    phrases: Phrases,
    examples: Sequence[Example],
    *,
    batch_tokens: int,
    bf16: bool,
) -> list[Scored]:
    """Score examples in order: an anchor for each choice or question, a cell for each question.

    Args:
        batch_tokens: maximum padded tokens of one forward pass.
        bf16: run under bfloat16 autocast.

    Raises:
        ValueError: an example doesn't fit into a sequence of the encoder.
    """
    device = next(model.parameters()).device
    every = [
        (index, sequence)
        for index, example in enumerate(examples)
        for sequence in sequences(
            example,
            np.arange(len(example.categories), dtype=np.int32),
            phrases,
            special,
            most_categories=most_categories(model.shape.categories_per_piece, len(example.categories)),
            most_tokens=model.most_tokens,
        )
    ]
    every.sort(key=lambda item: -len(item[1].ids))  # longest first, so that running out of memory shows at once
    anchors = [np.empty(len(example.categories), np.float32) for example in examples]
    spans: list[list[tuple[int, int, int, float]]] = [[] for _ in examples]
    while every:
        size = max(1, batch_tokens // len(every[0][1].ids))
        batch, every = every[:size], every[size:]
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits_BL2 = model.pointed(padded([one for _, one in batch], special, len(batch)).to(device))
        for (index, one), logits_L2 in zip(batch, logits_BL2.float().cpu().numpy(), strict=True):
            anchors[index][one.categories] = logits_L2[one.choices, [0, 1]].sum(axis=1)
            if one.text:
                spans[index].append((int(one.categories[0]), *best(logits_L2[1 : 1 + one.text])))
    return [Scored(anchor, _cells(of_text)) for anchor, of_text in zip(anchors, spans, strict=True)]


def best(logits_n2: npt.NDArray[Any]) -> tuple[int, int, float]:
    """Return the first and last token (inclusive) of the highest-scoring span, and its score."""
    start_n, end_n = logits_n2.T
    best_end_n = np.maximum.accumulate(end_n[::-1])[::-1]  # highest end logit from each token on
    first = int(np.argmax(start_n + best_end_n))
    last = first + int(np.argmax(end_n[first:]))
    return first, last, float(start_n[first] + end_n[last])


def _cells(spans: list[tuple[int, int, int, float]]) -> Cells:
    if not spans:
        return NO_CELLS
    category, start, end, score = (np.array(column) for column in zip(*sorted(spans), strict=True))
    return Cells(category.astype(np.int32), start.astype(np.int32), end.astype(np.int32), score.astype(np.float32))
