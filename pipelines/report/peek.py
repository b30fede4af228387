"""Show single items of each stage of the data: records, mixture entries, shard rows and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import torch
from rich.text import Text
from transformers import AutoConfig, AutoModel

from pipelines.report.described import colour, described, few, fields
from pipelines.shards.remote import shard_files
from pipelines.specs import recipe
from pipelines.store.storage import StorePath, explained, intact, parquet, parquet_file
from pipelines.store.store import Store
from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.arrow import batch_to_records
from ubert.schema.manifest import CorpusManifest, read_manifest
from ubert.schema.record import RECORD_SCHEMA, Record
from ubert.spanbert.masked_lm import MaskedBatch
from ubert.spexbert.pointer import NOWHERE, PointerBatch
from ubert.structure.batch import Batch, Example
from ubert.training.run_directory import find_shards
from ubert.unilm.cloze import ClozeBatch


def corpus(name: str, n: int, root: StorePath) -> Iterator[Text]:
    """Yield the first records of a corpus."""
    directory, manifest = Store(root).current("corpora", name)
    yield from map(described, islice(_records(directory, manifest.parts), n))


def mixture(name: str, n: int, root: StorePath) -> Iterator[Text]:
    """Yield the records that a mixture draws first, with their number of copies."""
    store = Store(root)
    directory, manifest = store.current("mixtures", name)
    with parquet_file(directory / "members.parquet") as file:
        members = file.read().sort_by("key").slice(0, n).to_pylist()
    for member in members:
        place = store.directory("corpora", member["corpus"], manifest.versions[member["corpus"]])
        parts = read_manifest(CorpusManifest, place).parts
        (record,) = _records(place, parts, ds.field("record_id") == member["record_id"])
        yield Text.assemble(described(record), f"\ncopies       {member['copies']}")


def shard(name: str, n: int, root: StorePath) -> Iterator[Text]:
    """Yield the first drawn rows of a mixture's shards: tokens, categories, gold cells and their words."""
    directory, manifest = Store(root).current("shards", name)
    shards, tokenizer = open_shards(shard_files(directory), verify=False), load_tokenizer(manifest.encoder)
    drawn = (
        (file.first + i, file.copies[i].tolist())
        for file in shards.files
        for i in np.flatnonzero(file.copies.any(axis=1)).tolist()
    )
    for row, copies in islice(drawn, n):
        yield _row(shards.record_id(row), copies, shards.example(row), tokenizer)


def batch(name: str, n: int, root: StorePath, specs: Path) -> Iterator[Text]:
    """Yield the first sequences of a recipe's first batch: tokens, and the anchor and gold cells of each table."""
    chosen = recipe(name, specs)
    tokenizer = load_tokenizer(chosen.encoder)
    shards = open_shards(shard_files(find_shards(root, chosen, tokenizer.hash)), verify=False)
    most = _most_tokens(encoder_path(chosen.encoder))
    words = tokenizer.for_masking() if chosen.masks else None
    phrases = tokenizer.for_pointing() if chosen.points else None
    loader = Loader(shards, chosen, tokenizer.special, most, words=words, phrases=phrases)
    step = loader.step(0)
    first = step.batches[0]
    if isinstance(first, PointerBatch):
        yield from (_pointed(first, sequence, tokenizer) for sequence in range(min(n, len(first.ids_BL))))
        return
    if not isinstance(first, Batch):
        for text in range(min(n, len(first.ids_BL))):
            yield _masked(first, text, shards.record_id(step.rows[text]), tokenizer)
        return
    for piece in range(min(n, len(first.ids_BL))):
        row = step.rows[int(first.example_B[piece])]
        yield _piece(first, piece, shards.record_id(row), shards.example(row), tokenizer)


def _most_tokens(encoder: str) -> int:
    """Return the length of the longest sequence that training takes, without loading the encoder's weights."""
    config = AutoConfig.from_pretrained(encoder, trust_remote_code=False)
    with torch.device("meta"):
        made = AutoModel.from_config(config, trust_remote_code=False)
        return (made if isinstance(made, UbertModel) else UbertModel.around(made, Shape())).most_tokens


def _row(record_id: str, copies: list[int], example: Example, tokenizer: Tokenizer) -> Text:
    names = list(map(tokenizer.words, example.categories))
    lines = fields(
        record=record_id,
        copies=", then ".join(map(str, copies)),
        instruction=tokenizer.words(example.instruction),
        categories=few(names),
        pair=" ".join(tokenizer.tokens(example.pair)),
        text=" ".join(tokenizer.tokens(example.text)),
    )
    for anchor in example.gold_anchors.tolist():
        lines.append(f"{'gold anchor':12} ", "bold").append(f"{names[anchor]}\n")
    for category, start, end in example.gold_cells.tolist():
        lines.append(f"{'gold cell':12} ", "bold")
        words = tokenizer.words(example.text[start : end + 1])
        lines.append(f"[{start}, {end}] {names[category]}: {words}", colour(category)).append("\n")
    return lines


def _piece(batch: Batch, piece: int, record_id: str, example: Example, tokenizer: Tokenizer) -> Text:
    """Show a sequence of a batch and its tables, each with its category and the words of its gold cells."""
    tokens = tokenizer.tokens(batch.ids_BL[piece].numpy())
    lines = Text(f"sequence {piece} of {len(batch.ids_BL)}, of {record_id}\n", "bold")
    lines.append(" ".join(tokens)).append("\n")
    for table in np.flatnonzero(batch.piece_T.numpy() == piece).tolist():
        at, category = int(batch.anchor_T[table]), int(batch.category_T[table])
        lines.append(f"table {table}: {tokenizer.words(example.categories[category])}, anchor {at} {tokens[at]}")
        lines.append(" holds\n" if bool(batch.gold_anchor_T[table]) else "\n")
        for _, start, end in batch.gold_cells_G3[batch.gold_cells_G3[:, 0] == table].tolist():
            words = tokenizer.words(example.text[start : end + 1])
            lines.append(f"    [{start}, {end}] {words}\n", colour(category))
    return lines


def _pointed(batch: PointerBatch, sequence: int, tokenizer: Tokenizer) -> Text:
    """Show a sequence of a batch, its source, and the gold span to point at."""
    ids = batch.ids_BL[sequence][batch.mask_BL[sequence]].numpy().astype(np.int32)
    start, end = batch.gold_B2[sequence].tolist()
    return fields(
        tokens=" ".join(tokenizer.tokens(ids)),
        source=f"tokens 1 to {int(batch.source_B[sequence])}",
        gold="nowhere" if start == NOWHERE else f"[{start}, {end}] {tokenizer.words(ids[start : end + 1])}",
    )


def _records(
    directory: StorePath, parts: Sequence[str], condition: ds.Expression | None = None
) -> Iterator[Record]:
    files = parquet([directory / part for part in parts], RECORD_SCHEMA)
    with explained(directory), intact():
        for batch in files.to_batches(filter=condition, batch_size=64):
            yield from batch_to_records(batch)


def _masked(batch: MaskedBatch | ClozeBatch, text: int, record_id: str, tokenizer: Tokenizer) -> Text:
    """Show a text with masks as the model reads it, and the tokens to predict."""
    position_M, target_M = (
        (batch.hidden_H, batch.answer_H) if isinstance(batch, ClozeBatch) else (batch.position_M, batch.target_M)
    )
    ids = batch.ids_BL[text][batch.mask_BL[text]].numpy().astype(np.int32)
    mine = position_M // batch.ids_BL.shape[1] == text
    targets = target_M[mine].numpy().astype(np.int32)
    return fields(
        record=record_id,
        tokens=" ".join(tokenizer.tokens(ids)),
        predicted=" ".join(tokenizer.tokens(targets)),
    )
