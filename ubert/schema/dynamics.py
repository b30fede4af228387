"""Schema of training dynamics, `runs/<name>/dynamics/<first step>-<rank>.parquet`: one row per text and step."""

from __future__ import annotations

import pyarrow as pa

FOLDER = "dynamics"
SCHEMA = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # row of the shards; a record may have several
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),  # counts from 1, as in the log
        pa.field("loss", pa.float32(), nullable=False),  # training loss, summed over the text's tables
        # only for texts with labels; see `Labels` of ubert.training.dynamics
        pa.field("confidence", pa.float32()),
        pa.field("margin", pa.float32()),
        pa.field("predicted", pa.int32()),  # index into the record's categories
    ]
)


def file_name(step: int, rank: int) -> str:
    """Return the name of the part that begins at `step`."""
    return f"{step:08d}-{rank}.parquet"


def first_step(name: str) -> int:
    """Return the step at which a part begins, by its name."""
    return int(name.partition("-")[0])
