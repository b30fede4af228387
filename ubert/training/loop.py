"""The training loop: one worker or many, CPU or GPU, free of Ray.

A step takes one global batch, of one objective, of which each worker has a share, in micro-batches. Each loss of
the objective is a sum over all texts (or masked tokens), divided once by their number, so it doesn't matter how
texts fall on workers and micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
import torch.distributed as dist
import xxhash
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from ubert.model import cells, pointer
from ubert.model.batch import Batch
from ubert.model.cloze import ClozeBatch
from ubert.model.masked_lm import MaskedBatch
from ubert.model.pointer import PointerBatch
from ubert.model.precision import runs_bf16
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe
from ubert.training import checkpoint, log, not_finite, run_directory
from ubert.training.average import Average, advance, in_place, start
from ubert.training.checkpoint import State
from ubert.training.loader import AnyBatch, Loader, Step
from ubert.training.optimizer import adamw, decay_start, set_rates, share_of_peak
from ubert.training.saving import Writer
from ubert.training.shards import open_shards


class Worker(NamedTuple):
    """This process among `world`. Where that is more than one, torch.distributed is initialised already.

    `progress`: rank 0 shows it.
    """

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")
    progress: bool = True


ALONE = Worker()


@dataclass(slots=True)
class Training:
    """A run at work: what it is made of, and where it is."""

    recipe: Recipe
    run: Path
    worker: Worker
    tokenizer: Tokenizer
    loader: Loader
    model: UbertModel
    optimizer: torch.optim.AdamW
    score: nn.Module  # batch -> summed losses
    average: Average | None
    state: State
    writer: Writer


Measure = Callable[[UbertModel, Tokenizer], dict[str, float]]
"""Metrics of a model, by `<corpus>/<split>/<metric>`."""


class Totals(NamedTuple):
    """Of one step, over all workers: the loss of a text (or of masked tokens), tokens without padding, whether
    anyone asks to stop."""

    loss: float
    tokens: int
    stop: bool


def train(
    recipe: Recipe,
    *,
    shards: Path,
    run: Path,
    worker: Worker = ALONE,
    resume: bool = False,
    measure: Measure | None = None,
) -> Path:
    """Train to the recipe's last step, from the run's last checkpoint where it has one.

    Stopped and started again, a run sees the same batches and takes the same steps, dropout included, as one that
    was never stopped. With another number of workers its batches are the same, its dropout masks are not.

    Args:
        shards: a directory of shards.
        run: the run's directory.
        resume: go on from a checkpoint, which has to be there; `steps` and `epochs` may differ from before.
        measure: what measures the model, where the recipe has `evaluate_every`.

    Returns:
        The directory of the last checkpoint.

    Raises:
        UserError: the run cannot be made or gone on with, or its loss is not finite.
        KeyboardInterrupt: it was asked to stop (SIGINT, SIGTERM, or a file `stop` in the run's directory), and has
            written a checkpoint.
    """
    if recipe.evaluate_every and measure is None:
        raise UserError(
            f"recipe {recipe.name}: evaluate_every needs a store's corpora; train with `ubert pretrain`"
        )
    with ExitStack() as stack:
        if worker.rank == 0:
            stack.enter_context(run_directory.locked(run))
        training = set_up(recipe, shards, run, worker, resume)
        stack.callback(training.writer.close)
        total = training.loader.total_steps
        with _telling(training) as tell, run_directory.stopping(run) as asked:
            started = perf_counter()
            for index, step in enumerate(training.loader.iterate(training.state.step), training.state.step):
                loss, tokens, stop = accumulate(training, index, step, stop=asked())
                norm, rate = update(training, index, step)
                done, seconds = index + 1, perf_counter() - started
                metrics = _measured(training, done, measure)
                training.state = _advanced(training.state, loss, tokens, seconds, metrics)
                tell(log.Row(done, total, loss, rate, norm, tokens, tokens / seconds, seconds, metrics))
                if stop or done == total or done % recipe.checkpoint_every == 0 or (metrics and recipe.keep_best):
                    save(training)
                training.writer.check()
                if stop and done < total:
                    training.writer.wait()
                    raise KeyboardInterrupt(f"stopped after step {done} of {total}; the same command goes on")
                started = perf_counter()
        return _finish(training)


def set_up(recipe: Recipe, shards: Path, run: Path, worker: Worker, resume: bool) -> Training:
    """A new run, or one as its last checkpoint has left it. Rank 0 writes and checks; the others wait for it."""
    tokenizer = load_tokenizer(recipe.encoder)
    opened = open_shards(shards, verify=worker.rank == 0)
    made_of = opened.manifest.fingerprint
    if worker.rank == 0:
        run_directory.check(run, recipe, made_of, tokenizer.hash, resume=resume)
        run_directory.start(run, recipe)
    if worker.world > 1:
        dist.barrier()
    began = checkpoint.latest(run)
    directory = began or run_directory.origin(run, recipe, made_of, tokenizer.hash)
    ancestor = None if directory else run_directory.ancestor(run, recipe, tokenizer.hash)
    model = UbertModel.load(directory) if directory else _new_model(recipe, tokenizer, ancestor)
    model.to(worker.device).train()  # type: ignore[arg-type]
    optimizer = adamw(model, recipe)
    average = start(model) if recipe.ema else None
    if directory:
        checkpoint.load_training(directory, model, optimizer)
        state = checkpoint.read_state(directory).model_copy(update={"recipe": recipe})
    else:
        state = State(
            step=0,
            tokens=0,
            seconds=0.0,
            loss=None,
            recipe=recipe,
            shards=made_of,
            tokenizer=tokenizer.hash,
            ancestry=run_directory.ancestry(ancestor) if ancestor else [],
        )
    score: nn.Module = SummedLoss(model, recipe)
    training = Training(
        recipe=recipe,
        run=run,
        worker=worker,
        tokenizer=tokenizer,
        loader=Loader(
            opened,
            recipe,
            tokenizer.special,
            model.most_tokens,
            worker.rank,
            worker.world,
            words=tokenizer.for_masking() if recipe.masks else None,
            phrases=tokenizer.for_pointing() if recipe.points else None,
        ),
        model=model,
        optimizer=optimizer,
        # each objective leaves the other's head without a gradient
        score=DistributedDataParallel(score, find_unused_parameters=recipe.masks) if worker.world > 1 else score,
        average=average,
        state=state,
        writer=Writer(run, recipe.keep_checkpoints, recipe.keep_best),
    )
    if began is None:
        _check_start(training)
        save(training)  # the model before training, to compare with
        training.writer.wait()
    return training


def _check_start(training: Training) -> None:
    """Refuse to begin with a step that the recipe would train otherwise."""
    recipe, step, total = training.recipe, training.state.step, training.loader.total_steps
    last = decay_start(total, recipe) if recipe.schedule == "wsd" else total - 1
    if step > last:
        raise UserError(
            f"recipe {recipe.name}: continue_from {recipe.continue_from} is after step {last}, the last of "
            f"{total} before the {'decay' if recipe.schedule == 'wsd' else 'end'}; raise steps or lower decay"
        )


class SummedLoss(nn.Module):
    """Model and loss in one forward pass, of which DDP has to see the whole."""

    def __init__(self, model: UbertModel, recipe: Recipe) -> None:
        super().__init__()
        self.model = model
        self.recipe = recipe

    def forward(self, batch: AnyBatch) -> Tensor:
        """The losses of a micro-batch [1 or 2], each summed over its texts, sequences or masked tokens."""
        if isinstance(batch, PointerBatch):
            return pointer.loss(self.model.pointed(batch), batch, self.recipe.loss_scale).reshape(1)
        if isinstance(batch, ClozeBatch):
            return self.model.cloze_loss(batch).reshape(1)
        if isinstance(batch, MaskedBatch):
            return self.model.masked_losses(batch)
        return cells.loss(self.model(batch), batch, self.recipe.loss_scale, self.recipe.loss)[0].reshape(1)


def accumulate(training: Training, index: int, step: Step, *, stop: bool = False) -> Totals:
    """Gradients of one global batch's mean losses, averaged over workers: equal on all of them.

    Raises:
        UserError: the loss is not finite.
    """
    recipe, worker = training.recipe, training.worker
    parallel = training.score if isinstance(training.score, DistributedDataParallel) else None
    half = runs_bf16(recipe.precision, worker.device)
    counts = _counts(step, worker)
    losses: list[Tensor] = []
    totals = torch.zeros(2, dtype=torch.float64, device=worker.device)
    for number, batch in enumerate(step.batches):
        torch.manual_seed(keyed_seed(recipe.seed, index, worker.rank, number))  # of dropout
        last = number + 1 == len(step.batches)
        with nullcontext() if last or parallel is None else parallel.no_sync():
            with torch.autocast(worker.device.type, torch.bfloat16, enabled=half):
                summed = training.score(batch.to(worker.device))
            # DDP takes the mean over workers, of sums that are divided by the numbers of all workers
            (summed * (worker.world / counts)).sum().backward()
        losses.append(summed.detach())
        totals[0] += int(batch.mask_BL.sum())
    totals[1] = float(stop)
    totals = torch.cat([torch.stack(losses).double().sum(dim=0), totals])
    if worker.world > 1:
        dist.all_reduce(totals)
    *_, tokens, stops = totals.tolist()
    loss = float((totals[:-2] / counts).sum())
    if not math.isfinite(loss):
        raise not_finite.error(recipe, index, step, worker.device, f"the loss is {loss}", losses)
    return Totals(loss, int(tokens), stops > 0)


def update(training: Training, index: int, step: Step) -> tuple[float, float]:
    """Clip the gradients and take the optimizer's step; returns the gradient's norm and the encoder's rate.

    Raises:
        UserError: a gradient is not finite; no weight has changed.
    """
    recipe, optimizer = training.recipe, training.optimizer
    norm = float(clip_grad_norm_(training.model.parameters(), recipe.clip))
    if not math.isfinite(norm):
        what = f"the gradient's norm is {norm}"
        raise not_finite.error(recipe, index, step, training.worker.device, what)
    rate = set_rates(optimizer, share_of_peak(index, training.loader.total_steps, recipe))
    optimizer.step()
    optimizer.zero_grad()
    if training.average is not None and recipe.ema:
        advance(training.average, training.model, recipe.ema, index + 1)
    return norm, rate


def _counts(step: Step, worker: Worker) -> Tensor:
    """What each loss of a step is divided by, over all workers: texts; or sequences that are pointed into; or
    masked tokens, and one more than those that are predicted from boundaries (as SpanBERT's released code has it:
    there may be none)."""
    if step.objective == "structure":
        return torch.tensor([step.examples], device=worker.device)
    of_each = [batch.counts for batch in step.batches if not isinstance(batch, Batch)]
    counts = torch.tensor(of_each, device=worker.device).sum(dim=0)
    if worker.world > 1:
        dist.all_reduce(counts)
    return counts + torch.arange(len(counts), device=worker.device)


def keyed_seed(*parts: int) -> int:
    """A 63-bit seed that depends on all parts and on nothing else."""
    return xxhash.xxh3_64_intdigest(repr(parts).encode()) >> 1


def save(training: Training) -> None:
    """Have a checkpoint written, by rank 0."""
    if training.worker.rank == 0:
        tensors = checkpoint.tensors(training.model, training.optimizer, training.average)
        training.writer.save(training.model, training.tokenizer, tensors, training.state)


def _new_model(recipe: Recipe, tokenizer: Tokenizer, ancestor: Path | None) -> UbertModel:
    """At step 0: the recipe's encoder with new heads, or an ancestor's weights."""
    return UbertModel.new(
        str(ancestor or encoder_path(recipe.encoder)),
        Shape(
            recipe.layout,
            recipe.table_size,
            recipe.categories_per_piece,
            recipe.max_tokens,
            recipe.lora,
            recipe.masks,
            recipe.generates,
            recipe.points,
        ),
        vocabulary=tokenizer.vocabulary,
        seed=keyed_seed(recipe.seed),
    )


def _measured(training: Training, done: int, measure: Measure | None) -> dict[str, float] | None:
    """Metrics after step `done`, where the recipe wants them, of rank 0; the others go on to the next step."""
    every, best = training.recipe.evaluate_every, training.recipe.keep_best
    if training.worker.rank > 0 or measure is None or every is None or done % every:
        return None
    with in_place(training.average, training.model):
        metrics = measure(training.model, training.tokenizer)
    training.model.train()
    if best and best not in metrics:
        raise UserError(f"keep_best: {best} is not measured; expected one of {', '.join(metrics)}")
    return metrics


def _advanced(state: State, loss: float, tokens: int, seconds: float, metrics: dict[str, float] | None) -> State:
    spent = {"tokens": state.tokens + tokens, "seconds": state.seconds + seconds}
    return state.model_copy(update={"step": state.step + 1, "loss": loss, "metrics": metrics or {}, **spent})


@contextmanager
def _telling(training: Training) -> Iterator[log.Tell]:
    """Rank 0 writes the log and, where it is wanted, shows progress."""
    if training.worker.rank > 0:
        yield lambda row: None
        return
    shown = log.progress() if training.worker.progress else nullcontext(lambda row: None)
    with log.logging_to(training.run, training.state.step) as write, shown as show:

        def tell(row: log.Row) -> None:
            write(row)
            show(row)

        yield tell


def _finish(training: Training) -> Path:
    directory = training.run / "checkpoints" / f"step-{training.state.step:06}"
    training.writer.wait()
    if training.worker.rank == 0:
        run_directory.finish(training.run, training.state, directory)
    if training.worker.world > 1:
        dist.barrier()
    return directory
