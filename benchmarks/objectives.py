"""A step of SpanBERT whose head computes masked tokens only (ours), against one whose head computes all (theirs).

Theirs follows the paper's released code and the language-model heads of common libraries. It computes the logits
of every token over the vocabulary, and a target of -100 excludes tokens that aren't masked. The rest of a step is
the same on both sides: MiniLM, masks, the span boundary objective, forward and backward. Both must agree on the
loss. `step` is the whole step. `head` is the masked-language-model head and its loss, forward and backward, from
the encoder's output.

`decoding` generates texts of 64 tokens by beam search from sources of 128 tokens, with an encoder of MiniLM's size
and random weights. Ours caches keys and values; theirs encodes the whole sequence again for each token. Both must
generate the same texts.

    python benchmarks/objectives.py [--quick] [--threads 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from measure import ENCODER, report, seconds
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from ubert.inference.generation.beam import Lexicon, Search, search
from ubert.inference.generation.decoding import Cached, Uncached
from ubert.model.tokenizer import encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.keys import keys
from ubert.schema.specs.recipe import Masking
from ubert.spanbert.masked_lm import MaskedBatch, masked_batch
from ubert.spanbert.masking import masked
from ubert.unilm.cloze import learn_segments

WORDS, SOURCE, VOCABULARY, WIDTH = 64, 128, 30522, 384
END, MASK = 102, 103


def batch_of(texts: int, tokens: int) -> MaskedBatch:
    """Make masked texts of random words."""
    tokenizer = load_tokenizer(ENCODER)
    words = tokenizer.for_masking()
    pool = np.arange(1000, tokenizer.vocabulary, dtype=np.int32)
    drawn = [pool[(keys(np.arange(tokens - 2), i) % np.uint64(len(pool))).astype(np.int64)] for i in range(texts)]
    return masked_batch(
        [masked(ids, words, Masking(), i, pool=pool) for i, ids in enumerate(drawn)], tokenizer.special
    )


def masked_only(model: UbertModel, hidden_BLD: Tensor, batch: MaskedBatch) -> Tensor:
    """Compute the logits of masked tokens only (ours)."""
    assert model.masked is not None
    losses: Tensor = model.masked(hidden_BLD, model.word_vectors, batch)
    return losses


def all_tokens(model: UbertModel, hidden_BLD: Tensor, batch: MaskedBatch) -> Tensor:
    """Compute the logits of all tokens (theirs)."""
    assert model.masked is not None
    target_BL = torch.full(batch.ids_BL.shape, -100).flatten()
    target_BL[batch.position_M] = batch.target_M
    rows = hidden_BLD.flatten(0, 1)
    logits = model.masked.from_own(rows, model.word_vectors)
    before, after, place = batch.boundary_S3.unbind(1)
    beside = model.masked.from_boundary(rows[before], rows[after], place, model.word_vectors)
    own = F.cross_entropy(logits, target_BL, reduction="sum")
    return torch.stack([own, F.cross_entropy(beside, batch.boundary_target_S, reduction="sum")])


Losses = Callable[[UbertModel, Tensor, MaskedBatch], Tensor]


def step(model: UbertModel, batch: MaskedBatch, losses: Losses) -> None:
    """Run the whole step forward and backward."""
    model.zero_grad()
    losses(model, model.encode(batch.ids_BL, batch.mask_BL, batch.types_BL), batch).sum().backward()


def head(model: UbertModel, hidden_BLD: Tensor, batch: MaskedBatch, losses: Losses) -> None:
    """Run the masked-language-model head forward and backward."""
    model.zero_grad()
    losses(model, hidden_BLD.detach().requires_grad_(), batch)[0].backward()


def decoding(quick: bool) -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=6 if quick else 12,
        num_attention_heads=12,
        intermediate_size=4 * WIDTH,
    )
    encoder = BertModel(config, add_pooling_layer=False).eval()
    learn_segments(encoder)
    head = nn.Linear(WIDTH, VOCABULARY)
    nn.init.constant_(head.bias[END : END + 1], -1e6)  # no text ends early
    draw = np.random.default_rng(0)
    for sources, beams in [(1, 4)] if quick else [(1, 1), (4, 1), (1, 4)]:
        given = [draw.integers(1000, VOCABULARY, SOURCE, np.int32) for _ in range(sources)]
        how = Search(beams, WORDS, length_penalty=1.0)
        written: dict[str, list[list[list[int]]]] = {}

        def write(kind: type[Cached | Uncached], given=given, how=how, written=written) -> None:  # type: ignore[no-untyped-def]
            found = search(kind(encoder, head, given, MASK), len(given), Lexicon(END), how)
            written[kind.__name__] = [[text.words for text in of_source] for of_source in found]

        n = 1 if quick else 3
        ours, theirs = seconds(partial(write, Cached), partial(write, Uncached), n, time.process_time)
        if written["Cached"] != written["Uncached"] or len(written["Cached"][0][0]) != WORDS:
            raise SystemExit("the two sides wrote different texts")
        case = f"decoding, {sources} sources, {beams} beams, {WORDS} words"
        report("objectives", case, ours, theirs, "CPU s", n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="within a minute")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    vocabulary = load_tokenizer(ENCODER).vocabulary
    model = UbertModel.new(encoder_path(ENCODER), Shape(masked=True), vocabulary=vocabulary, seed=0)
    model.eval()  # type: ignore[no-untyped-call]  # no dropout, so that both sides agree
    n = 3 if given.quick else 9
    for texts, tokens in ((8, 64), (4, 128)) if given.quick else ((16, 64), (8, 128), (4, 256), (2, 512)):
        batch = batch_of(texts, tokens)
        hidden = model.encode(batch.ids_BL, batch.mask_BL, batch.types_BL).detach()
        torch.testing.assert_close(masked_only(model, hidden, batch), all_tokens(model, hidden, batch))
        case = f"{texts} x {tokens} tokens"
        for name, work in (("step", partial(step, model, batch)), ("head", partial(head, model, hidden, batch))):
            ours, theirs = seconds(partial(work, masked_only), partial(work, all_tokens), n, time.process_time)
            report("objectives", f"{name}, {case}", ours, theirs, "CPU s", n)
    decoding(given.quick)


if __name__ == "__main__":
    main()
