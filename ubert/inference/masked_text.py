"""Measure how well a model predicts masked tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
import xxhash
from torch.nn import functional

from ubert.inference.predictor import CHUNK, Predictor
from ubert.inference.windows import blocks
from ubert.objectives import Prediction, TextPrediction
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Masking
from ubert.spanbert.masked_lm import masked_batch
from ubert.spanbert.masking import Masked, Words, masked

MASKING = Masking(boundary=False)


def predict_texts(predictor: Predictor, records: Iterable[Record]) -> Iterator[list[Prediction]]:
    """Yield the likelihood of the masked tokens of each record's text, in order.

    The masks are SpanBERT's and depend only on the text and the tokenizer, so that checkpoints can be compared.

    Raises:
        UserError: the model has no masked-language-model head, or its tokenizer has no mask token.
    """
    words = predictor.tokenizer.for_masking()
    remaining = iter(records)
    while chunk := list(islice(remaining, CHUNK)):
        texts = [_blocks(predictor, record.text, words) for record in chunk]
        surprise = iter(_block_nats(predictor, [block for text in texts for block in text]))
        for text in texts:
            yield [TextPrediction(sum(islice(surprise, len(text))), sum(len(block.positions) for block in text))]


def _blocks(predictor: Predictor, text: str, words: Words) -> list[Masked]:
    """Split a text into masked blocks of at most the training length."""
    [encoding] = predictor.tokenizer.encode([text])
    key, pool = xxhash.xxh3_64_intdigest(text.encode()), np.arange(len(words.starts_V), dtype=np.int32)
    most = min(predictor.model.shape.max_tokens, predictor.model.most_tokens - 2)
    cut = blocks(len(encoding.ids), most) if len(encoding.ids) else []
    return [masked(encoding.ids[at.start : at.stop], words, MASKING, key, at.start, pool=pool) for at in cut]


def _block_nats(predictor: Predictor, texts: Sequence[Masked]) -> list[float]:
    """Compute the negative log-likelihood of the masked tokens of each block, in nats."""
    found = np.zeros(len(texts))
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].ids))
    while order:
        width = len(texts[order[-1]].ids) + 2
        count = max(1, predictor.batch_tokens // width)
        batch, order = order[-count:], order[:-count]
        found[batch] = _nats(predictor, [texts[i] for i in batch])
    return [float(nats) for nats in found]


@torch.inference_mode()
def _nats(predictor: Predictor, texts: Sequence[Masked]) -> torch.Tensor:
    device = predictor.model.device
    batch = masked_batch(texts, predictor.tokenizer.special).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=predictor.bf16):
        logits_MV = predictor.model.masked_logits(batch)
    nats_M = functional.cross_entropy(logits_MV.float(), batch.target_M, reduction="none").double()
    text_M = batch.position_M // batch.ids_BL.shape[1]
    return torch.zeros(len(texts), dtype=torch.float64, device=device).index_add(0, text_M, nats_M).cpu()
