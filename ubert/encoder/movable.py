"""Dataclasses of tensors that move to a device as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Movable:
    """A dataclass some of whose fields are tensors."""

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on `device`. With pinned memory, the CPU doesn't wait for the transfer."""
        return self.moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Self:
        """Return a copy in pinned memory, for asynchronous transfers to a GPU."""
        return self.moved(Tensor.pin_memory)

    def moved(self, move: Callable[[Any], Any], kind: type = Tensor) -> Self:
        """Return a copy with `move` applied to each tensor, or to each field of another kind."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: move(each) for name, each in values.items() if isinstance(each, kind)})
