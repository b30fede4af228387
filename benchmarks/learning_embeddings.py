"""Classify texts by sentence embeddings, as others do with the same encoder and few examples.

`similarity` needs no example: it chooses the category whose name has the nearest embedding. `regression` is a
logistic regression on embeddings of the frozen encoder. `setfit` tunes the encoder on pairs of examples first.
Both use the defaults of their packages, but `setfit` stops when the time is over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from learning_heads import Predict, Until
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression
from transformers import set_seed

from ubert.model.tokenizer import encoder_path
from ubert.objectives import LabelPrediction, Prediction
from ubert.schema.record import Record


def similarity(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
    """Return a prediction function that needs no training."""
    embed = SentenceTransformer(encoder_path(encoder), device="cpu").encode
    embed_names = lru_cache(lambda names: embed(list(names)))  # most records have the same

    def predict(tested: list[Record]) -> Iterator[list[Prediction]]:
        for record, text_D in zip(tested, embed([record.text for record in tested]), strict=True):
            names = tuple(category.name for category in record.categories)
            scores = embed_names(names) @ text_D
            yield [LabelPrediction(names[int(scores.argmax())], float(scores.max()))]

    return predict


def regression(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
    """Train on frozen embeddings; return the prediction function."""
    embed = SentenceTransformer(encoder_path(encoder), device="cpu").encode
    head = LogisticRegression().fit(embed([record.text for record in records]), _labels(records))

    def predict(tested: list[Record]) -> Iterator[list[Prediction]]:
        return _predictions(head.classes_, head.predict_proba(embed([record.text for record in tested])))

    return predict


def setfit(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
    """Train an encoder and a head; return the prediction function."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    set_seed(seed)
    model = SetFitModel.from_pretrained(encoder_path(encoder), device="cpu")
    data = Dataset.from_dict({"text": [record.text for record in records], "label": _labels(records)})
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, seed=seed, save_strategy="no", report_to="none", show_progress_bar=False
        )
        Trainer(model, args=settings, train_dataset=data, callbacks=[Until(seconds)]).train()

    def predict(tested: list[Record]) -> Iterator[list[Prediction]]:
        with torch.no_grad():
            scores = model.predict_proba([record.text for record in tested], as_numpy=True)
        return _predictions(model.model_head.classes_, scores)

    return predict


def _labels(records: Sequence[Record]) -> list[str]:
    return [record.categories[record.labels[0]].name for record in records]


def _predictions(names: Any, scores: Any) -> Iterator[list[Prediction]]:
    for of_text in scores:
        yield [LabelPrediction(str(names[of_text.argmax()]), float(of_text.max()))]
