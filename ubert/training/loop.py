"""The training loop: one worker or many, CPU or GPU, free of Ray.

A step takes one global batch, of one objective, of which each worker has a share, in micro-batches. Each loss of
the objective is a sum over all texts (or masked tokens), divided once by their number, so it doesn't matter how
texts fall on workers and micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, cast

import torch
import torch.distributed as dist
import xxhash
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from ubert.model import cells, pointer
from ubert.model.batch import Batch
from ubert.model.cloze import ClozeBatch
from ubert.model.masked_lm import MaskedBatch
from ubert.model.pointer import PointerBatch
from ubert.model.precision import runs_bf16
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertConfig, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe
from ubert.training import checkpoint, log, mlflow_log, not_finite, parallel, run_directory
from ubert.training.average import Average, advance, start
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
    group: dist.ProcessGroup | None  # of all workers' processors; None of one alone
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


class Agreed(NamedTuple):
    """Of one step, over all workers, and known before it: what each loss is divided by, tokens without padding,
    micro-batches of the worker that has most, whether anyone asks to stop."""

    counts: list[int]
    tokens: int
    batches: int
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
                numbers = loss, rate, norm, tokens, tokens / seconds, seconds, metrics
                tell(log.Row(done, total, step.objective, *numbers))
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
    if recipe.compile:
        for layer in parallel.layers(model.encoder):
            layer.compile(dynamic=True)  # sizes are variables of one graph, which the layers share
    score = parallel.spread(
        SummedLoss(model, recipe),
        model.encoder,
        recipe.parallel,
        worker.world,
        unused=recipe.masks,  # each objective leaves the other's head without a gradient
    )
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
        score=score,
        group=dist.new_group(backend="gloo") if worker.world > 1 else None,
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
    """Model and loss in one forward pass, of which DDP and FSDP have to see the whole."""

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
    half = runs_bf16(recipe.precision, worker.device)
    agreed = agree(training, step, stop)
    counts = torch.tensor(agreed.counts, device=worker.device)
    losses: list[Tensor] = []
    batches = agreed.batches if parallel.together(training.score) else len(step.batches)
    for number in range(batches):
        own = number < len(step.batches)
        batch = step.batches[number if own else -1]  # once more and for nothing, while others have work
        torch.manual_seed(keyed_seed(recipe.seed, index, worker.rank, number))  # of dropout
        with parallel.added_up(training.score, last=number + 1 == batches):
            with torch.autocast(worker.device.type, torch.bfloat16, enabled=half):
                summed = training.score(batch.to(worker.device))
            # gradients are the mean over workers, of sums that are divided by the numbers of all workers
            (summed * (own * worker.world / counts)).sum().backward()
        if own:
            losses.append(summed.detach())
    total = torch.stack(losses).double().sum(dim=0)
    if worker.world > 1:
        dist.all_reduce(total)
    loss = float((total / counts).sum())
    if not math.isfinite(loss):
        raise not_finite.error(recipe, index, step, worker.device, f"the loss is {loss}", losses)
    return Totals(loss, agreed.tokens, agreed.stop)


def agree(training: Training, step: Step, stop: bool) -> Agreed:
    """What all workers have to know of a step. Losses are divided by texts; or by sequences that are pointed into;
    or by masked tokens, and one more than those that are predicted from boundaries (as SpanBERT's released code has
    it: there may be none)."""
    of_each = [batch.counts for batch in step.batches if not isinstance(batch, Batch)]
    counts = [sum(of_loss) for of_loss in zip(*of_each, strict=True)]
    tokens = sum(int(batch.mask_BL.sum()) for batch in step.batches)
    every = parallel.gathered([tokens, len(step.batches), stop, *counts], training.group)
    tokens_W, batches_W, stop_W, *counts_W = zip(*every, strict=True)
    counts = [sum(of_loss) + more for more, of_loss in enumerate(counts_W)]
    return Agreed(counts or [step.examples], sum(tokens_W), max(batches_W), any(stop_W))


def update(training: Training, index: int, step: Step) -> tuple[float, float]:
    """Clip the gradients and take the optimizer's step; returns the gradient's norm and the encoder's rate.

    Raises:
        UserError: a gradient is not finite; no weight has changed.
    """
    recipe, optimizer = training.recipe, training.optimizer
    norm = float(parallel.whole(clip_grad_norm_(training.model.parameters(), recipe.clip)))
    if not math.isfinite(norm):
        what = f"the gradient's norm is {norm}"
        raise not_finite.error(recipe, index, step, training.worker.device, what)
    rate = set_rates(optimizer, share_of_peak(index, training.loader.total_steps, recipe))
    optimizer.step()
    optimizer.zero_grad()
    if training.average is not None and recipe.ema:
        advance(training.average, training.model, recipe.ema, index + 1)
    return norm, rate


def keyed_seed(*parts: int) -> int:
    """A 63-bit seed that depends on all parts and on nothing else."""
    return xxhash.xxh3_64_intdigest(repr(parts).encode()) >> 1


def save(training: Training) -> None:
    """Have a checkpoint written by rank 0, to whom the others hand their parts."""
    tensors = checkpoint.tensors(training.model, training.optimizer, training.average)
    if training.worker.rank == 0:
        training.writer.save(training.model, training.tokenizer, tensors, training.state)
        return
    for tensor in (*tensors.weights.values(), *tensors.states.values()):
        parallel.whole(tensor)


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
    """Metrics after step `done`, where the recipe wants them, of a copy on rank 0; the others go on to the next
    step."""
    every, best = training.recipe.evaluate_every, training.recipe.keep_best
    if measure is None or every is None or done % every:
        return None
    tensors = checkpoint.tensors(training.model, training.optimizer, training.average)
    weights = {name: parallel.whole(tensor) for name, tensor in tensors.weights.items()}
    if training.worker.rank > 0:
        return None
    copy = UbertModel(deepcopy(cast(UbertConfig, training.model.config)))
    copy.load_state_dict(weights)
    metrics = measure(copy.to(training.worker.device), training.tokenizer)  # type: ignore[arg-type]
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
    with ExitStack() as stack:
        tells = [stack.enter_context(log.logging_to(training.run, training.state.step))]
        if training.recipe.mlflow:
            tells.append(stack.enter_context(mlflow_log.logging_to(training.run, training.recipe)))
        if training.worker.progress:
            tells.append(stack.enter_context(log.progress()))

        def tell(row: log.Row) -> None:
            for each in tells:
                each(row)

        yield tell


def _finish(training: Training) -> Path:
    directory = training.run / "checkpoints" / f"step-{training.state.step:06}"
    training.writer.wait()
    if training.worker.rank == 0:
        run_directory.finish(training.run, training.state, directory)
    if training.worker.world > 1:
        dist.barrier()
    return directory
