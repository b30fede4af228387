"""Rows of shards as texts with masks, which are drawn anew in each epoch: a function of the shards, the seed, the
epoch, and which copy of which row it is.

Shapes: R rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ubert.encoder.ragged import Ids, Longs
from ubert.loader.shards import Shards
from ubert.schema.recipe import Masking
from ubert.spanbert.masking import Masked, Words, masked
from ubert.structure.batch import Region


def masked_texts(
    shards: Shards, row_R: Longs, copy_R: Longs, words: Words, masking: Masking, *key: int
) -> Iterator[Masked]:
    """Mask rows, in ascending order.

    Args:
        copy_R: of each row, a number that is this copy's alone.
        key: what is the same for all of them.
    """
    vocabulary = np.arange(len(words.starts_V), dtype=np.int32)
    rows = shards.rows(row_R)
    columns = zip(row_R.tolist(), copy_R.tolist(), rows.prompt.tolist(), rows.text, rows.cells, strict=True)
    for row, copy, prompt, text, cells in columns:
        file, _ = shards.find(row)
        pool = file.text.values if masking.replacements == "corpus" else vocabulary
        entities = mentions(cells, shards.prompt(prompt).regions) if masking.scheme == "entity" else []
        yield masked(text, words, masking, *key, copy, pool=pool, entities=entities)


def mentions(cells: Ids, regions: Ids) -> list[tuple[int, int]]:
    """First and last tokens of what a text's gold cells mark: links do not, which are cells of rectangles. A text
    without categories has spans alone.

    Args:
        regions: of the tables that the cells are of.
    """
    if len(regions):
        cells = cells[(regions[cells[:, 0]] & Region.TRIANGLE).astype(bool)]
    return [(first, last) for _, first, last in cells.tolist()]
