"""A bi-encoder variant of the joint layout: what a cache of category encodings saves, and the points it loses.

In the joint layout (ours) a text and the names of its categories attend to each other, so the names are encoded
again for each text. In the variant (theirs) a block mask lets each name attend only to itself, with positions of
its own, and the text only to the text. A name's encoding then depends on nothing else and can be kept. A table is
still conditioned on its name. Its anchor cell moves from the name to [CLS], because a name's encoding has no text.

Quality: both start from the same encoder with the same new weights, and take the same batches in the same steps.
A batch has 24 texts, each with its gold categories and others up to 16. Rates are 1e-4, and 1e-3 for the head.
`--tokens` counts the tokens of the joint sequences. Both are evaluated on the first test records, by sampling key.

Cost: short texts with 1,000 categories, by untrained models. The threshold is so high that neither spends time on
decoding. The variant encodes the names again for each text, once for all texts of a call, or not at all,
because an earlier call has encoded them. Times are processor seconds on one thread.

    ubert ingest clinc150 mit_movie_trivia
    python benchmarks/bi_encoder.py [clinc150 mit_movie_trivia] [--tokens 150000] [--root store] [--quick]

Without corpora it measures the cost alone.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from bi_encoder_model import Apart, BiEncoder
from learning import records
from learning_heads import summarised
from measure import ENCODER, ROOT, report
from predict import TYPES, samples
from torch.nn.utils import clip_grad_norm_

from ubert.evaluation import MAIN, metric
from ubert.inference.predictor import Predictor, query_of
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.objectives import passes
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Recipe
from ubert.structure import cells
from ubert.structure.batch import Batch, Example, Piece, Special, collate, pieces
from ubert.training.optimizer import adamw, set_rates, share_of_peak

TEXTS, CATEGORIES = 24, 16  # of a batch, and of a text in training
MANY = 1000  # categories whose cost is measured
RECIPE = Recipe(name="bi_encoder", mixture="none", epochs=1, learning_rate=1e-4)


def new_models(tokenizer: Tokenizer) -> tuple[UbertModel, BiEncoder]:
    joint, apart = (
        kind.new(
            encoder_path(ENCODER),
            Shape("joint", categories_per_piece=CATEGORIES),
            vocabulary=tokenizer.vocabulary,
            seed=0,
        )
        for kind in (UbertModel, BiEncoder)
    )
    assert isinstance(apart, BiEncoder)
    apart.special = tokenizer.special
    return joint, apart


def train(model: UbertModel, examples: Sequence[Example], special: Special, tokens: int, bf16: bool) -> int:
    """Train for a number of tokens; return the number of texts."""
    first = [batch for _, batch in zip(range(20), batches(examples, special), strict=False)]
    per_step = statistics.mean(int(batch.mask_BL.sum()) for batch in first)
    steps = max(1, round(tokens / per_step))
    optimizer = adamw(model, RECIPE)
    model.train()
    torch.manual_seed(0)
    for step, batch in zip(range(steps), batches(examples, special), strict=False):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            scores = model(batch)
            summed, texts = cells.loss(scores, batch)
        loss = summed / texts
        loss.backward()
        clip_grad_norm_(model.parameters(), RECIPE.clip)
        set_rates(optimizer, share_of_peak(step, steps, RECIPE))
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
    model.train(False)
    return steps * TEXTS


def batches(examples: Sequence[Example], special: Special) -> Iterator[Batch]:
    """Yield batches of joint sequences, epoch after epoch, the same for both sides."""
    draw = random.Random(0)
    while True:
        order = draw.sample(range(len(examples)), len(examples))
        for first in range(0, len(order) - TEXTS + 1, TEXTS):
            items: list[Piece] = []
            for number, i in enumerate(order[first : first + TEXTS]):
                example = examples[i]
                gold = {*example.gold_anchors.tolist(), *example.gold_cells[:, 0].tolist()}
                others = [c for c in range(len(example.categories)) if c not in gold]
                more = draw.sample(others, min(len(others), max(0, CATEGORIES - len(gold))))
                only = np.array(sorted([*gold, *more]), np.int32)
                items += pieces(
                    example, number, "joint", special, most_categories=CATEGORIES, most_tokens=512, only=only
                )
            yield collate(items, special, TEXTS)


def examples_of(predictor: Predictor, given: Sequence[Record]) -> list[Example]:
    """Tokenise records, each as one window, with their gold cells."""
    found = []
    for record in given:
        query = query_of(record)
        encoded = predictor._encode([query])
        (_, example), *_ = predictor._views(query, encoded)
        (_, targets), *_ = passes(record, encoded[query.text])
        found.append(replace(example, gold_anchors=targets.gold_anchors, gold_cells=targets.gold_cells))
    return found


def quality(corpus: str, root: Path, tokenizer: Tokenizer, tokens: int, tested: int) -> None:
    """Train both on a corpus, and compare them on its test split."""
    trained, test = records(root, corpus, "train"), records(root, corpus, "test", tested)
    task, reached, took = test[0].task, list[float](), list[float]()
    joint, apart = new_models(tokenizer)
    examples = examples_of(Predictor(joint, tokenizer), trained)
    texts = 0
    for predictor in (Predictor(joint, tokenizer), Apart(apart, tokenizer)):
        began = time.process_time()
        texts = train(predictor.model, examples, tokenizer.special, tokens, predictor.bf16)
        took.append(time.process_time() - began)
        reached.append(summarised(test, predictor.predict_records(test), metric(task))[MAIN[task]])
    case = f"{corpus}, {tokens:,} tokens, {texts:,} texts"
    (ours, theirs), (ours_took, theirs_took) = reached, took
    report("bi_encoder", case, round(ours, 4), round(theirs, 4), MAIN[task], len(test), more=True)
    report("bi_encoder", f"{case}, training", round(ours_took, 1), round(theirs_took, 1), "s", 1)


def cost(tokenizer: Tokenizer, texts: int, runs: int) -> None:
    """Compare the time of short texts with many categories."""
    joint, apart = new_models(tokenizer)
    ours, theirs = Predictor(joint, tokenizer), Apart(apart, tokenizer)
    names = [" ".join(pair) for pair in product(TYPES, TYPES) if pair[0] != pair[1]][:MANY]
    short = [text[:60] for text in samples(texts)]

    def ask(predictor: Predictor, task: str, asked: list[str]) -> None:
        predictor.predict(asked, task=task, categories=names, threshold=0.99)

    def once(task: str, asked: list[str]) -> None:
        theirs.kept.clear()
        ask(theirs, task, asked)

    def for_each(task: str) -> None:
        for text in short:
            once(task, [text])

    for task in ("classification", "ner"):
        sides: dict[str, Callable[[], None]] = {
            "joint": partial(ask, ours, task, short),
            "names for each text": partial(for_each, task),
            "names once": partial(once, task, short),
            "names kept": partial(ask, theirs, task, short),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(runs + 1):
            for name, work in sides.items():
                began = time.process_time()
                work()
                times[name].append(time.process_time() - began)
        took = {name: round(statistics.median(of_side[1:]), 3) for name, of_side in times.items()}
        for name in list(sides)[1:]:
            case = f"{task}, {texts} texts, {MANY} categories, {name}"
            report("bi_encoder", case, took["joint"], took[name], "s", runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", help="compare quality on these; none: measure cost alone")
    parser.add_argument("--tokens", type=int, default=150_000, help="tokens of each training run")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--quick", action="store_true", help="a few texts and tokens: within a minute")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(ENCODER)
    for corpus in given.corpora:
        quality(corpus, given.root, tokenizer, 2_000 if given.quick else given.tokens, 20 if given.quick else 500)
    if not given.corpora or given.quick:
        cost(tokenizer, 1 if given.quick else 4, 1 if given.quick else 3)


if __name__ == "__main__":
    main()
