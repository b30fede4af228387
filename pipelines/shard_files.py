"""The rows of all units as shards of one size; prompts and categories numbered as they first appear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from pipelines.place import Place
from pipelines.rows import LOST_SCHEMA, lists, total
from pipelines.store import atomic
from ubert.model.tokenizer import Tokenizer
from ubert.schema.manifest import Alignment, ShardFile
from ubert.training.shards import CATEGORY_SCHEMA, PROMPT_SCHEMA, SHARD_SCHEMA

SHARD_ROWS, SHARD_TOKENS = 200_000, 16_000_000  # a shard ends before it has more: 64 MB of ids
CATEGORY_TOKENS = 64  # of a category name, question or instruction; longer ones are cut and counted
ALIGNMENT = b"ubert.alignment"  # in the metadata of a unit's rows


@dataclass(slots=True, frozen=True)
class Unit:
    """One part of one corpus, and the directory of shards that it goes into."""

    corpus: str
    part: Place
    members: Place
    directory: Path

    def file(self, kind: str) -> Path:
        """Where what the unit makes lies until the shards are written."""
        return units_folder(self.directory) / f"{self.corpus}-{PurePath(self.part.name).stem}.{kind}"

    def read(self, kind: str) -> pa.Table:
        """What the unit made."""
        return pa.ipc.open_file(pa.memory_map(str(self.file(kind)))).read_all()


@dataclass(slots=True)
class Numbers:
    """Words (text and kind) and prompts (instruction and categories, by their words' numbers), in order."""

    words: dict[tuple[str, str], int] = field(default_factory=dict)
    prompts: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def of(self, prompt_words: pa.Table) -> npt.NDArray[np.int32]:
        """Numbers of a unit's prompts."""
        columns = (column.to_pylist() for column in prompt_words.columns)
        return np.array([self._number(*row) for row in zip(*columns, strict=True)], np.int32)

    def _number(self, instruction: str, names: list[str], kinds: list[str]) -> int:
        first, *rest = [
            self.words.setdefault(word, len(self.words))
            for word in [(instruction, "instruction"), *zip(names, kinds, strict=True)]
        ]
        return self.prompts.setdefault((first, tuple(rest)), len(self.prompts))


def units_folder(directory: Path) -> Path:
    """The folder of finished units, inside a directory of shards that is not finished."""
    return directory / "units"


def write(units: Sequence[Unit], tokenizer: Tokenizer, directory: Path) -> dict[str, Any]:
    """Write shards, prompts, categories and `lost.parquet`; returns what the manifest says of them.

    Raises:
        UserError: the store can't be written.
    """
    numbers = Numbers()
    shards = [_write(batch, directory / f"shard-{i:05d}.arrow") for i, batch in enumerate(_sized(units, numbers))]
    categories = _categories(numbers, tokenizer)
    with atomic(directory / "lost.parquet") as path, pq.ParquetWriter(path, LOST_SCHEMA) as file:
        for unit in units:
            file.write_table(unit.read("lost"))
    return {
        "shards": shards,
        "categories": _write(categories, directory / "categories.arrow"),
        "prompts": _write(_prompts(numbers), directory / "prompts.arrow"),
        "cut_categories": int((categories.column("tokens").to_numpy() > CATEGORY_TOKENS).sum()),
        "alignment": list(_alignments(units)),
    }


def _sized(units: Sequence[Unit], numbers: Numbers) -> Iterator[pa.RecordBatch]:
    """The units' rows in order, one batch a shard."""
    waiting: list[pa.RecordBatch] = []
    rows = tokens = 0
    for batch in _numbered(units, numbers):
        size = _tokens(batch)
        if waiting and (rows + len(batch) > SHARD_ROWS or tokens + size > SHARD_TOKENS):
            yield _joined(waiting)
            waiting, rows, tokens = [], 0, 0
        waiting.append(batch)
        rows, tokens = rows + len(batch), tokens + size
    if waiting:
        yield _joined(waiting)


def _numbered(units: Sequence[Unit], numbers: Numbers) -> Iterator[pa.RecordBatch]:
    at = SHARD_SCHEMA.get_field_index("prompt")
    for unit in units:
        global_number = numbers.of(unit.read("prompts"))
        for batch in unit.read("rows").to_batches():
            prompt = global_number[batch.column(at).to_numpy()]
            columns = [pa.array(prompt) if i == at else column for i, column in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    [batch] = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    return batch


def _categories(numbers: Numbers, tokenizer: Tokenizer) -> pa.RecordBatch:
    encoded = tokenizer.encode([text for text, _ in numbers.words])
    columns = [
        pa.array([text for text, _ in numbers.words], pa.string()),
        pa.array([kind for _, kind in numbers.words], pa.string()),
        lists([encoding.ids[:CATEGORY_TOKENS] for encoding in encoded]),
        pa.array([len(encoding.ids) for encoding in encoded], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CATEGORY_SCHEMA)


def _prompts(numbers: Numbers) -> pa.RecordBatch:
    instructions = pa.array([instruction for instruction, _ in numbers.prompts], pa.int32())
    categories = lists([np.array(categories, np.int32) for _, categories in numbers.prompts])
    return pa.RecordBatch.from_arrays([instructions, categories], schema=PROMPT_SCHEMA)


def _write(batch: pa.RecordBatch, path: Path) -> ShardFile:
    """Write one batch, uncompressed, as one file."""
    with atomic(path) as temporary:
        with pa.ipc.new_file(str(temporary), batch.schema) as file:
            file.write_batch(batch)
        digest = blake3(max_threads=blake3.AUTO).update_mmap(temporary).hexdigest()
    return ShardFile(path=path.name, rows=len(batch), tokens=_tokens(batch), blake3=digest)


def _tokens(batch: pa.RecordBatch) -> int:
    """Token ids in all columns that hold such."""
    ids = ("text_ids", "pair_ids", "ids")
    return sum(len(batch.column(name).flatten()) for name in batch.schema.names if name in ids)


def _alignments(units: Sequence[Unit]) -> Iterator[Alignment]:
    of_corpus: dict[str, list[Alignment]] = {}
    for unit in units:
        metadata = unit.read("rows").schema.metadata
        of_corpus.setdefault(unit.corpus, []).append(Alignment.model_validate_json(metadata[ALIGNMENT]))
    return map(total, of_corpus.values())
