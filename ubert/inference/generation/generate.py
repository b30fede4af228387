"""Generate texts from texts: truncate sources to the encoder's limit, and search groups of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ubert.encoder.ragged import Ids
from ubert.inference.generation.beam import Lexicon, Search, search
from ubert.inference.generation.decoding import decoder
from ubert.inference.generation.detokenize import detokenize
from ubert.inference.windows import pair_room, source_window, target_room
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.objectives import WrittenPrediction
from ubert.schema.errors import UserError
from ubert.unilm.sequences import source_of

GROUP_TOKENS = 16384  # maximum padded tokens of all beams of a group
LEAST_TEXT = 16  # minimum tokens left for a text and its second text
PAUSES = (".", ",", ";", ":", "。", "，", "、")  # n-grams with one of these may repeat


class Asked(NamedTuple):
    """A text, its second text, and the instruction."""

    text: str
    pair: str | None
    instruction: str


def generate(
    model: UbertModel, tokenizer: Tokenizer, asked: Sequence[Asked], how: Search, *, bf16: bool
) -> list[list[WrittenPrediction]]:
    """Generate texts for each source, best first.

    Args:
        bf16: run under bfloat16 autocast.

    Raises:
        UserError: the model doesn't generate, a source and its target don't fit together, or there are more beams
            than tokens in the vocabulary.
    """
    model.check_generates()
    device, (mask, starts_V) = next(model.parameters()).device, tokenizer.for_masking()
    special, sources = lexicon(tokenizer, mask), _sources(model, tokenizer, asked, how.longest)
    found: list[list[WrittenPrediction]] = [[] for _ in asked]
    for group in _groups([len(source) for source in sources], how):
        own = [sources[i] for i in group]
        step = decoder(model.encoder, model.word_logits, own, mask, model.first_position, model.copier)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            texts = search(step, len(group), special, how, device)
        for i, of_source in zip(group, texts, strict=True):
            written = [np.array(text.words, np.int32) for text in of_source]
            source = f"{asked[i].text}\n{asked[i].pair or ''}"
            found[i] = [
                WrittenPrediction(words, text.score)
                for words, text in zip(detokenize(written, tokenizer, starts_V, source), of_source, strict=True)
            ]
    return found


def lexicon(tokenizer: Tokenizer, mask: int) -> Lexicon:
    """Build the lexicon: [SEP] ends a text, other special tokens never occur, n-grams with a pause may repeat."""
    end = tokenizer.special.sep
    pauses = tuple(int(each.ids[0]) for each in tokenizer.encode(PAUSES) if len(each.ids) == 1)
    return Lexicon(end, pauses, tuple(sorted((tokenizer.special_ids | {mask}) - {end})))


def _sources(model: UbertModel, tokenizer: Tokenizer, asked: Sequence[Asked], longest: int) -> list[Ids]:
    """Build [CLS] instruction [SEP] (pair [SEP]) text [SEP] for each, truncating text and pair as in training."""
    strings = list(dict.fromkeys(part for one in asked for part in (one.text, one.pair or "")))
    ids = dict(zip(strings, (encoding.ids for encoding in tokenizer.encode(strings)), strict=True))
    most = model.most_tokens - longest - 1  # the [MASK] after the last token
    learnt = model.shape.max_tokens - target_room(model.shape.max_tokens)
    sources = []
    for one in asked:
        instruction, text, pair = tokenizer.instruction(one.instruction), ids[one.text], ids[one.pair or ""]
        if (room := most - len(instruction) - 4) < LEAST_TEXT:
            raise UserError(
                f"a target of {longest} tokens and an instruction of {len(instruction)} tokens leave "
                f"{max(room, 0)} of {model.most_tokens} positions for the text, expected {LEAST_TEXT} or more; "
                "lower `longest`"
            )
        room = min(room, max(LEAST_TEXT, learnt))
        kept_pair = pair[: pair_room(len(text), room)]
        start, stop, *_ = source_window(text, pair, room - len(kept_pair))
        sources.append(source_of(instruction, kept_pair, text[start:stop], tokenizer.special))
    return sources


def _groups(lengths: Sequence[int], how: Search) -> Iterator[list[int]]:
    """Group sources of similar length, longest first, by `GROUP_TOKENS`."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        longest = lengths[group[0]] if group else 0
        if group and (len(group) + 1) * how.beams * (longest + how.longest) > GROUP_TOKENS:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
