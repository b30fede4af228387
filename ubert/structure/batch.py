"""Turn examples into pieces (input sequences), and pieces into one padded batch.

The two layouts of a piece; `stacked` follows section 3 of the UBERT paper, `joint` is our own:

    stacked: [CLS] t [SEP] c_j [SEP] (pair [SEP]) text [SEP]                one category per piece
    joint:   [CLS] t [SEP] [C] c_1 [C] c_2 ... [C] c_k [SEP] (pair [SEP]) text [SEP]

Each category of a piece has one table. A table has an anchor cell and a text region. The anchor is the [CLS]
token, or in the joint layout the first token of the category's name; its cell says whether the category holds
for the whole text. In the text region, row and column i belong to token i of the text. The markers [C] only
separate the names: with the marker as the anchor, one corpus of five was not learnt (docs/experiments.md).

Shapes: B pieces, L padded tokens of a piece, T tables, G gold cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ubert.encoder.movable import Movable
from ubert.encoder.ragged import Ids, Longs, Ragged, places, ragged
from ubert.schema.record import Kind
from ubert.schema.specs.recipe import Layout


class Region(IntFlag):
    """Flags for the cells of a table that are trained on and decoded."""

    ANCHOR = 1  # the single anchor cell
    TRIANGLE = 2  # start <= end over the text
    RECTANGLE = 4  # every cell over the text


REGIONS: dict[Kind, Region] = {
    "label": Region.ANCHOR,
    "value": Region.ANCHOR,
    "entity": Region.TRIANGLE,
    "event": Region.TRIANGLE,
    "role": Region.TRIANGLE,
    "question": Region.ANCHOR | Region.TRIANGLE,
    "relation": Region.RECTANGLE,
}
"""The region of a category's table, by kind. Labels use the anchor, mentions the triangle with start <= end,
and relations every pair of tokens."""


def regions(kinds: Iterable[Kind]) -> Ids:
    """Return the regions of the categories' tables, as flags [k]."""
    return np.array([REGIONS[kind] for kind in kinds], np.int32)


class Special(NamedTuple):
    """Ids of the special tokens of a piece. `types`: whether the encoder distinguishes two segment types."""

    cls: int
    sep: int
    pad: int
    marker: int
    types: bool


@dataclass(slots=True)
class Example:
    """A tokenised text, or a window of one, with its candidate categories and its gold cells.

    `regions` [k]: the regions of the categories' tables. `gold_anchors` [a]: categories that hold at their
    anchor. `gold_cells` [g, 3]: category, start token, end token (inclusive), with tokens counted within
    `text`.
    """

    instruction: Ids
    categories: Sequence[Ids]
    text: Ids
    pair: Ids
    regions: Ids
    gold_anchors: Ids
    gold_cells: Ids


class Prompt(NamedTuple):
    """The start of a piece. `ids` end with the [SEP] after the categories. `categories` [k] are indices in
    the example; `anchors` [k] are the positions of their anchors, and `regions` [k] the regions of their
    tables."""

    ids: Ids
    anchors: Ids
    categories: Ids
    regions: Ids


@dataclass(slots=True)
class Piece:
    """One input sequence: a prompt, then the pair and the text of `source`, which is example number `example`
    of the batch."""

    example: int
    source: Example
    prompt: Prompt

    def __len__(self) -> int:
        return len(self.prompt.ids) + behind(self.source)


class SpanGroup(NamedTuple):
    """The span tables of one region of one piece, and where they and the text are in the factors."""

    token: int  # first token of the text, among N
    tokens: int
    table: int  # first table, among S
    tables: int
    triangle: bool  # start <= end only


class Work(NamedTuple):
    """Sizes and groups of a batch. They are computed before the batch moves to a device, so that no code
    waits for the device."""

    groups: list[SpanGroup]
    table_S: Tensor  # int64: the span tables by piece; a piece's triangles come before its rectangles
    anchored: bool  # at least one table is trained at its anchor
    tokens: int  # without padding


@dataclass(frozen=True)
class Batch(Movable):
    """A padded batch of pieces. Positions count from a piece's first token, cells from its text's first token."""

    ids_BL: Tensor  # int64
    mask_BL: Tensor  # bool
    types_BL: Tensor  # int64
    text_start_B: Tensor  # int64
    text_length_B: Tensor  # int64
    example_B: Tensor  # int64: the example of each piece
    piece_T: Tensor  # int64: the piece of each table; ascending
    anchor_T: Tensor  # int64: position of the table's anchor in its piece
    category_T: Tensor  # int64: index of the table's category in its example
    region_T: Tensor  # int64: Region flags
    gold_anchor_T: Tensor  # float32: 1 where the category holds at its anchor
    gold_cells_G3: Tensor  # int64: table, start, end (inclusive)
    examples: int  # texts in the batch, the divisor of the loss

    @cached_property
    def work(self) -> Work:
        """Sizes and groups, computed once."""
        anchored = bool((self.region_T & Region.ANCHOR).any())
        return Work(*_span_groups(self), anchored, int(self.mask_BL.sum()))

    def moved(self, move: Callable[[Any], Any], kind: type = Tensor) -> Self:
        """Apply `move` to every tensor (or array, by `kind`), and keep the computed `work`."""
        moved = super().moved(move, kind)
        moved.__dict__["work"] = self.work._replace(table_S=move(self.work.table_S))
        return moved


def prompt(
    instruction: Ids, categories: Sequence[Ids], regions: Ids, chosen: Ids, layout: Layout, special: Special
) -> Prompt:
    """Build the prompt of the chosen categories."""
    ids = [special.cls, *instruction.tolist(), special.sep]
    anchors = []
    for i in chosen.tolist():
        if layout == "joint":
            ids.append(special.marker)
            anchors.append(len(ids))
        else:
            anchors.append(0)
        ids.extend(categories[i].tolist())
    ids.append(special.sep)
    return Prompt(np.array(ids, np.int32), np.array(anchors, np.int32), chosen, regions[chosen])


def pieces(
    example: Example,
    index: int,
    layout: Layout,
    special: Special,
    *,
    most_categories: int,
    most_tokens: int,
    only: Ids | None = None,
) -> Iterator[Piece]:
    """Split an example's categories (or those in `only`) over as few pieces as the limits allow.

    Args:
        index: position of the example in its batch.
        most_categories: maximum number of categories of a joint piece; a stacked piece has one.
        most_tokens: maximum length of a piece, which is the encoder's number of positions.
        only: indices of the categories to use, ascending.

    Raises:
        ValueError: text, pair and one category don't fit into `most_tokens`.
    """
    most = 1 if layout == "stacked" else most_categories
    chosen = np.arange(len(example.categories), dtype=np.int32) if only is None else only
    room = most_tokens - behind(example)
    for group in groups(example.instruction, example.categories, chosen, most, room):
        built = prompt(example.instruction, example.categories, example.regions, group, layout, special)
        yield Piece(index, example, built)


def behind(example: Example) -> int:
    """Count an example's tokens after its prompt: (pair [SEP]) text [SEP]."""
    return len(example.text) + len(example.pair) + (len(example.pair) > 0) + 1


def groups(instruction: Ids, categories: Sequence[Ids], chosen: Ids, most: int, room: int) -> Iterator[Ids]:
    """Split the chosen categories into groups of at most `most` categories whose prompt has at most `room` tokens.

    Raises:
        ValueError: the prompt of a single category is longer than `room`.
    """
    sizes = [len(categories[i]) + 1 for i in chosen.tolist()]
    room -= len(instruction) + 3
    first = used = 0
    for i, size in enumerate(sizes):
        if size > room:
            raise ValueError(
                f"a category of {size - 1} tokens doesn't fit into a sequence with its text, which leaves room "
                f"for {room - 1}; lower max_tokens"
            )
        if i > first and (i - first == most or used + size > room):
            yield chosen[first:i]
            first, used = i, 0
        used += size
    if len(chosen):
        yield chosen[first:]


class Sequences(NamedTuple):
    """The sequences of a batch as columns [B], and the gold of their examples [E].

    `example`: the number of each sequence's example. `examples` [E]: the numbers of the examples in the order
    of the gold columns.
    """

    prompt: Sequence[Prompt]
    text: Ragged
    pair: Ragged
    example: Longs
    examples: Longs
    gold_anchors: Ragged
    gold_cells: Ragged


def collate(items: Sequence[Piece], special: Special, examples: int) -> Batch:
    """Pad pieces to the longest of them and number their tables.

    Args:
        items: the pieces, in any order.
        examples: how many texts the pieces come from.
    """
    sources = {piece.example: piece.source for piece in items}
    columns = Sequences(
        prompt=[piece.prompt for piece in items],
        text=ragged([piece.source.text for piece in items]),
        pair=ragged([piece.source.pair for piece in items]),
        example=np.array([piece.example for piece in items]),
        examples=np.array(list(sources)),
        gold_anchors=ragged([source.gold_anchors for source in sources.values()]),
        gold_cells=ragged([source.gold_cells for source in sources.values()]),
    )
    return padded(columns, special, examples)


def padded(columns: Sequences, special: Special, examples: int) -> Batch:
    """Pad sequences to the longest of them and number their tables."""
    pair_B, text_B = columns.pair.lengths, columns.text.lengths
    neighbours = [list(run) for _, run in groupby(columns.prompt, id)]  # neighbours mostly share their prompt
    runs, times = [run[0] for run in neighbours], list(map(len, neighbours))
    prompt_B = np.repeat([len(prompt.ids) for prompt in runs], times)
    start_B = prompt_B + pair_B + (pair_B > 0)
    length_B = start_B + text_B + 1
    position_L = np.arange(length_B.max())
    mask_BL = position_L < length_B[:, None]
    ids_BL = np.full(mask_BL.shape, special.pad, np.int64)
    first = 0
    for prompt, count in zip(runs, times, strict=True):
        ids_BL[first : first + count, : len(prompt.ids)] = prompt.ids
        first += count
    ids, row_B = ids_BL.reshape(-1), np.arange(len(ids_BL)) * len(position_L)
    ids[places(row_B + start_B, text_B)] = columns.text.values
    ids[row_B + length_B - 1] = special.sep
    if pair_B.any():
        ids[places(row_B + prompt_B, pair_B)] = columns.pair.values
        ids[(row_B + start_B - 1)[pair_B > 0]] = special.sep
    second_B = prompt_B if special.types else length_B
    types_BL = mask_BL & (position_L >= second_B[:, None])
    tables_B = np.repeat([len(prompt.anchors) for prompt in runs], times)
    piece_T = np.repeat(np.arange(len(tables_B)), tables_B)
    category_T, anchor_T, region_T = (
        np.concatenate([np.tile(of_tables(prompt), count) for prompt, count in zip(runs, times, strict=True)])
        for of_tables in map(attrgetter, ("categories", "anchors", "regions"))
    )
    gold_anchor_T, gold_cells_G3 = _gold(columns, columns.example[piece_T], category_T)
    return Batch(
        ids_BL=torch.from_numpy(ids_BL),
        mask_BL=torch.from_numpy(mask_BL),
        types_BL=torch.from_numpy(types_BL.astype(np.int64)),
        text_start_B=torch.from_numpy(start_B),
        text_length_B=torch.from_numpy(text_B),
        example_B=torch.from_numpy(columns.example),
        piece_T=torch.from_numpy(piece_T),
        anchor_T=torch.from_numpy(anchor_T.astype(np.int64)),
        category_T=torch.from_numpy(category_T.astype(np.int64)),
        region_T=torch.from_numpy(region_T.astype(np.int64)),
        gold_anchor_T=torch.from_numpy(gold_anchor_T),
        gold_cells_G3=torch.from_numpy(gold_cells_G3),
        examples=examples,
    )


def _gold(columns: Sequences, example_T: Longs, category_T: Ids) -> tuple[npt.NDArray[np.float32], Longs]:
    """Return the gold anchors [T] and the gold cells [G, 3], without categories that have no table."""
    anchors, cells = columns.gold_anchors.values, columns.gold_cells.values.astype(np.int64)
    width = 1 + max(map(int, (category_T.max(), anchors.max(initial=0), cells[:, 0].max(initial=0))))
    key_T = example_T * width + category_T
    order_T = np.argsort(key_T, kind="stable")
    keys_T = key_T[order_T]

    def tables(category_G: npt.NDArray[Any], length_E: Longs) -> tuple[Longs, npt.NDArray[np.bool_]]:
        """Return the table of each gold category of the examples, and whether there is one."""
        key_G = np.repeat(columns.examples, length_E) * width + category_G
        place_G = np.minimum(np.searchsorted(keys_T, key_G), len(keys_T) - 1)
        return order_T[place_G], keys_T[place_G] == key_G

    gold_anchor_T = np.zeros(len(key_T), np.float32)
    table, found = tables(anchors, columns.gold_anchors.lengths)
    gold_anchor_T[table[found]] = 1.0
    cells[:, 0], found = tables(cells[:, 0], columns.gold_cells.lengths)
    return gold_anchor_T, cells[found]


def _span_groups(batch: Batch) -> tuple[list[SpanGroup], Tensor]:
    """Return the groups of the span tables, and the span tables [S] ordered by piece and region."""
    table_S = torch.nonzero(batch.region_T & (Region.TRIANGLE | Region.RECTANGLE)).flatten()
    if not len(table_S):
        return [], table_S
    rectangle_S = (batch.region_T[table_S] & Region.RECTANGLE).bool()
    key_S, order = torch.sort(2 * batch.piece_T[table_S] + rectangle_S, stable=True)
    key_P, tables_P = torch.unique_consecutive(key_S, return_counts=True)
    piece_P = key_P // 2
    length_P = batch.text_length_B[piece_P]
    token_P = piece_P * batch.ids_BL.shape[1] + batch.text_start_B[piece_P]
    first_P = tables_P.cumsum(0) - tables_P
    rows = torch.stack([token_P, length_P, first_P, tables_P, key_P % 2], 1).tolist()
    groups = [
        SpanGroup(token, tokens, table, tables, not rectangle) for token, tokens, table, tables, rectangle in rows
    ]
    return groups, table_S[order]
