"""The parts in which a run keeps its dynamics: a row for each text of a step, `runs/<name>/dynamics/*.parquet`."""

from __future__ import annotations

import pyarrow as pa

FOLDER = "dynamics"
SCHEMA = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the shards; a record may have several
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),  # as the log counts: from 1
        pa.field("loss", pa.float32(), nullable=False),  # as it is trained, summed over the text's tables
        # of texts with labels alone; see `Labels` of ubert.training.dynamics
        pa.field("confidence", pa.float32()),
        pa.field("margin", pa.float32()),
        pa.field("predicted", pa.int32()),  # index into the record's categories
    ]
)
