"""Objectives beside the structure table.

`decoding`: texts of 64 words written by beam search from sources of 128 tokens, by an encoder of MiniLM's size
with random weights. Ours keeps keys and values of the words so far; theirs computes the whole sequence anew for
each word, as UniLM's attention masks alone would have it. Both must write the same texts.

    python benchmarks/objectives.py [--quick] [--threads 1]
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch
from measure import report, seconds
from torch import nn
from transformers import BertConfig, BertModel

from ubert.inference.beam import Lexicon, Search, search
from ubert.inference.decoding import Cached, Uncached
from ubert.model.cloze import learn_segments

WORDS, SOURCE, VOCABULARY, WIDTH = 64, 128, 30522, 384
END, MASK = 102, 103


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
    nn.init.constant_(head.bias[END : END + 1], -1e6)  # no text ends before its last word
    draw = np.random.default_rng(0)
    for sources, beams in [(1, 4)] if quick else [(1, 1), (1, 4), (8, 4)]:
        given = [draw.integers(1000, VOCABULARY, SOURCE, np.int32) for _ in range(sources)]
        how = Search(beams, WORDS, length_penalty=1.0)
        written: dict[str, list[list[list[int]]]] = {}

        def write(kind: type[Cached | Uncached], given=given, how=how, written=written) -> None:  # type: ignore[no-untyped-def]
            found = search(kind(encoder, head, given, MASK), len(given), Lexicon(END), how)
            written[kind.__name__] = [[text.words for text in of_source] for of_source in found]

        n = 1 if quick else 3
        ours, theirs = seconds(partial(write, Cached), partial(write, Uncached), n)
        if written["Cached"] != written["Uncached"] or len(written["Cached"][0][0]) != WORDS:
            raise SystemExit("the two sides wrote different texts")
        report("objectives", f"decoding, {sources} sources, {beams} beams, {WORDS} words", ours, theirs, "s", n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller encoder, one case")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    decoding(arguments.quick)


if __name__ == "__main__":
    main()
