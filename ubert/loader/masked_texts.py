"""Turn shard rows into masked texts. Each epoch draws other masks, as a function of the shards, the seed, the
epoch, the row and the number of its copy.

Shapes: R rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ubert.encoder.ragged import Ids, Longs
from ubert.loader.shards import Shards
from ubert.schema.specs.recipe import Masking
from ubert.spanbert.masking import Masked, Words, masked
from ubert.structure.batch import Region


def masked_texts(
    shards: Shards, row_R: Longs, copy_R: Longs, words: Words, masking: Masking, *key: int
) -> Iterator[Masked]:
    """Mask rows, given in ascending order.

    Args:
        copy_R: a number for each row that is unique to this copy.
        key: the part of the key that all rows share.
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
    """Return the first and last tokens of a text's gold spans. Links, which are cells of rectangles, are
    excluded; a text without categories has only spans.

    Args:
        regions: regions of the tables that the cells belong to.
    """
    if len(regions):
        cells = cells[(regions[cells[:, 0]] & Region.TRIANGLE).astype(bool)]
    return [(first, last) for _, first, last in cells.tolist()]
