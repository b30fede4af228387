"""A plain question-answering head of `transformers`, trained for a number of seconds.

It follows common practice. The head predicts start and end of the answer, both at `[CLS]` if there is none. The
prediction is the best answer of at most `MOST_TOKENS` tokens, unless "no answer" scores higher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from learning_heads import BATCH, Predict, fit
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, BatchEncoding, PreTrainedTokenizerBase

from ubert.model.tokenizer import encoder_path
from ubert.objectives import Prediction, SpanPrediction
from ubert.schema.record import Record

MAX_LENGTH, MOST_TOKENS = 512, 30


def train(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
    """Train a head on questions with at most one answer; return its prediction function."""
    torch.manual_seed(seed)
    path = encoder_path(encoder)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForQuestionAnswering.from_pretrained(path)

    def loss(numbers: list[int]) -> Tensor:
        batch = [records[i] for i in numbers]
        inputs = _inputs(batch, tokenizer)
        starts, ends = zip(*(_answer(record, inputs, row) for row, record in enumerate(batch)), strict=True)
        wanted = {"start_positions": torch.tensor(starts), "end_positions": torch.tensor(ends)}
        of_batch: Tensor = model(**_tensors(inputs), **wanted).loss
        return of_batch

    fit(model, [len(record.text) for record in records], loss, seconds, seed)

    def predict(tested: list[Record]) -> Iterator[list[Prediction]]:
        model.eval()
        for start in range(0, len(tested), BATCH):
            batch = tested[start : start + BATCH]
            inputs = _inputs(batch, tokenizer)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                found = model(**_tensors(inputs))
            for row, record in enumerate(batch):
                logits = found.start_logits[row].float(), found.end_logits[row].float()
                yield _prediction(record, inputs, row, *logits)

    return predict


def _inputs(records: Sequence[Record], tokenizer: PreTrainedTokenizerBase) -> BatchEncoding:
    inputs: BatchEncoding = tokenizer(
        [record.categories[0].name for record in records],
        [record.text for record in records],
        truncation="only_second",
        max_length=MAX_LENGTH,
        padding=True,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    return inputs


def _tensors(inputs: BatchEncoding) -> dict[str, Tensor]:
    return {name: value for name, value in inputs.items() if name != "offset_mapping"}


def _answer(record: Record, inputs: BatchEncoding, row: int) -> tuple[int, int]:
    """Return the first and last token of the first answer, or `[CLS]` if there is none."""
    if not record.spans:
        return 0, 0
    first, last = record.spans[0].start, record.spans[0].end - 1
    start, end = (inputs.char_to_token(row, at, sequence_index=1) for at in (first, last))
    return (0, 0) if start is None or end is None else (start, end)


def _prediction(
    record: Record, inputs: BatchEncoding, row: int, start_L: Tensor, end_L: Tensor
) -> list[Prediction]:
    """Shapes: L tokens."""
    of_text_L, place_L = torch.tensor([of == 1 for of in inputs.sequence_ids(row)]), torch.arange(len(start_L))
    further_LL = place_L - place_L[:, None]
    answer_LL = of_text_L[:, None] & of_text_L & (further_LL >= 0) & (further_LL < MOST_TOKENS)
    score_LL = (start_L[:, None] + end_L).masked_fill(~answer_LL, -torch.inf)
    first, last = divmod(int(score_LL.argmax()), len(start_L))
    if score_LL[first, last] <= start_L[0] + end_L[0]:
        return []
    offsets = inputs["offset_mapping"][row]
    a, b = int(offsets[first][0]), int(offsets[last][1])
    return [SpanPrediction(a, b, record.categories[0].name, record.text[a:b], 1.0)]
