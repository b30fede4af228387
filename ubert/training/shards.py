"""Shards: texts tokenised once, in uncompressed Arrow files that are mapped into memory and read without a copy.

shard-*.arrow      one row a text, or a window of a long one; one record batch a file, so that a column is one array
prompts.arrow      each distinct prompt (an instruction and its candidate categories), by rows of categories.arrow
categories.arrow   each distinct instruction, category name and question, tokenised once

Shapes: N rows of all shards, in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from blake3 import blake3

from ubert.model.batch import Example, Ids
from ubert.objectives import objective
from ubert.schema.errors import UserError
from ubert.schema.manifest import ShardFile, ShardManifest, read_manifest

_IDS = pa.list_(pa.int32())
_WORD = pa.dictionary(pa.int32(), pa.string())

SHARD_SCHEMA = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("corpus", _WORD, nullable=False),
        pa.field("task", _WORD, nullable=False),
        pa.field("copies", pa.int32(), nullable=False),  # how often an epoch shows the row
        pa.field("prompt", pa.int32(), nullable=False),  # row of prompts.arrow
        pa.field("text_ids", _IDS, nullable=False),
        pa.field("pair_ids", _IDS, nullable=False),
        pa.field("window_start", pa.int32(), nullable=False),  # the row's first token, in its record's text
        pa.field("gold_anchors", _IDS, nullable=False),  # indices into the prompt's categories
        pa.field("gold_cells", pa.list_(pa.list_(pa.int32(), 3)), nullable=False),  # category, start, end token
    ]
)
PROMPT_SCHEMA = pa.schema(
    [
        pa.field("instruction", pa.int32(), nullable=False),
        pa.field("categories", _IDS, nullable=False),
    ]
)
CATEGORY_SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # of the category, or `instruction`
        pa.field("ids", _IDS, nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),  # before it was cut to `ids`
    ]
)


class Lists(NamedTuple):
    """A list column without a copy: list i is values[offsets[i] : offsets[i + 1]]."""

    offsets: Ids
    values: npt.NDArray[np.int32]

    def __getitem__(self, i: int) -> Ids:  # type: ignore[override]
        return self.values[self.offsets[i] : self.offsets[i + 1]]


class Prompt(NamedTuple):
    """An instruction and its candidate categories, tokenised. `names` are the categories' texts."""

    instruction: Ids
    categories: list[Ids]
    names: list[str]
