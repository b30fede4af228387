"""Write the files of one part of a corpus: its shard, what its records lost, and a summary of its rows.

The files of the mixture (`pipelines/shards/files.py`) are made of summaries, so that no machine reads the shards
of others before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3

from pipelines.shards.rows import Rows
from pipelines.store.storage import ObjectPath, StorePath
from pipelines.store.store import atomic
from ubert.encoder.ragged import Ids
from ubert.loader.shards import SHARD_SCHEMA
from ubert.schema.manifest import ShardFile

BATCH_ROWS, BATCH_TOKENS = 200_000, 16_000_000  # limits of a record batch; the tokens are 64 MB of ids
_IDS = ("text_ids", "pair_ids", "target_ids")
_CHECKSUM = b"blake3"  # of the shard, in the metadata of its summary
_SUMMARY = pa.schema(
    [
        *(SHARD_SCHEMA.field(name) for name in ("record", "prompt", "task", "kept")),
        pa.field("tokens", pa.int32(), nullable=False),
    ]
)


@dataclass(slots=True, frozen=True, eq=False)
class Unit:
    """One part of a corpus to tokenise into files called `name`.

    If `whole` is true, all records are tokenised, otherwise only those that are drawn. `copies_RF` is the number
    of copies of each record of the part in each phase of an epoch.
    """

    corpus: str
    part: StorePath
    directory: StorePath
    name: str
    whole: bool
    copies_RF: Ids

    @property
    def drawn(self) -> npt.NDArray[np.bool_]:
        """Return a mask [R] of the records that are drawn."""
        return np.asarray(self.copies_RF.any(axis=1))

    @property
    def shard(self) -> StorePath:
        """Return the file of the unit's rows. It is written last, atomically."""
        return self.directory / f"shard-{self.name}.arrow"

    @property
    def lost(self) -> StorePath:
        """Return the file of annotations and text that the records lost."""
        return self.directory / f"lost-{self.name}.parquet"

    @property
    def summary(self) -> StorePath:
        """Return the file of what `write` needs of the rows, so that it doesn't read the shard."""
        return self.directory / f"summary-{self.name}.arrow"

    @property
    def files(self) -> tuple[StorePath, StorePath, StorePath]:
        """Return all files of the unit, in the order in which they are written."""
        return self.lost, self.summary, self.shard


def write_unit(unit: Unit, rows: Rows, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the files of one unit.

    Raises:
        UserError: the store can't be written.
    """
    joined = list(_joined(batches))
    with atomic(unit.lost) as path:
        pq.write_table(pa.Table.from_batches([rows.lost_spans()]), path, compression="zstd")
    with atomic(unit.shard) as path:
        with pa.ipc.new_file(str(path), SHARD_SCHEMA) as file:
            for batch in joined:
                file.write_batch(rows.with_prompts(batch))
        _summarise(path, unit.summary)


def _summarise(shard: Path, summary: StorePath) -> None:
    """Write the summary of a shard, with a record batch for each of the shard."""
    schema = _SUMMARY.with_metadata({_CHECKSUM: checksum(shard)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    file = pa.ipc.open_file(pa.memory_map(str(shard)))
    with atomic(summary) as path, pa.ipc.new_file(str(path), schema, options=options) as written:
        for batch in map(file.get_batch, range(file.num_record_batches)):
            lengths = [pc.list_value_length(batch.column(name)) for name in _IDS]
            columns = [batch.column(name) for name in _SUMMARY.names[:-1]]
            written.write_batch(pa.RecordBatch.from_arrays([*columns, reduce(pc.add, lengths)], schema=schema))


def listed(unit: Unit, summary: pa.ipc.RecordBatchFileReader) -> ShardFile:
    """Return the manifest's entry for the shard of a unit."""
    table, hashed = summary.read_all(), summary.schema.metadata[_CHECKSUM].decode()
    return ShardFile(path=unit.shard.name, rows=len(table), tokens=summed(table), blake3=hashed)


def checksum(path: StorePath) -> str:
    if isinstance(path, ObjectPath):
        hashed = blake3()
        for block in path.blocks():
            hashed.update(block)
        return hashed.hexdigest()
    return blake3(max_threads=blake3.AUTO).update_mmap(str(path)).hexdigest()


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge batches up to `BATCH_ROWS` rows and `BATCH_TOKENS` tokens."""
    waiting: list[pa.RecordBatch] = []
    rows = tokens = 0
    for batch in batches:
        size = sum(len(batch.column(name).flatten()) for name in _IDS)
        if waiting and (rows + len(batch) > BATCH_ROWS or tokens + size > BATCH_TOKENS):
            yield from _one(waiting)
            waiting, rows, tokens = [], 0, 0
        waiting.append(batch)
        rows, tokens = rows + len(batch), tokens + size
    yield from _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    filled = [batch for batch in batches if len(batch)]
    table = pa.Table.from_batches(filled).unify_dictionaries() if filled else None
    return [] if table is None else table.combine_chunks().to_batches()


def summed(summary: pa.RecordBatch | pa.Table) -> int:
    return int(pc.sum(summary.column("tokens")).as_py() or 0)
