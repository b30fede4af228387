"""Batches go to a device whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Movable:
    """A dataclass some of whose fields are tensors."""

    def to(self, device: torch.device | str) -> Self:
        """The same on `device`; the processor goes on where memory is pinned, the device copies in turn."""
        return self.moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Self:
        """The same in memory from which a GPU copies while the processor goes on."""
        return self.moved(Tensor.pin_memory)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Self:
        """The same, of moved tensors."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: move(each) for name, each in values.items() if isinstance(each, Tensor)})
