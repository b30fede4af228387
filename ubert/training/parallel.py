"""Distribute one model over many workers: a whole copy on each (`ddp`), or a part on each (`fsdp`).
Checkpoints are whole.

FSDP2 (`fully_shard`; Zhao et al. 2023, "PyTorch FSDP") keeps a worker's part of weights, gradients and
optimizer state, and gathers a layer's weights while the layer computes.
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

from ubert.model.ubert import UbertModel
from ubert.schema.specs.recipe import Parallel


def distribute(score: nn.Module, encoder: nn.Module, kind: Parallel, world: int, *, unused: bool) -> nn.Module:
    """Distribute a module over all workers. Its gradients become the mean over them.

    Args:
        score: the module to call, with all trained parameters, on this worker's device.
        encoder: the part of it whose layers are gathered one by one.
        unused: whether some steps leave some weights without a gradient.
    """
    return score if world == 1 else wrapped(score, encoder, kind, world, unused=unused)


def wrapped(score: nn.Module, encoder: nn.Module, kind: Parallel, world: int, *, unused: bool) -> nn.Module:
    """Distribute a module in the same way, even over a single worker."""
    if kind == "ddp":
        return DistributedDataParallel(score, find_unused_parameters=unused)
    device = next(score.parameters()).device
    mesh = init_device_mesh(device.type, (world,))
    for layer in layers(encoder):
        fully_shard(layer, mesh=mesh)
    fully_shard(score, mesh=mesh)
    return score


def leaves_unused(model: UbertModel) -> bool:
    """Return whether some trained weights of a model's encoder get no gradient from any text, such as XLNet's
    `mask_emb` and Longformer's global attention. DDP would wait for their gradients."""
    ids_BL = torch.zeros(1, 2, dtype=torch.int64, device=model.device)
    hidden_BLD = model.encode(ids_BL, torch.ones_like(ids_BL, dtype=torch.bool), torch.zeros_like(ids_BL))
    if not hidden_BLD.requires_grad:  # all of it is frozen
        return False
    hidden_BLD.sum().backward()
    unused = any(weight.requires_grad and weight.grad is None for weight in model.encoder.parameters())
    model.zero_grad()
    return unused


def layers(encoder: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of any encoder: the items of its longest module list."""
    lists = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    yield from max(lists, key=len, default=nn.ModuleList())


def accumulate_gradients(score: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
    """Accumulate the gradients of a micro-batch. DDP exchanges them only after the last micro-batch."""
    return nullcontext() if last or not isinstance(score, DistributedDataParallel) else score.no_sync()


def gathers_weights(score: nn.Module) -> bool:
    """Return whether workers gather weights in each micro-batch, and so need equally many micro-batches."""
    return isinstance(score, FSDPModule)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that may be sharded. All workers must call this if it is."""
    full: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full


def local_part(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this worker's part of a whole tensor that all workers have, sharded like `like`."""
    if not isinstance(like, DTensor) or tensor.dim() == 0:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gathered(numbers: list[int], group: dist.ProcessGroup | None) -> list[list[int]]:
    """Return the numbers of each worker. They are exchanged between CPUs, so no device waits. `group`: None
    for one worker."""
    if group is None:
        return [numbers]
    mine = torch.tensor(numbers)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, mine, group)
    return [of_worker.tolist() for of_worker in every]
