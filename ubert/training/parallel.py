"""One model on many workers: whole on each of them (`ddp`), or a part on each (`fsdp`). What is saved is whole.

FSDP2 (`fully_shard`; Zhao et al. 2023, "PyTorch FSDP") keeps a worker's part of weights, gradients and optimizer
state, and gathers a layer's weights while it is at work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from ubert.schema.recipe import Parallel


def spread(score: nn.Module, encoder: nn.Module, kind: Parallel, world: int, *, unused: bool) -> nn.Module:
    """A module on all workers, whose gradients are the mean over them.

    Args:
        score: the module that is called, with all that is trained; on this worker's device.
        encoder: the part of it whose layers are gathered one by one.
        unused: not every step trains every weight.
    """
    if world == 1:
        return score
    if kind == "ddp":
        return DistributedDataParallel(score, find_unused_parameters=unused)
    device = next(score.parameters()).device
    mesh = init_device_mesh(device.type, (world,))
    for layer in layers(encoder):
        fully_shard(layer, mesh=mesh)
    fully_shard(score, mesh=mesh)
    return score


def layers(encoder: nn.Module) -> Iterator[nn.Module]:
    """The layers of any encoder: they are its longest list of modules."""
    lists = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    yield from max(lists, key=len, default=nn.ModuleList())


def added_up(score: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
    """While a micro-batch goes forward and backward: with DDP gradients are only exchanged after the last one."""
    return nullcontext() if last or not isinstance(score, DistributedDataParallel) else score.no_sync()


def together(score: nn.Module) -> bool:
    """Whether workers gather weights in each micro-batch, and so need as many of them."""
    return isinstance(score, FSDPModule)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which this worker may have a part; then all workers have to call this."""
    full: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """What this worker keeps of a whole tensor, which all workers have: as much as of `like`."""
    if not isinstance(like, DTensor) or tensor.dim() == 0:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gathered(numbers: list[int], group: dist.ProcessGroup | None) -> list[list[int]]:
    """The numbers of each worker, on the processors: no device waits for it. `group`: None of a worker alone."""
    if group is None:
        return [numbers]
    mine = torch.tensor(numbers)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, mine, group)
    return [of_worker.tolist() for of_worker in every]
