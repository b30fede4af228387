"""Arrow files (IPC streams or files), such as the `data-*.arrow` of a folder that `save_to_disk` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from pipelines.sources import Example, RawRow, Slice, sibling
from pipelines.sources.parsing.columns import ROWS, Options, chosen, named_classes, rows
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

__all__ = ["EXAMPLE", "Options", "companions", "read"]

INFO = "dataset_info.json"  # next to the files; names the classes of numbers


EXAMPLE = Example({"data-00000-of-00001.arrow": '{"text": "Fine.", "stars": 5}\n{"text": "Bad.", "stars": 1}\n'})


def companions(folder: Path, path: str, options: Options) -> list[str]:
    """Return the file with the names of classes, if it is needed and exists."""
    info = sibling(path, INFO)
    return [info] if options.class_names and (folder / info).exists() else []


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a raw row for each row of the file.

    Raises:
        UserError: the file is broken, or has no such column.
    """
    path = piece.place
    info = path.with_name(INFO)
    found = named_classes(piece, info.read_bytes() if info.exists() else b"", options)
    try:
        with ExitStack() as opened:
            file = opened.enter_context(pa.memory_map(str(path)))
            schema, batches = _batches(opened, file)
            columns = chosen(piece, schema, options)
            yield from rows(piece, (part for batch in batches for part in _parts(batch, columns)), found)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: not an Arrow file that can be read: {error}; if it is incomplete, get it again"
        ) from None


def _batches(opened: ExitStack, file: pa.MemoryMappedFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and record batches of the stream format or the file format."""
    if file.read(6) == b"ARROW1":
        whole = opened.enter_context(pa.ipc.open_file(file))
        return whole.schema, map(whole.get_batch, range(whole.num_record_batches))
    file.seek(0)
    stream = opened.enter_context(pa.ipc.open_stream(file))
    return stream.schema, iter(stream)


def _parts(batch: pa.RecordBatch, columns: list[str]) -> Iterator[pa.RecordBatch]:
    batch = batch.select(columns)
    for column in batch.columns:  # a broken file may have invalid offsets
        column.view(_of_bytes(column.type)).validate(full=True)
    for start in range(0, len(batch), ROWS):
        yield batch.slice(start, ROWS)


def _of_bytes(kind: pa.DataType) -> pa.DataType:
    """Replace strings by bytes in a type, so that invalid UTF-8 is an error of its row, not of the file."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(_of_bytes(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_of_bytes(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _of_bytes(field.type)) for field in kind])
    return kind
