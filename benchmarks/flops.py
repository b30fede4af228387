"""Floating-point operations of a training step, and the minimum time of a GPU for it (roofline).

Only matrix products count, with two operations per multiply-add. A backward pass takes twice the operations of the
forward pass. Padding does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

ADAMW = 28  # bytes per weight: weight and two moments read and written, the gradient read; all float32


class Encoder(NamedTuple):
    """Sizes of a BERT-like encoder: layers, width D, width of the feed-forward network."""

    layers: int
    width: int
    inner: int


class Table(NamedTuple):
    """Sizes of the structure table: width d, and whether markers condition it (joint)."""

    size: int
    conditioned: bool


@dataclass(frozen=True)
class Flops:
    """Operations of a step, forward and backward: the encoder's weights, its attention, and the head."""

    weights: int
    attention: int
    head: int

    @property
    def total(self) -> int:
        return self.weights + self.attention + self.head


class Gpu(NamedTuple):
    """Peak dense bfloat16 operations and memory bytes per second, by the manufacturer's data sheet."""

    flops: float
    bandwidth: float


GPUS = {
    "A100": Gpu(312e12, 2.0e12),
    "H100": Gpu(989e12, 3.35e12),
    "H200": Gpu(989e12, 4.8e12),
    "L4": Gpu(121e12, 0.3e12),
}
"""Part of the device's name -> its peaks."""


def of_step(
    encoder: Encoder, table: Table, lengths: Sequence[int], texts: Sequence[int], categories: Sequence[int]
) -> Flops:
    """Count the operations for a batch of sequences.

    Args:
        lengths: tokens of each sequence, prompt included.
        texts: tokens of each sequence's text; a table covers the triangle of its cells.
        categories: tables of each sequence.
    """
    tokens, tables = sum(lengths), sum(categories)
    width, size = encoder.width, table.size
    weights = 2 * tokens * encoder.layers * (4 * width**2 + 2 * width * encoder.inner)
    attention = sum(4 * encoder.layers * length**2 * width for length in lengths)
    networks = 2 * 2 * (tokens + tables) * width * size + 2 * (tokens + tables) * size**2
    conditioning = 2 * tables * width * 3 * size if table.conditioned else 0
    cells = sum(2 * size * count * text * (text + 1) // 2 for text, count in zip(texts, categories, strict=True))
    return Flops(3 * weights, 3 * attention, 3 * (networks + conditioning + cells))


def least_seconds(flops: Flops, weights: int, gpu: Gpu) -> float:
    """Return the roofline time: the operations at the GPU's peak, plus the optimizer's bytes at full bandwidth."""
    return flops.total / gpu.flops + ADAMW * weights / gpu.bandwidth
