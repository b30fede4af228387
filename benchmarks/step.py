"""A whole training step on real sentences, from a pretrained MiniLM: ours against the public implementation.

Both sides take the same eight sentences of mit_movie_trivia (12 categories) or wnut17 (6), drawn once, and make a
batch of them. They run the encoder and the head forward and backward, clip gradients, and take an AdamW step over
all parameters, in fp32. Theirs makes a sequence per category, padded to 128 tokens, and tokenises it again for
each step. It fills dense labels and masks, and takes its three losses over all cells (loss_theirs.py). Ours takes
tokens from a shard, pads to the longest sequence of the batch, and takes BCE over valid cells. `joint` has all
categories of a sentence in one sequence, `stacked` one per sequence like theirs. `bf16` is ours in bfloat16, if
the processor supports it.

`share of peak` takes a step over 96 sentences as recipes train it: word embeddings frozen, no dropout. It compares
the operations per second with those of the encoder's largest matrix product alone, in the same precision.

The last case compares ours with ours under the default attention of transformers for BERT: scaled dot-product
attention with 10 % dropout. It takes three times as many sentences, the size of a batch.

UBERT_DATA=../shared/data python benchmarks/step.py [--quick] [--threads 1]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import loss_theirs
import numpy as np
import torch
from batches_theirs import dense
from flops import Encoder, Table, of_step
from loss import dense_scores
from measure import ENCODER, report, seconds
from torch.nn.utils import clip_grad_norm_
from transformers import AutoTokenizer

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice, reader
from pipelines.specs import dataset_spec, file_options, specs_folder
from ubert.encoder.unpadded import ATTENTION
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel, set_dropout
from ubert.objectives import passes
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Layout
from ubert.structure import cells
from ubert.structure.batch import Example, collate, pieces, regions

DATA = Path(os.environ.get("UBERT_DATA", "../shared/data"))
TEXTS, LENGTH = 8, 128  # settings of theirs
PEAK_TEXTS, PACKS = 96, 4  # texts and batches of the step that is compared with the peak


def sentences(name: str, n: int) -> list[Record]:
    """Draw sentences from the dataset's training file, each with all categories."""
    spec = dataset_spec(name, specs_folder(None))
    entry = spec.files[0]
    folder = DATA / spec.folder
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such folder; set UBERT_DATA to the mirror of raw sources")
    piece = Slice(str(folder), entry.path, 0, (folder / entry.path).stat().st_size, 1, entry.encoding, "0" * 64)
    to_record = mapper(spec, entry.split, lambda misplaced: None)
    rows = reader(spec.format).read(piece, file_options(spec, entry))
    made = (to_record(piece, row) for row in islice(rows, 2000) if isinstance(row, RawRow))
    records = [record for record in made if isinstance(record, Record)]
    return random.Random(0).sample(records, n)


def example(record: Record, tokenizer: Tokenizer) -> Example:
    """Convert a record to an example, as stored in a shard."""
    text, *names = tokenizer.encode([record.text, *(category.name for category in record.categories)])
    [(_, targets)] = passes(record, text)
    return Example(
        instruction=tokenizer.instruction(record.instruction),
        categories=[name.ids for name in names],
        text=text.ids,
        pair=np.empty(0, np.int32),
        regions=regions(category.kind for category in record.categories),
        gold_anchors=targets.gold_anchors,
        gold_cells=targets.gold_cells,
    )


def our_step(
    layout: Layout, records: Sequence[Record], tokenizer: Tokenizer, *, bf16: bool, attention: str = ATTENTION
) -> Callable[[], None]:
    model = new_model(layout)
    model.encoder.set_attn_implementation(attention)
    examples, special = [example(record, tokenizer) for record in records], tokenizer.special
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        items = [
            piece
            for index, one in enumerate(examples)
            for piece in pieces(one, index, layout, special, most_categories=32, most_tokens=model.most_tokens)
        ]
        batch = collate(items, special, len(examples))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss, texts = cells.loss(model(batch), batch)
        (loss / texts).backward()
        update(model, optimizer)

    return step


def share_of_peak(name: str, tokenizer: Tokenizer, runs: int, clock: Callable[[], float], *, bf16: bool) -> None:
    """Report the share of the processor's peak that a step reaches."""
    records = sentences(name, PEAK_TEXTS)
    model = new_model("joint")
    model.word_vectors.requires_grad_(False)
    set_dropout(model, 0.0)
    examples, special = [example(record, tokenizer) for record in records], tokenizer.special
    items = [
        piece
        for index, one in enumerate(examples)
        for piece in pieces(one, index, "joint", special, most_categories=32, most_tokens=model.most_tokens)
    ]
    items.sort(key=len)
    quarter = len(items) // PACKS
    packs = [collate(items[i * quarter : (i + 1) * quarter], special, len(examples)) for i in range(PACKS)]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)

    def step() -> None:
        for batch in packs:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss, _ = cells.loss(model(batch), batch)
            (loss / len(examples)).backward()
        update(model, optimizer)

    lengths, texts, tables = (
        [n for batch in packs for n in of_batch(batch).tolist()]
        for of_batch in (
            lambda batch: batch.mask_BL.sum(1),
            lambda batch: batch.text_length_B,
            lambda batch: torch.bincount(batch.piece_T, minlength=len(batch.mask_BL)),
        )
    )
    config = model.encoder.config
    encoder = Encoder(config.num_hidden_layers, config.hidden_size, config.intermediate_size)
    operations = of_step(encoder, Table(model.shape.table_size, conditioned=True), lengths, texts, tables).total
    kind = torch.bfloat16 if bf16 else torch.float32
    rows = torch.randn(packs[-1].mask_BL.numel(), encoder.width).to(kind)
    weights = torch.randn(encoder.inner, encoder.width).to(kind)

    def product() -> None:
        torch.nn.functional.linear(rows, weights)

    of_step_s, of_product_s = seconds(step, product, runs, clock)
    reached, peak = operations / of_step_s / 1e9, 2 * rows.numel() * encoder.inner / of_product_s / 1e9
    case = f"{name}, share of peak, {'bf16' if bf16 else 'fp32'}, {sum(lengths) / of_step_s:,.0f} tokens/s"
    report("step", case, reached, peak, "GFLOP/s", runs, more=True)


def their_step(records: Sequence[Record]) -> Callable[[], None]:
    model = new_model("stacked")
    tokenizer = AutoTokenizer.from_pretrained(encoder_path(ENCODER))
    optimizer = torch.optim.AdamW(model.parameters())

    assert model.table is not None
    head = model.table

    def step() -> None:
        made = [dense(record, tokenizer, LENGTH) for record in records]
        batch = {name: torch.stack([of_text[name] for of_text in made]) for name in made[0]}
        inputs = {name: batch[name].flatten(0, 1) for name in ("input_ids", "attention_mask", "token_type_ids")}
        scores = dense_scores(head, model.encoder(**inputs).last_hidden_state)
        labels, mask = batch["labels"].float(), batch["mask"].float()
        loss_theirs.loss(scores.view_as(labels), labels, mask).backward()
        update(model, optimizer)

    return step


def new_model(layout: Layout) -> UbertModel:
    vocabulary = load_tokenizer(ENCODER).vocabulary
    model = UbertModel.new(encoder_path(ENCODER), Shape(layout), vocabulary=vocabulary, seed=0)
    model.train()
    return model


def update(model: UbertModel, optimizer: torch.optim.Optimizer) -> None:
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="four sentences, six categories, one run: within a minute"
    )
    parser.add_argument("--threads", type=int, default=1, help="with 1, CPU seconds are counted")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    clock, unit = (time.process_time, "CPU s") if given.threads == 1 else (time.perf_counter, "s")
    runs, texts = (1, 4) if given.quick else (3, TEXTS)
    tokenizer = load_tokenizer(ENCODER)
    for name in ("wnut17",) if given.quick else ("wnut17", "mit_movie_trivia"):
        records = sentences(name, texts)
        theirs = their_step(records)
        ours = partial(our_step, records=records, tokenizer=tokenizer)
        for case, step in (
            ("joint", ours("joint", bf16=False)),
            ("stacked", ours("stacked", bf16=False)),
            ("joint, bf16", ours("joint", bf16=True)),
        ):
            taken = seconds(step, theirs, runs, clock)
            report("step", f"{name}, {len(records[0].categories)} categories, {case}", *taken, unit, runs)
        for bf16 in (False, True):
            share_of_peak(name, tokenizer, runs, clock, bf16=bf16)
        more = partial(our_step, "joint", sentences(name, 3 * texts), tokenizer, bf16=True)
        taken = seconds(more(), more(attention="sdpa"), 3 * runs, clock)
        report("step", f"{name}, joint, bf16, against transformers' attention", *taken, unit, 3 * runs)


if __name__ == "__main__":
    main()
