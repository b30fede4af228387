"""Turn shard rows into UniLM's clozes. Each epoch hides other words, as a function of the shards, the seed,
the epoch, the row and the number of its copy.

Shapes: R rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from ubert.encoder.ragged import Longs
from ubert.loader.shards import Shards
from ubert.schema.specs.recipe import Recipe, Trained
from ubert.spanbert.masking import Words
from ubert.structure.batch import Special
from ubert.unilm.cloze import Cloze
from ubert.unilm.sequences import Symbols, generation, pretraining, pseudo_masked, source_of


def clozes(
    shards: Shards,
    row_R: Longs,
    copy_R: Longs,
    words: Words,
    special: Special,
    objective: Trained,
    recipe: Recipe,
    *key: int,
) -> Iterator[Cloze]:
    """Hide words of rows, given in ascending order: words of the target for seq2seq, of the text for unilm.

    Args:
        copy_R: a number for each row that is unique to this copy.
        key: the part of the key that all rows share.
    """
    symbols = Symbols(special.cls, special.sep, words.mask, len(words.starts_V))
    rows = shards.rows(row_R)
    columns = zip(rows.prompt.tolist(), rows.text, rows.pair, rows.target, copy_R.tolist(), strict=True)
    for prompt, text, pair, target, copy in columns:
        if objective == "seq2seq":
            source = source_of(shards.prompt(prompt).instruction, pair, text, special)
            if recipe.pseudo_masks:
                yield pseudo_masked(source, target, symbols)
            else:
                yield generation(source, target, symbols, *key, copy)
        else:
            yield pretraining(text, pair, symbols, *key, copy)
