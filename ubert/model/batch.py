"""Examples to pieces to one padded batch: the sequences of section 3 of the UBERT paper, and ours.

stacked (the paper): [CLS] t [SEP] c_j [SEP] (pair [SEP]) text [SEP]                one category a sequence
joint   (ours):      [CLS] t [SEP] [C] c_1 [C] c_2 ... [C] c_k [SEP] (pair [SEP]) text [SEP]

One category of one piece is one table. A table has an anchor cell, (CLS, CLS) or the cell of the category's own
marker, and a text region: token i of the text is row and column i.

Shapes: B pieces, L padded tokens of a piece, T tables, G gold cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields
from enum import IntFlag
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ubert.schema.recipe import Layout

Ids = npt.NDArray[np.int32]


class Region(IntFlag):
    """Cells of a table that are trained on and decoded."""

    ANCHOR = 1  # the one anchor cell
    TRIANGLE = 2  # start <= end over the text
    RECTANGLE = 4  # every cell over the text


class Special(NamedTuple):
    """Ids of the tokens that a piece is built with. `types`: the encoder knows two segment types."""

    cls: int
    sep: int
    pad: int
    marker: int
    types: bool


@dataclass(slots=True)
class Example:
    """One text (or a window of it) tokenised once, with its candidate categories and its gold cells.

    `gold_anchors` [a]: categories that hold at their anchor. `gold_cells` [g, 3]: category, start token, end
    token (inclusive), counted within `text`.
    """

    instruction: Ids
    categories: Sequence[Ids]
    text: Ids
    pair: Ids
    region: Region
    gold_anchors: Ids
    gold_cells: Ids


@dataclass(slots=True)
class Piece:
    """One sequence: `categories` [k] are the indices of its categories in its example."""

    example: int
    prompt: Ids
    anchors: Ids
    categories: Ids
    pair: Ids
    text: Ids
    region: Region
    gold_anchors: Ids
    gold_cells: Ids

    def __len__(self) -> int:
        pair = len(self.pair) + 1 if len(self.pair) else 0
        return len(self.prompt) + pair + len(self.text) + 1


@dataclass(slots=True)
class Batch:
    """Pieces, padded. Positions count from the piece's first token; cells from the first token of its text."""

    ids_BL: Tensor  # int64
    mask_BL: Tensor  # bool
    types_BL: Tensor  # int64
    text_start_B: Tensor  # int64
    text_length_B: Tensor  # int64
    example_B: Tensor  # int64: which example a piece belongs to
    piece_T: Tensor  # int64: which piece a table belongs to; ascending
    anchor_T: Tensor  # int64: position of its anchor in that piece
    category_T: Tensor  # int64: index of its category in its example
    region_T: Tensor  # int64: Region flags
    gold_anchor_T: Tensor  # float32: 1 where the category holds at its anchor
    gold_cells_G3: Tensor  # int64: table, start, end (inclusive)
    examples: int  # texts in the batch: what a loss is divided by

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; copies overlap where memory is pinned."""
        moved = copy(self)
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                setattr(moved, f.name, value.to(device, non_blocking=True))
        return moved


class Prompt(NamedTuple):
    """What goes before a text: `ids` up to and with the [SEP] after the categories, and the position of the anchor
    of each of the `categories` [k] (indices in the example)."""

    ids: Ids
    anchors: Ids
    categories: Ids


def prompt(instruction: Ids, categories: Sequence[Ids], chosen: Ids, layout: Layout, special: Special) -> Prompt:
    """Build the prompt of the chosen categories."""
    ids = [special.cls, *instruction.tolist(), special.sep]
    anchors = []
    for i in chosen.tolist():
        if layout == "joint":
            anchors.append(len(ids))
            ids.append(special.marker)
        else:
            anchors.append(0)
        ids.extend(categories[i].tolist())
    ids.append(special.sep)
    return Prompt(np.array(ids, np.int32), np.array(anchors, np.int32), chosen)


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
    """Split an example's categories (or those of `only`) over as few pieces as the limits allow.

    Args:
        index: position of the example in its batch.
        most_categories: of a joint piece; a stacked piece has one.
        most_tokens: of a piece, all included: the encoder's number of positions.
        only: indices of the categories to use, ascending.

    Raises:
        ValueError: text, pair and one category don't fit into `most_tokens`.
    """
    after = len(example.text) + len(example.pair) + (len(example.pair) > 0) + 1
    most = 1 if layout == "stacked" else most_categories
    chosen = np.arange(len(example.categories), dtype=np.int32) if only is None else only
    for group in groups(example.instruction, example.categories, chosen, most, most_tokens - after):
        yield piece(example, index, prompt(example.instruction, example.categories, group, layout, special))


def groups(instruction: Ids, categories: Sequence[Ids], chosen: Ids, most: int, room: int) -> Iterator[Ids]:
    """Split the chosen categories into groups of at most `most` whose prompt has at most `room` tokens.

    Raises:
        ValueError: the prompt of a single category has more.
    """
    sizes = [len(categories[i]) + 1 for i in chosen.tolist()]
    room -= len(instruction) + 3
    first = used = 0
    for i, size in enumerate(sizes):
        if size > room:
            raise ValueError(
                f"a category of {size - 1} tokens doesn't fit beside its text: it has room for {room - 1}; "
                "lower max_tokens"
            )
        if i > first and (i - first == most or used + size > room):
            yield chosen[first:i]
            first, used = i, 0
        used += size
    if len(chosen):
        yield chosen[first:]


def piece(example: Example, index: int, front: Prompt) -> Piece:
    """One sequence of an example, with the gold cells of its prompt's categories."""
    whole = len(front.categories) == len(example.categories)
    anchors, cells = example.gold_anchors, example.gold_cells
    if not whole:
        place = np.full(len(example.categories), -1, np.int32)
        place[front.categories] = np.arange(len(front.categories), dtype=np.int32)
        anchors = place[anchors]
        anchors = anchors[anchors >= 0]
        if len(cells):
            category = place[cells[:, 0]]
            cells = np.column_stack([category, cells[:, 1:]])[category >= 0]
    return Piece(
        example=index,
        prompt=front.ids,
        anchors=front.anchors,
        categories=front.categories,
        pair=example.pair,
        text=example.text,
        region=example.region,
        gold_anchors=anchors,
        gold_cells=cells,
    )


def collate(items: Sequence[Piece], special: Special, examples: int) -> Batch:
    """Pad pieces to the longest of them and number their tables.

    Args:
        items: pieces in order of their example.
        examples: how many texts the pieces come from.
    """
    longest = max(len(piece) for piece in items)
    ids = np.full((len(items), longest), special.pad, np.int64)
    types = np.zeros((len(items), longest), np.int64)
    mask = np.zeros((len(items), longest), np.bool_)
    starts = np.empty(len(items), np.int64)
    for row, piece in enumerate(items):
        at = len(piece.prompt)
        ids[row, :at] = piece.prompt
        if len(piece.pair):
            ids[row, at : at + len(piece.pair)] = piece.pair
            at += len(piece.pair) + 1
            ids[row, at - 1] = special.sep
        end = at + len(piece.text)
        ids[row, at:end] = piece.text
        ids[row, end] = special.sep
        mask[row, : end + 1] = True
        starts[row] = at
        if special.types:
            types[row, len(piece.prompt) : end + 1] = 1
    counts = np.array([len(piece.anchors) for piece in items])
    first = np.concatenate([[0], np.cumsum(counts)])
    gold_anchor = np.zeros(first[-1], np.float32)
    cells = []
    for row, piece in enumerate(items):
        gold_anchor[first[row] + piece.gold_anchors] = 1.0
        if len(piece.gold_cells):
            cells.append(piece.gold_cells + np.array([first[row], 0, 0]))
    return Batch(
        ids_BL=torch.from_numpy(ids),
        mask_BL=torch.from_numpy(mask),
        types_BL=torch.from_numpy(types),
        text_start_B=torch.from_numpy(starts),
        text_length_B=torch.tensor([len(piece.text) for piece in items]),
        example_B=torch.tensor([piece.example for piece in items]),
        piece_T=torch.from_numpy(np.repeat(np.arange(len(items)), counts)),
        anchor_T=torch.from_numpy(np.concatenate([piece.anchors for piece in items]).astype(np.int64)),
        category_T=torch.from_numpy(np.concatenate([piece.categories for piece in items]).astype(np.int64)),
        region_T=torch.from_numpy(np.repeat([int(piece.region) for piece in items], counts)),
        gold_anchor_T=torch.from_numpy(gold_anchor),
        gold_cells_G3=torch.from_numpy(
            np.concatenate(cells).astype(np.int64) if cells else np.empty((0, 3), np.int64)
        ),
        examples=examples,
    )
