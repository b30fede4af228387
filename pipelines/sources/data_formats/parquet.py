"""Parquet files: each row of the file is a raw row, and its columns are the keys."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.sources import Example, RawRow, Slice
from pipelines.sources.parsing.columns import ROWS, Options, chosen, named_classes, rows
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

__all__ = ["EXAMPLE", "Options", "read"]


EXAMPLE = Example({"train.parquet": '{"text": "Fine.", "stars": 5}\n{"text": "Bad.", "stars": 1}\n'})


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a raw row for each row of the file.

    Raises:
        UserError: the file is broken, or has no such column.
    """
    path = piece.place
    try:
        # Without a buffer, a column of a whole row group would be in memory.
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            schema = file.schema_arrow
            found = named_classes(piece, (schema.metadata or {}).get(b"huggingface", b""), options)
            columns = chosen(piece, schema, options)
            yield from rows(piece, file.iter_batches(ROWS, columns=columns, use_threads=False), found)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: not a Parquet file that can be read: {error}; if it is incomplete, get it again"
        ) from None
