"""The same batches without shards: made like the public UBERT implementation, and with `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from ubert.model.tokenizer import Tokenizer, align
from ubert.schema.record import Record
from ubert.structure.batch import Region, Special

BUFFER = 1_000  # size of the shuffle buffer: the default of `datasets`


def dense(record: Record, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, torch.Tensor]:
    """Build the tensors of one text like the public implementation."""
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


def tokenised(records: Sequence[Record], tokenizer: Tokenizer, folder: Path) -> Any:
    """Write the content of a shard, tokenised once, as a memory-mapped `Dataset`."""
    from datasets import Dataset, load_from_disk

    def rows() -> Iterator[dict[str, Any]]:
        for record in records:
            yield row(record, tokenizer)

    Dataset.from_generator(rows, cache_dir=str(folder / "cache")).save_to_disk(folder / "saved")
    return load_from_disk(folder / "saved")


def row(record: Record, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a record's token ids and gold cells as lists."""
    instruction, text, *names = tokenizer.encode(
        [record.instruction, record.text, *(category.name for category in record.categories)]
    )
    found = align(text, [span.start for span in record.spans], [span.end for span in record.spans])
    gold = [span.category for span in record.spans]
    return {
        "instruction": instruction.ids.tolist(),
        "categories": [name.ids.tolist() for name in names],
        "text": text.ids.tolist(),
        "cells": [list(cell) for cell in zip(gold, found.first.tolist(), found.last.tolist(), strict=True)],
    }


def collate(rows: list[dict[str, Any]], special: Special) -> dict[str, torch.Tensor]:
    """Collate rows of `tokenised` to the tensors of a `Batch`: padded joint sequences and their tables.

    Sequences are built here because their categories may differ from epoch to epoch.
    """
    sequences: list[torch.Tensor] = []
    starts: list[int] = []
    anchors: list[int] = []
    tables: list[int] = []
    categories: list[int] = []
    cells: list[list[int]] = []
    first = 0
    for row in rows:
        sequence = [special.cls, *row["instruction"], special.sep]
        for category in row["categories"]:
            anchors.append(len(sequence))
            sequence += [special.marker, *category]
        sequence.append(special.sep)
        starts.append(len(sequence))
        sequences.append(torch.tensor([*sequence, *row["text"], special.sep]))
        tables.append(len(row["categories"]))
        categories += range(len(row["categories"]))
        cells += [[first + category, start, end] for category, start, end in row["cells"]]
        first += len(row["categories"])
    ids = pad_sequence(sequences, True, special.pad)
    length = torch.tensor([len(of_row) for of_row in sequences])
    start = torch.tensor(starts)
    position = torch.arange(ids.shape[1])
    mask = position < length[:, None]
    return {
        "ids": ids,
        "mask": mask,
        "types": (mask & (position >= start[:, None])).long(),
        "text_start": start,
        "text_length": length - start - 1,
        "example": torch.arange(len(rows)),
        "piece": torch.arange(len(rows)).repeat_interleave(torch.tensor(tables)),
        "anchor": torch.tensor(anchors),
        "category": torch.tensor(categories),
        "region": torch.full((first,), int(Region.TRIANGLE)),
        "gold_anchor": torch.zeros(first),
        "gold_cells": torch.tensor(cells),
    }


def map_style(dataset: Any, special: Special, batch_size: int) -> DataLoader[Any]:
    """Load one epoch in random order, in this process."""
    return DataLoader(dataset, batch_size, shuffle=True, collate_fn=lambda rows: collate(rows, special))


def streaming(dataset: Any, special: Special, batch_size: int) -> DataLoader[Any]:
    """Load one epoch of the same rows as a stream, shuffled in a buffer."""
    stream = dataset.to_iterable_dataset(num_shards=8).shuffle(seed=0, buffer_size=BUFFER)
    return DataLoader(stream, batch_size, collate_fn=lambda rows: collate(rows, special))


def consumed(loader: DataLoader[Any]) -> tuple[int, int]:
    """Read all batches of a loader; return the tokens without and with padding."""
    real = padded = 0
    for batch in loader:
        real += int(batch["mask"].sum())
        padded += batch["mask"].numel()
    return real, padded
