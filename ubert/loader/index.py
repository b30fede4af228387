"""The copies of rows sorted by size, from which batches are cut.

The first run that needs this order writes it to a file beside the shards; later runs memory-map it, so that a
run over any number of rows starts at once. Copies of similar size form a bucket. The bounds of the buckets
also depend on the recipe's token budgets, so each run computes them from the number of copies of each size.

Shapes: R rows of a part of a shard, E distinct sizes, M copies of all rows, K buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ubert.encoder.ragged import Longs
from ubert.loader.blocks import Blocks
from ubert.loader.shards import Columns, Shards
from ubert.loader.sizes import SizesOf, Wanted, sizes_of, tasks_of
from ubert.objectives.spexbert import DECODE
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.record import TASKS
from ubert.schema.specs.recipe import Batches, Recipe, Trained
from ubert.spexbert.pointer import Phrases

_BITS = 24  # bits of the number of sequences, and of the length, in a key
_LARGEST = (1 << _BITS) - 1
_GROUPS = 1 << 63 - 2 * _BITS  # maximum number of groups
CHUNK = 1 << 20  # rows processed together
NARROW = 0.96  # shortest length in a bucket, relative to its longest; keeps padding small


class Index(NamedTuple):
    """`row_M`: the row of each copy, bucket by bucket; copies of one row are adjacent.

    Bucket k is row_M[start_K[k] : start_K[k + 1]]; a pack has at most `most_K` of its copies. `phase_K` is
    its phase, `block_K` its block of shards. `group_K` is the number of its task or corpus if the recipe separates
    these, otherwise 0.
    """

    row_M: npt.NDArray[np.unsignedinteger]
    start_K: Longs
    most_K: Longs
    phase_K: Longs
    block_K: Longs
    group_K: Longs


def index(
    shards: Shards, recipe: Recipe, most_tokens: int, objective: Trained, phrases: Phrases | None = None
) -> Index:
    """Return the index of a shard set for a recipe's packs of one objective.

    Args:
        most_tokens: the encoder's number of positions.
        phrases: the tokens for SpEx-BERT's sources, if it is the objective.

    Raises:
        UserError: the objective has no rows, or rows have no objective; entities are to be masked but there are
            none; a single row is larger than a batch or a forward pass may be, or than the encoder takes; or the
            order can't be written beside the shards.
    """
    tasks, groups = tasks_of(recipe, objective), _Groups.make(shards, recipe)
    inputs = shards.manifest.fingerprint, recipe.layout, recipe.categories_per_piece, most_tokens, recipe.batches
    trained = objective, sorted(tasks), sorted(recipe.objectives), recipe.pseudo_masks
    blocks = [recipe.shuffle_blocks] if recipe.shuffle_blocks > 1 else []  # orders without blocks keep their names
    name = fingerprint(*inputs, *trained, *blocks)
    wanted = Wanted(shards, objective, tasks)

    def make(halves: Sequence[Path]) -> None:
        _check_all_trained(shards, recipe)
        _build(shards, sizes_of(shards, recipe, most_tokens, objective, phrases), wanted, groups, *halves)

    places = shards.source.derived([f"order-{name}-{part}.npy" for part in ("sizes", "rows")], make)
    key_E, count_E = np.load(places[0], allow_pickle=False)
    row_M = np.load(places[1], mmap_mode="r", allow_pickle=False)
    if not len(key_E):
        raise UserError(
            f"recipe {recipe.name}: objective {objective} has a share of the batches, but the mixture "
            f"{recipe.mixture} has no record for it ({_wanted(objective)}); add some, or remove it from "
            "`objectives`"
        )
    if objective == "spanbert" and recipe.masking.scheme == "entity":
        _check_spans(shards, recipe, wanted)
    total_E = np.append(0, np.cumsum(count_E))
    _check(shards, recipe, key_E, row_M, total_E)
    first_E, most_K = _cut(key_E, count_E, recipe.tokens_per_batch // recipe.packs_per_batch)
    section_K, group_K = np.divmod(key_E[first_E] >> 2 * _BITS, len(groups.names))
    phase_K, block_K = np.divmod(section_K, groups.blocks.count)
    return Index(row_M, total_E[np.append(first_E, len(key_E))], most_K, phase_K, block_K, group_K)


class _Groups(NamedTuple):
    """Groups of rows that never share a batch: by phase, by block of shards, and by task or corpus if the recipe
    separates these. The group's number is part of a key."""

    by: Batches
    names: list[str]
    blocks: Blocks

    @classmethod
    def make(cls, shards: Shards, recipe: Recipe) -> _Groups:
        """Return the groups of a recipe.

        Raises:
            UserError: there are more groups than a key has numbers for.
        """
        corpora = sorted({alignment.corpus for alignment in shards.manifest.alignment})
        names: dict[Batches, list[str]] = {"mixed": ["all"], "by_task": [*TASKS], "cycle": corpora}
        made = cls(recipe.batches, names[recipe.batches], Blocks(shards.manifest, recipe.shuffle_blocks))
        if (count := shards.manifest.phases * made.blocks.count * len(made.names)) > _GROUPS:
            raise UserError(
                f"recipe {recipe.name}: {shards.manifest.phases} phases of {made.blocks.count} shuffle_blocks of "
                f"{len(made.names)} tasks or corpora are {count:,} groups, expected at most {_GROUPS:,}; lower "
                "shuffle_blocks, or set batches: mixed"
            )
        return made

    def of(self, file: Columns, row_R: Longs) -> Longs:
        if self.by == "mixed":
            return np.zeros(len(row_R), np.int64)
        column, names = (file.task, file.tasks) if self.by == "by_task" else (file.corpus, file.corpora)
        return np.array([self.names.index(name) for name in names], np.int64)[column[row_R]]


_TRAINS = {"text": "spanbert or unilm", "seq2seq": "seq2seq"}


def _wanted(objective: Trained) -> str:
    wanted = {"structure": "any labelled task", "spexbert": f"task {', '.join(DECODE)}", "seq2seq": "task seq2seq"}
    return wanted.get(objective, "task text, or, with masking.texts: all, any task")


def _check_all_trained(shards: Shards, recipe: Recipe) -> None:
    """Refuse a mixture with records of a task that no objective of the recipe trains on."""
    trained = set[str]().union(*(tasks_of(recipe, objective) for objective in recipe.objectives))
    instead = " in place of spexbert" if recipe.points else ""
    for file in shards.files:
        drawn = np.unique(file.task[file.copies.any(axis=1)]).tolist()
        if left := {file.tasks[number] for number in drawn} - trained:
            raise UserError(
                f"recipe {recipe.name}: the mixture {recipe.mixture} has records of task {min(left)}, which none "
                f"of the objectives {', '.join(recipe.objectives)} trains on; give "
                f"{_TRAINS.get(min(left), 'structure')} a share{instead}, or leave them out of the mixture"
            )


def _check_spans(shards: Shards, recipe: Recipe, wanted: Wanted) -> None:
    """Refuse the masking scheme `entity` if no corpus marks a span in the texts."""
    for file in shards.files:
        if file.cells.lengths(wanted(file, np.flatnonzero(file.copies.any(axis=1)))).any():
            return
    raise UserError(
        f"recipe {recipe.name}: masking.scheme is entity, but no masked text of the mixture {recipe.mixture} has "
        "annotated spans; map `spans` in the specs of its texts, set texts: all if labelled records have "
        "mentions, or set scheme: word"
    )


def _build(
    shards: Shards, sizes: SizesOf, wanted: Wanted, groups: _Groups, sizes_file: Path, rows_file: Path
) -> None:
    """Count the copies of each size and write the rows in that order: a counting sort in two passes."""
    counts: Counter[int] = Counter()
    for _, key_R, copies_R in _keyed(shards, sizes, wanted, groups):
        key_E, place_R = np.unique(key_R, return_inverse=True)
        count_E = np.bincount(place_R, weights=copies_R).astype(np.int64)
        counts.update(dict(zip(key_E.tolist(), count_E.tolist(), strict=True)))
    key_E = np.array(sorted(counts), np.int64)
    count_E = np.array([counts[key] for key in key_E.tolist()], np.int64)
    number = np.result_type(np.uint32, np.min_scalar_type(len(shards)))
    row_M = np.lib.format.open_memmap(rows_file, mode="w+", dtype=number, shape=(int(count_E.sum()),))
    free_E = np.cumsum(count_E) - count_E
    for row_R, key_R, copies_R in _keyed(shards, sizes, wanted, groups):
        size_R = np.searchsorted(key_E, key_R)
        order_R = np.argsort(size_R, kind="stable")
        dealt = np.repeat(row_R[order_R], copies_R[order_R])
        dealt_to = np.repeat(size_R[order_R], copies_R[order_R])
        now_E = np.bincount(dealt_to, minlength=len(key_E))
        before_E = np.cumsum(now_E) - now_E
        row_M[np.arange(len(dealt)) + (free_E - before_E)[dealt_to]] = dealt
        free_E += now_E
    row_M.flush()
    with sizes_file.open("wb") as file:
        np.save(file, np.stack([key_E, count_E]), allow_pickle=False)


def _keyed(
    shards: Shards, sizes: SizesOf, wanted: Wanted, groups: _Groups
) -> Iterator[tuple[Longs, Longs, Longs]]:
    """Yield the wanted rows that are drawn, their keys and their copies, one part of a shard at a time.

    A key sorts by phase, block, group, number of sequences and length; the larger ones come first.
    """
    for file in shards.files:
        for start, phase in product(range(0, len(file), CHUNK), range(file.copies.shape[1])):
            of_phase_R = file.copies[start : start + CHUNK, phase].astype(np.int64)
            row_R = file.first + start + np.arange(len(of_phase_R))
            for block, copies_R in groups.blocks.copies(file.shard, row_R, of_phase_R):
                drawn_R = wanted(file, start + np.flatnonzero(copies_R))
                length_R, pieces_R = sizes(file, drawn_R)
                size_R = (_LARGEST - pieces_R << _BITS) + _LARGEST - length_R
                section = phase * groups.blocks.count + block
                group_R = section * len(groups.names) + groups.of(file, drawn_R)
                yield file.first + drawn_R, (group_R << 2 * _BITS) + size_R, copies_R[drawn_R - start]


def _sizes(key_E: Longs) -> tuple[Longs, Longs]:
    """Return the number of sequences and the length that a key encodes."""
    return _LARGEST - (key_E >> _BITS & _LARGEST), _LARGEST - (key_E & _LARGEST)


def _check(shards: Shards, recipe: Recipe, key_E: Longs, row_M: npt.NDArray[Any], total_E: Longs) -> None:
    """Refuse rows that are larger than the recipe's budgets."""
    pieces_E, length_E = _sizes(key_E)
    cost_E = pieces_E * length_E
    e = int(cost_E.argmax())
    for name in ("tokens_per_batch", "tokens_per_step"):
        if cost_E[e] > getattr(recipe, name):
            record_id = shards.record_id(int(row_M[total_E[e]]))
            raise UserError(
                f"recipe {recipe.name}: {name} is {getattr(recipe, name)}, but record {record_id} alone takes up "
                f"to {cost_E[e]} ({pieces_E[e]} sequences of {length_E[e]} tokens); raise it to that, or lower "
                "categories_per_piece or max_tokens"
            )


def _cut(key_E: Longs, count_E: Longs, pack: int) -> tuple[Longs, Longs]:
    """Return the first size of each bucket, and the number of copies in its packs.

    A bucket holds similar sizes. If these have too few copies for a pack, it continues until they are enough,
    or until the phase or group ends.
    """
    group_E = key_E >> 2 * _BITS
    pieces_E, length_E = _sizes(key_E)
    first, most = [0], []
    count = widest = longest = 0
    for e in range(len(key_E)):
        begin = first[-1]
        near = pieces_E[e] == pieces_E[begin] and length_E[e] >= NARROW * length_E[begin]
        enough = count >= pack // max(1, longest * widest)
        if e > begin and (group_E[e] != group_E[begin] or (not near and enough)):
            most.append(max(1, pack // (longest * widest)))
            first.append(e)
            count = widest = longest = 0
        count += int(count_E[e])
        widest, longest = max(widest, int(pieces_E[e])), max(longest, int(length_E[e]))
    most.append(max(1, pack // (longest * widest)))
    return np.array(first), np.array(most)
