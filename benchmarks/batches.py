"""Building training batches, in three comparisons on synthetic sentences with names.

1. Against the public UBERT implementation. In every epoch, for each text and category, it tokenises prompt and
   text, padded to `max_length`. It finds each mention by tokenising the text up to the mention's start and up to
   its end. Then it fills a label table and a mask of max_length x max_length. Ours reads the same records from
   shards. The case `shards, once` compares the cost of making the shards with one epoch of theirs. `stacked`
   makes the same pieces as theirs, one category each; `joint` has all categories in one piece.
2. Against `datasets` with a `DataLoader`, in one process and thread (processor time). Theirs stores the content of
   a shard, tokenised once, in a memory-mapped Arrow file. It draws an epoch map-style, or streams it through a
   shuffle buffer, in batches of as many texts, and collates the same tensors. Token counts exclude padding.
3. Resuming at a random step of a very large epoch, in a fresh process. Ours opens the shards and the order, and
   builds the batch. Theirs draws the order of a map-style `DataLoader`, skips to its middle, and builds nothing.
   Ours has its order on disk; the case `order, once` is the time to make it.

    python benchmarks/batches.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from batches_large import generate, measured
from batches_theirs import consumed, dense, map_style, streaming, tokenised
from measure import ENCODER, report, seconds
from transformers import AutoTokenizer

from pipelines.shards.files import write
from pipelines.shards.shard import run_unit
from pipelines.shards.unit import Unit
from ubert.loader.loader import Loader
from ubert.loader.shards import Shards, open_shards
from ubert.model.tokenizer import encoder_path, load_tokenizer
from ubert.schema.arrow import records_to_batch
from ubert.schema.manifest import MANIFEST, ShardManifest
from ubert.schema.record import Category, Record, Source, Span
from ubert.schema.specs.recipe import Layout, Recipe

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
BUDGET = 16_384  # padded tokens of a batch, against `datasets`
EPOCHS = 20  # epochs of ours in one run, so that a run is long compared with the noise
NAMES = ["Ada Lovelace", "Niels Bohr", "Oslo", "New York", "Acme Steel", "the Blue Lamp", "Monday", "Lise Meitner"]
TYPES = [
    "person", "place", "company", "product", "date", "event", "law", "language", "work of art", "nationality",
    "quantity", "sum of money", "disease", "animal", "plant", "award",
]  # fmt: skip


def invented(number: int, categories: int, sentences: int) -> Record:
    """Make a few sentences with two names each."""
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
    """Make shards of the records by the functions that the job runs as tasks."""
    part = directory / "part.parquet"
    pq.write_table(pa.Table.from_batches([records_to_batch(records)]), part)
    unit = Unit("names", part, directory, "names", True, np.ones((len(records), 1), np.int32))
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
        phases=1,
        **write([unit], tokenizer, directory, {}),
    )
    (directory / MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
    return open_shards(directory, verify=False)


def train(loader: Loader) -> tuple[int, int]:
    """Build every batch of `EPOCHS` epochs; return the tokens without and with padding."""
    real = padded = 0
    for i in range(loader.total_steps):
        for batch in loader.step(i).batches:
            real += int(batch.mask_BL.sum())
            padded += batch.mask_BL.numel()
    return real, padded


def size(loader: Loader) -> int:
    """Return the bytes of the tensors of all batches."""
    batches = [batch for i in range(loader.total_steps) for batch in loader.step(i).batches]
    values = [getattr(batch, f.name) for batch in batches for f in fields(batch)]
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def against_public(case: str, texts: int, categories: int, sentences: int, max_length: int, n: int) -> None:
    """Compare with the public implementation for one size of text."""
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
            most = 32 * max_length
            budget: dict[str, Any] = {"tokens_per_batch": most, "tokens_per_step": most, "packs_per_batch": 1}
            recipe = Recipe(name="names", mixture="names", epochs=EPOCHS, layout=layout, **budget)
            loader = Loader(shards, recipe, special, 512)
            tokens, _ = train(loader)
            ours_s, theirs_s = seconds(partial(train, loader), theirs, n)
            where = f"{case}, {layout}"
            report("batches", where, 1e3 * ours_s / seen, 1e3 * theirs_s / texts, "ms/text", n)
            report("batches", f"{where}, size", size(loader) / seen, their_bytes / texts, "bytes/text", 1)
            if layout == "stacked":  # the same pieces, so the same tokens
                report("batches", where, tokens / ours_s, their_tokens / theirs_s, "tokens/s", n, more=True)
    ours_s, theirs_s = seconds(partial(shard_once, records, max_length), theirs, n)
    report("batches", f"{case}, shards, once", 1e3 * ours_s / texts, 1e3 * theirs_s / texts, "ms/text", n)


def shard_once(records: list[Record], max_tokens: int) -> None:
    """Make the shards in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        shard(records, Path(folder), max_tokens)


def against_datasets(texts: int, n: int) -> None:
    """Compare with `datasets` on texts of about 60 tokens with 10 categories, in one process."""
    records = [invented(i, 10, sentences=2 + i % 3) for i in range(texts)]
    tokenizer = load_tokenizer(ENCODER)
    with tempfile.TemporaryDirectory() as folder:
        dataset = tokenised(records, tokenizer, Path(folder))
        budget: dict[str, Any] = {"tokens_per_batch": BUDGET, "tokens_per_step": BUDGET, "packs_per_batch": 1}
        recipe = Recipe(name="names", mixture="names", epochs=EPOCHS, **budget)
        loader = Loader(shard(records, Path(folder), 512), recipe, tokenizer.special, 512)
        real, padded = train(loader)
        for how in (map_style, streaming):
            made = how(dataset, tokenizer.special, BUDGET * EPOCHS * texts // padded)
            their_real, their_padded = consumed(made)
            ours_s, theirs_s = seconds(partial(train, loader), partial(consumed, made), n, time.process_time)
            where = f"one process, datasets {how.__name__}"
            report("batches", where, real / ours_s, their_real / theirs_s, "tokens/s", n, more=True)
        report("batches", "real tokens", real / padded, their_real / their_padded, "share", 1, more=True)


def against_skipping(rows: int, n: int) -> None:
    """Compare resuming at a random step of an epoch of `rows` rows."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), rows)
        first = measured("ours", Path(folder))
        runs = [(measured("ours", Path(folder)), measured("theirs", rows)) for _ in range(n)]
    (ours_s, ours_mib), (theirs_s, theirs_mib) = (
        [statistics.median(side[i] for side in sides) for i in range(2)] for sides in zip(*runs, strict=True)
    )
    report("batches", f"seek in {rows:,} rows", ours_s, theirs_s, "s", n)
    report("batches", f"seek in {rows:,} rows, memory", ours_mib, theirs_mib, "MiB", n)
    report("batches", f"order of {rows:,} rows, once", first[0] - ours_s, theirs_s, "s", 1)


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="end within a minute")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    texts, n = (32, 3) if quick else (128, 9)
    against_public("60 tokens, 10 categories", texts, 10, sentences=3, max_length=128, n=n)
    against_public("500 tokens, 16 categories", texts // 8, 16, sentences=24, max_length=512, n=n)
    against_datasets(4_000, n)
    against_skipping(10_000_000 if quick else 100_000_000, n=3)


if __name__ == "__main__":
    main()
