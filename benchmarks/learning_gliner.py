"""`gliner` on the mentions of one corpus, from the same encoder, trained for a number of seconds.

It uses its own trainer with its own defaults. Its schedule needs the number of steps, which a short trial
estimates from the seconds. It reads words, so a mention that begins or ends inside a word is widened for training;
its predictions are compared by characters, like all others. After short training its scores are low, so its
threshold is fitted on some records that are held out from training.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from gliner import GLiNER, GLiNERConfig
from learning_heads import Predict, Until, summarised
from transformers import set_seed

from ubert.evaluation import ner
from ubert.model.tokenizer import encoder_path
from ubert.objectives import Prediction, SpanPrediction
from ubert.schema.record import Record

WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")  # same as its own splitter
TRIAL = 10  # steps
BATCH = 8  # its default
THRESHOLDS = [step / 20 for step in range(1, 11)]
FITTED_ON = 200  # records, or a quarter of them if they are few


def train(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
    """Train a model on the categories of these records; return its prediction function."""
    fitted_on = min(FITTED_ON, len(records) // 4)
    held, data = records[:fitted_on], [_words(record) for record in records[fitted_on:]]
    took = _fit(_model(encoder, seed), data[: 2 * BATCH * TRIAL], TRIAL, 1e9, seed)
    model = _model(encoder, seed)
    _fit(model, data, max(TRIAL, int(seconds / took * TRIAL)), seconds, seed)
    model.eval()
    labels = sorted({category.name for record in records for category in record.categories})

    def found(tested: Sequence[Record]) -> Any:
        with torch.no_grad():  # flat_ner: keeps the best of overlapping mentions
            return model.inference([each.text for each in tested], labels, flat_ner=True, threshold=THRESHOLDS[0])

    def above(threshold: float, tested: Sequence[Record], spans_of: Any) -> Iterator[list[Prediction]]:
        for record, spans in zip(tested, spans_of, strict=True):
            yield [
                SpanPrediction(s["start"], s["end"], s["label"], record.text[s["start"] : s["end"]], s["score"])
                for s in spans
                if s["score"] >= threshold
            ]

    on_held = found(held)

    def reached(threshold: float) -> float:
        return summarised(held, above(threshold, held, on_held), ner)["span_f1"]

    best = max(THRESHOLDS, key=reached)
    return lambda tested: above(best, tested, found(tested))


def _model(encoder: str, seed: int) -> Any:
    set_seed(seed)
    return GLiNER.from_config(GLiNERConfig(model_name=encoder_path(encoder)))


def _fit(model: Any, data: list[dict[str, Any]], steps: int, seconds: float, seed: int) -> float:
    """Train; return the seconds that it took."""
    from gliner.training import Trainer

    with tempfile.TemporaryDirectory() as folder:
        settings = model.create_training_args(
            folder,
            max_steps=steps,
            save_steps=10**9,
            per_device_train_batch_size=BATCH,
            dataloader_num_workers=0,
            use_cpu=True,
            bf16=True,
            seed=seed,
            disable_tqdm=True,
        )
        began = time.process_time()
        Trainer(
            model=model,
            args=settings,
            train_dataset=data,
            data_collator=model._create_data_collator(),
            processing_class=model.data_processor.transformer_tokenizer,
            callbacks=[Until(seconds)],
        ).train()
        return time.process_time() - began


def _words(record: Record) -> dict[str, Any]:
    places = [match.span() for match in WORD.finditer(record.text)]
    spans = []
    for span in record.spans:
        inside = [i for i, (start, end) in enumerate(places) if start < span.end and end > span.start]
        if inside and span.category is not None:
            spans.append([inside[0], inside[-1], record.categories[span.category].name])
    return {"tokenized_text": [record.text[start:end] for start, end in places], "ner": spans}
