"""A key-value cache with spare capacity, so that a new token does not copy the whole cache.

Shapes: N beams, H heads, K cached tokens, C new tokens, R capacity in tokens, E width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

SPARE_TOKENS = 64  # spare tokens of a new buffer


class GrowingLayer(DynamicLayer):
    """The cache of one layer. It writes new columns in place, where `DynamicLayer` copies the cache every time."""

    keys: Tensor
    values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.key_room, self.value_room = key_states[:, :, :0], value_states[:, :, :0]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values [N, H, C, E]; return all of them [N, H, K + C, E]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        kept = self.get_seq_length()
        self.key_room = _written(self.key_room, kept, key_states)
        self.value_room = _written(self.value_room, kept, value_states)
        self._look(kept + key_states.shape[2])
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.key_room = self.key_room.index_select(0, beam_idx)
        self.value_room = self.value_room.index_select(0, beam_idx)
        self._look(self.get_seq_length())

    def _look(self, kept: int) -> None:
        self.keys, self.values = self.key_room[:, :, :kept], self.value_room[:, :, :kept]


def _written(room_NHRE: Tensor, kept: int, new_NHCE: Tensor) -> Tensor:
    """Write new columns after the kept ones; return the same buffer, or a larger one if it was full."""
    stop = kept + new_NHCE.shape[2]
    if stop > room_NHRE.shape[2]:
        wider_NHRE = new_NHCE.new_empty(*new_NHCE.shape[:2], stop + SPARE_TOKENS, new_NHCE.shape[3])
        wider_NHRE[:, :, :kept] = room_NHRE[:, :, :kept]
        room_NHRE = wider_NHRE
    room_NHRE[:, :, kept:stop] = new_NHCE
    return room_NHRE
