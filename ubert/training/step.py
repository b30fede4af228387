"""One training step: the gradients of a global batch over all workers, then the optimizer's step.

No step waits for its device. Workers exchange what they need to know of each other between CPUs, before the
step. Its loss and gradient norm are read later; if they are not finite, the device itself skips the update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
import torch.distributed as dist
import xxhash
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from ubert.encoder.precision import runs_bf16
from ubert.loader.loader import AnyBatch, Loader, Step
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.spanbert.masked_lm import MaskedBatch
from ubert.spexbert import pointer
from ubert.spexbert.pointer import PointerBatch
from ubert.structure import cells
from ubert.structure.batch import Batch
from ubert.training import nan_guard, parallel
from ubert.training.average import Average, advance
from ubert.training.checkpoints.checkpoint import State
from ubert.training.checkpoints.saving import Writer
from ubert.training.dynamics import Passes
from ubert.training.optimizer import set_rates, share_of_peak
from ubert.unilm.cloze import ClozeBatch


class Worker(NamedTuple):
    """One of `world` training processes. If there are several, torch.distributed must already be initialised.

    `progress`: whether rank 0 shows progress.
    """

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")
    progress: bool = True


ALONE = Worker()


@dataclass(slots=True)
class Training:
    """The components and the state of a run."""

    recipe: Recipe
    run: Path
    worker: Worker
    tokenizer: Tokenizer
    loader: Loader
    model: UbertModel
    optimizer: torch.optim.AdamW
    score: nn.Module  # batch -> summed losses
    group: dist.ProcessGroup | None  # all workers, on their CPUs; None for one worker
    average: Average | None
    passes: Passes | None  # training dynamics, if the recipe has `dynamics`
    state: State
    writer: Writer


class Agreed(NamedTuple):
    """Numbers of a step over all workers, known before it starts: the divisor of each loss, tokens without
    padding, the largest number of micro-batches of a worker, and whether any worker asks to stop."""

    counts: list[int]
    tokens: int
    batches: int
    stop: bool


class Totals(NamedTuple):
    """Results of a step. The device may still be computing the tensors.

    `loss`: the mean over all workers' texts (or masked tokens). `losses`: the losses of this worker's
    micro-batches. `tables`: the losses and anchor scores of their structure tables. `tokens` and `stop` are
    as in `Agreed`.
    """

    loss: Tensor
    losses: list[Tensor]
    tables: list[Tensor]
    tokens: int
    stop: bool


class StepResult:
    """A step that was taken, and its numbers, which may still be on their way from the device."""

    def __init__(self, index: int, step: Step, totals: Totals, norm: Tensor, rate: float) -> None:
        self.index, self.step, self.totals, self.rate = index, step, totals, rate
        self._numbers = torch.stack([totals.loss, norm.double()]).to("cpu", non_blocking=True)
        self.tables = [table.to("cpu", non_blocking=True) for table in totals.tables]
        self._done = perf_counter()
        self._arrived: torch.cuda.Event | None = None
        if norm.is_cuda:
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def numbers(self, recipe: Recipe, device: torch.device) -> tuple[float, float, float]:
        """Return the loss, the gradient norm, and when the step ended by `perf_counter`.

        Raises:
            UserError: loss or norm are not finite; the step has changed no weight.
        """
        if self._arrived:
            self._arrived.synchronize()
            self._done = perf_counter()
        loss, norm = self._numbers.tolist()
        if not math.isfinite(loss):
            raise nan_guard.error(recipe, self.index, self.step, device, f"the loss is {loss}", self.totals.losses)
        if not math.isfinite(norm):
            raise nan_guard.error(recipe, self.index, self.step, device, f"the gradient's norm is {norm}")
        return loss, norm, self._done


def run_step(training: Training, index: int, step: Step, *, stop: bool = False) -> StepResult:
    """Take step `index` (from 0).

    Raises:
        UserError: the device's memory runs out.
    """
    try:
        totals = accumulate(training, index, step, stop=stop)
        return StepResult(index, step, totals, *update(training, index))
    except torch.OutOfMemoryError as error:
        reason = ". ".join(str(error).split(". ")[:2])
        raise UserError(
            f"step {index + 1}: {reason}; lower tokens_per_step ({training.recipe.tokens_per_step}), which leaves "
            "the batches as they are, then run the same command again"
        ) from None


class SummedLoss(nn.Module):
    """Model and loss in one forward pass, because DDP and FSDP must wrap both."""

    def __init__(self, model: UbertModel, recipe: Recipe) -> None:
        super().__init__()
        self.model, self.recipe = model, recipe
        self.of_words = 1 / math.log(len(model.word_vectors)) if recipe.loss_scale == "log" else 1.0

    def forward(self, batch: AnyBatch) -> tuple[Tensor, Tensor | None]:
        """Return the losses of a micro-batch [1 or 2], each summed over its texts, sequences or masked tokens.

        If the recipe has `dynamics`, also return the loss and the anchor's score of each structure table [2,
        T].
        """
        if isinstance(batch, PointerBatch):
            return pointer.loss(self.model.pointed(batch), batch, self.recipe.loss_scale).reshape(1), None
        if isinstance(batch, ClozeBatch):
            return self.of_words * self.model.cloze_loss(batch).reshape(1), None
        if isinstance(batch, MaskedBatch):
            return self.of_words * self.model.masked_losses(batch), None
        scores = self.model(batch)
        summed, part_T = cells.losses(scores, batch, self.recipe.loss_scale, self.recipe.loss)
        tables = torch.stack([part_T, scores.anchor_T.detach()]) if self.recipe.dynamics else None
        return summed.reshape(1), tables


def accumulate(training: Training, index: int, step: Step, *, stop: bool = False) -> Totals:
    """Compute the gradients of one global batch's mean losses. They are averaged over workers, so equal on
    all of them."""
    recipe, worker = training.recipe, training.worker
    half = runs_bf16(recipe.precision, worker.device)
    agreed = agree(training, step, stop)
    losses: list[Tensor] = []
    tables: list[Tensor] = []
    batches = agreed.batches if parallel.gathers_weights(training.score) else len(step.batches)
    for number in range(batches):
        own = number < len(step.batches)
        batch = step.batches[number if own else -1]  # repeated and discarded while other workers still have some
        torch.manual_seed(keyed_seed(recipe.seed, index, worker.rank, number))  # for dropout
        with parallel.accumulate_gradients(training.score, last=number + 1 == batches):
            with torch.autocast(worker.device.type, torch.bfloat16, enabled=half):
                summed, of_tables = training.score(batch.to(worker.device))
            # DDP and FSDP average over workers, but the counts cover all of them: multiply by `world`
            _mean(summed * (own * worker.world), agreed.counts).backward()
        if own:
            losses.append(summed.detach())
            tables += [] if of_tables is None else [of_tables]
    total = torch.stack(losses).double().sum(dim=0)
    if worker.world > 1:
        dist.all_reduce(total)
    return Totals(_mean(total, agreed.counts), losses, tables, agreed.tokens, agreed.stop)


def _mean(summed: Tensor, counts: list[int]) -> Tensor:
    """Sum the losses, each divided by its count."""
    return torch.stack([loss / count for loss, count in zip(summed.unbind(), counts, strict=True)]).sum()


def agree(training: Training, step: Step, stop: bool) -> Agreed:
    """Exchange what all workers must know of a step.

    A loss is divided by its number of texts, of sequences to point into, or of masked tokens. SpanBERT's loss
    from span boundaries is divided by one more than its number, which may be 0, as in SpanBERT's released
    code.
    """
    of_each = [batch.counts for batch in step.batches if not isinstance(batch, Batch)]
    counts = [sum(of_loss) for of_loss in zip(*of_each, strict=True)]
    tokens = sum(int(batch.mask_BL.sum()) for batch in step.batches)
    every = parallel.gathered([tokens, len(step.batches), stop, *counts], training.group)
    tokens_W, batches_W, stop_W, *counts_W = zip(*every, strict=True)
    counts = [sum(of_loss) + more for more, of_loss in enumerate(counts_W)]
    return Agreed(counts or [step.examples], sum(tokens_W), max(batches_W), any(stop_W))


def update(training: Training, index: int) -> tuple[Tensor, float]:
    """Clip the gradients and take the optimizer's step, which does nothing if they are not finite.

    Returns:
        The gradient norm, and the encoder's learning rate.
    """
    recipe, optimizer = training.recipe, training.optimizer
    norm = parallel.full_tensor(clip_grad_norm_(training.model.parameters(), recipe.clip))
    rate = set_rates(optimizer, share_of_peak(index, training.loader.total_steps, recipe))
    optimizer.found_inf = norm.isfinite().logical_not().float()  # type: ignore[attr-defined]  # as a GradScaler does
    optimizer.step()
    optimizer.zero_grad()
    if training.average is not None and recipe.ema:
        advance(training.average, training.model, recipe.ema, index + 1)
    return norm, rate


def keyed_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on all parts and on nothing else."""
    return xxhash.xxh3_64_intdigest(repr(parts).encode()) >> 1
