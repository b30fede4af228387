"""Plain heads of `transformers` for one task, trained for a number of seconds.

They follow common practice: AdamW at 5e-5 with linear warm-up and decay, the whole encoder trained, BIO tags for
mentions. A batch has 32 texts of similar length, or fewer long ones, which gives more steps in the same time. The
learning rate decays with the processor time, so that the schedule ends with the training time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
)

from ubert.evaluation import Metric
from ubert.evaluation.counts import Counts
from ubert.model.tokenizer import encoder_path
from ubert.objectives import LabelPrediction, Prediction, SpanPrediction, ValuePrediction
from ubert.schema.record import Record

TASKS = ("classification", "pair", "multilabel", "regression", "ner")
RATE, WARMUP, BATCH, MAX_LENGTH = 5e-5, 0.05, 32, 256
CHARACTERS = 8192  # characters of a batch: 32 texts of 256

Predict = Callable[[list[Record]], Iterable[list[Prediction]]]


class Until(TrainerCallback):
    """Stop the training of a library when the processor time is over."""

    def __init__(self, seconds: float) -> None:
        self.end = time.process_time() + seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        control.should_training_stop |= time.process_time() > self.end
        return control


def train(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
    """Train a head for the task of these records; return its prediction function."""
    torch.manual_seed(seed)
    task, path = records[0].task, encoder_path(encoder)
    tokenizer = AutoTokenizer.from_pretrained(path)
    names = sorted({category.name for record in records for category in record.categories})
    tags = ["O", *(f"{side}-{name}" for name in names for side in "BI")]
    form = AutoModelForTokenClassification if task == "ner" else AutoModelForSequenceClassification
    kinds = {"multilabel": "multi_label_classification", "regression": "regression"}
    model = form.from_pretrained(
        path,
        num_labels=len(tags) if task == "ner" else max(1, len(names)) if task != "regression" else 1,
        problem_type=kinds.get(task, "single_label_classification"),
    )
    labels = [_labels(record, names, tags, tokenizer) for record in records]

    def loss(numbers: list[int]) -> torch.Tensor:
        inputs = _inputs([records[i] for i in numbers], tokenizer)
        wanted = _padded([labels[i] for i in numbers], inputs["input_ids"].shape[1], model.config.problem_type)
        of_batch: torch.Tensor = model(**inputs, labels=wanted).loss
        return of_batch

    fit(model, [len(record.text) + len(record.pair or "") for record in records], loss, seconds, seed)

    def predict(tested: list[Record]) -> Iterator[list[Prediction]]:
        model.eval()
        for start in range(0, len(tested), BATCH):
            part = tested[start : start + BATCH]
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                scores = model(**_inputs(part, tokenizer)).logits.float()
            yield from (
                _prediction(record, of, names, tags, tokenizer) for record, of in zip(part, scores, strict=True)
            )

    return predict


def summarised(
    records: Sequence[Record], predictions: Iterable[Sequence[Prediction]], metric: Metric
) -> dict[str, float]:
    """Return the metrics of the predictions of all records."""
    counts: Counts = Counter()
    for record, of_record in zip(records, predictions, strict=True):
        counts.update(metric.count(record, of_record))
    return metric.summarise(counts)


def fit(
    model: PreTrainedModel,
    lengths: Sequence[int],
    loss: Callable[[list[int]], torch.Tensor],
    seconds: float,
    seed: int,
) -> None:
    """Train for a number of seconds.

    Args:
        lengths: length of each record.
        loss: maps indices of records to their loss.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    model.train()
    began = time.process_time()
    for batch in _batches(lengths, seed):
        done = (time.process_time() - began) / seconds
        if done >= 1:
            return
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(done / WARMUP, (1 - done) / (1 - WARMUP))
        with torch.autocast("cpu", torch.bfloat16):
            of_batch = loss(batch)
        of_batch.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _batches(lengths: Sequence[int], seed: int) -> Iterator[list[int]]:
    """Yield batches of similar length, epoch after epoch."""
    draw = random.Random(seed)
    order = list(range(len(lengths)))
    while True:
        draw.shuffle(order)
        pools = [order[i : i + 32 * BATCH] for i in range(0, len(order), 32 * BATCH)]
        for pool in pools:
            pool.sort(key=lengths.__getitem__)
            batches = [[pool[0]]]
            for number in pool[1:]:
                held = len(batches[-1]) + 1
                if held <= min(BATCH, CHARACTERS // max(1, lengths[number])):  # the longest of the batch so far
                    batches[-1].append(number)
                else:
                    batches.append([number])
            draw.shuffle(batches)
            yield from batches


def _inputs(records: Sequence[Record], tokenizer: PreTrainedTokenizerBase) -> dict[str, torch.Tensor]:
    pairs = [record.pair for record in records] if records[0].pair is not None else None
    texts = [record.text for record in records]
    return dict(tokenizer(texts, pairs, truncation=True, max_length=MAX_LENGTH, padding=True, return_tensors="pt"))


def _labels(record: Record, names: list[str], tags: list[str], tokenizer: PreTrainedTokenizerBase) -> Any:
    if record.task == "regression":
        return record.value
    own = [category.name for category in record.categories]
    if record.task == "multilabel":
        held = {own[label] for label in record.labels}
        return [float(name in held) for name in names]
    if record.task != "ner":
        return names.index(own[record.labels[0]])
    offsets = tokenizer(record.text, truncation=True, max_length=MAX_LENGTH, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    found = [-100 if start == end else 0 for start, end in offsets]
    for span in record.spans:
        inside = [i for i, (s, e) in enumerate(offsets) if s < span.end and e > span.start]
        for i in inside:
            found[i] = tags.index(f"{'B' if i == inside[0] else 'I'}-{own[span.category or 0]}")
    return found


def _padded(labels: list[Any], length: int, problem: str | None) -> torch.Tensor:
    if isinstance(labels[0], list) and problem != "multi_label_classification":
        labels = [of + [-100] * (length - len(of)) for of in labels]
    return torch.tensor(labels)


def _prediction(
    record: Record, scores: torch.Tensor, names: list[str], tags: list[str], tokenizer: PreTrainedTokenizerBase
) -> list[Prediction]:
    if record.task == "regression":
        return [ValuePrediction(float(scores[0]))]
    if record.task == "multilabel":
        return [LabelPrediction(name, float(s.sigmoid())) for name, s in zip(names, scores, strict=True) if s > 0]
    if record.task != "ner":
        return [LabelPrediction(names[int(scores.argmax())], float(scores.softmax(0).max()))]
    offsets = tokenizer(record.text, truncation=True, max_length=MAX_LENGTH, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    best = [tags[i] for i in scores.argmax(-1).tolist()][: len(offsets)]
    runs: list[list[int]] = []
    for i, (tag, (start, end)) in enumerate(zip(best, offsets, strict=True)):
        if start == end or tag == "O":
            continue
        if runs and tag[0] == "I" and runs[-1][-1] == i - 1 and best[i - 1][2:] == tag[2:]:
            runs[-1].append(i)
        else:
            runs.append([i])
    return [SpanPrediction(offsets[run[0]][0], offsets[run[-1]][1], best[run[0]][2:], "", 1.0) for run in runs]
