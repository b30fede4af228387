"""The training loop, for one worker or many, on CPU or GPU, without Ray.

Each step (see `step.py`) takes one global batch of one objective. Each worker has a share of it, split into
micro-batches. A loss is the sum over all texts (or masked tokens), divided once by their number. It doesn't
depend on how texts are distributed over workers and micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import cast

import torch.distributed as dist

from ubert.loader.files import Files, Folder
from ubert.loader.loader import Loader
from ubert.loader.prefetch import processes_for
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertConfig, UbertModel, set_dropout
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import parallel, run_directory
from ubert.training.average import start
from ubert.training.checkpoints import checkpoint
from ubert.training.checkpoints.checkpoint import State
from ubert.training.checkpoints.saving import Writer
from ubert.training.dynamics import Passes, remove_after
from ubert.training.logs import log, mlflow_log
from ubert.training.optimizer import adamw, decay_start
from ubert.training.step import ALONE, StepResult, SummedLoss, Training, Worker, keyed_seed, run_step

PATIENCE = timedelta(days=1)  # how long workers wait while rank 0 alone verifies, evaluates or writes
Measure = Callable[[UbertModel, Tokenizer], dict[str, float]]
"""Returns the metrics of a model, by `<corpus>/<split>/<metric>`."""


def train(
    recipe: Recipe,
    *,
    shards: Path | Files,
    run: Path,
    worker: Worker = ALONE,
    resume: bool = False,
    measure: Measure | None = None,
    leaving: Callable[[], bool] = lambda: False,
    written: Callable[[], None] = lambda: None,
) -> Path:
    """Train to the recipe's last step, starting from the run's last checkpoint if there is one.

    A run that is stopped and resumed sees the same batches and takes the same steps, dropout included, as one
    that was never stopped. With another number of workers or other `tokens_per_step`, the batches are the same but
    the dropout masks differ.

    Args:
        shards: a directory of shards, or a `Files` that brings them to the disk.
        run: the run's directory.
        resume: resume from a checkpoint, which must exist; `steps` and `epochs` may differ from before.
        measure: evaluates the model, if the recipe has `evaluate_every`.
        leaving: whether this worker's machine is about to be taken away.
        written: rank 0 calls it when a checkpoint, or the finished run's manifest, is on the disk. The other ranks
            call it when their training dynamics are.

    Returns:
        The directory of the last checkpoint.

    Raises:
        UserError: the run cannot be started or resumed, or its loss is not finite.
        KeyboardInterrupt: the run was stopped (SIGINT, SIGTERM, a file `stop` in the run's directory, or a worker
            that is `leaving`), and has written a checkpoint.
    """
    if recipe.evaluate_every and measure is None:
        raise UserError(
            f"recipe {recipe.name}: evaluate_every needs a store's corpora; train with `ubert pretrain`"
        )
    with ExitStack() as stack:
        if worker.rank == 0:
            stack.enter_context(run_directory.locked(run))
        training = set_up(recipe, shards, run, worker, resume, written)
        stack.callback(training.writer.close)
        total = training.loader.total_steps
        with _logging(training) as log_row, run_directory.stopping(run) as stop_requested:
            began = perf_counter()
            behind: StepResult | None = None  # the step before, whose numbers are read while the device computes
            for index, step in enumerate(training.loader.iterate(training.state.step), training.state.step):
                result = run_step(training, index, step, stop=stop_requested() or leaving())
                if behind:
                    began = _finish_step(training, behind, began, log_row)
                behind, done, stop = result, index + 1, result.totals.stop
                best = recipe.keep_best is not None and done == total  # the last one may be it
                measures = measure is not None and (_every(recipe.evaluate_every, done) or best)
                if stop or measures or done == total or _every(recipe.checkpoint_every, done):
                    _finish_step(training, result, began, log_row, measure if measures else None)
                    behind = None
                    if stop or done == total or _every(recipe.checkpoint_every, done) or recipe.keep_best:
                        save(training)
                    began = perf_counter()
                training.writer.check()
                if stop and done < total:
                    training.writer.wait()
                    raise KeyboardInterrupt(f"stopped after step {done} of {total}; the same command continues it")
        return _finish(training)


def set_up(
    recipe: Recipe,
    shards: Path | Files,
    run: Path,
    worker: Worker,
    resume: bool,
    written: Callable[[], None] = lambda: None,
) -> Training:
    """Create a new run, or restore one from its last checkpoint. Rank 0 writes, checks and chooses the
    checkpoint; the other workers wait for it."""
    tokenizer = load_tokenizer(recipe.encoder)
    opened = open_shards(shards, verify=worker.rank == 0)
    made_of = opened.manifest.fingerprint
    group = dist.new_group(backend="gloo", timeout=PATIENCE) if worker.world > 1 else None
    reached = None
    if worker.rank == 0:
        reached = run_directory.check(run, recipe, made_of, tokenizer.hash, resume=resume)
    step = reached.step if reached else -1
    step = parallel.gathered([step], group)[0][0]  # machines may see different files on a network disk
    remove_after(run, max(step, 0))
    began = checkpoint.directory_of(run, step) if step >= 0 else None
    directory = began or run_directory.origin(run, recipe, made_of, tokenizer.hash)
    ancestor = None if directory else run_directory.ancestor(run, recipe, tokenizer.hash)
    model = UbertModel.load(directory) if directory else _new_model(recipe, tokenizer, ancestor)
    model.config.instructions = opened.manifest.instructions
    model.to(worker.device).train()  # type: ignore[arg-type]
    for parameter in model.parameters():  # copies are aligned, and products of others round differently on a CPU
        parameter.data = parameter.data.clone()
    if recipe.dropout is not None:
        set_dropout(model.encoder, recipe.dropout)
    _freeze(model, recipe)
    # no step of an objective gives a gradient to the head of another
    unused = recipe.masks or (worker.world > 1 and parallel.leaves_unused(model))
    if recipe.compile:
        for layer in parallel.layers(model.encoder):
            layer.compile(dynamic=True)  # one graph with variable sizes, shared by the layers
    score = parallel.distribute(
        SummedLoss(model, recipe),
        model.encoder,
        recipe.parallel,
        worker.world,
        unused=unused,
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
            sources=opened.manifest.sources,
            tokenizer=tokenizer.hash,
            ancestry=run_directory.ancestry(ancestor or Path(encoder_path(recipe.encoder))),
        )
    if worker.rank > 0:
        _wait(group)  # rank 0 writes the order of rows if it is missing
    loader = Loader(
        opened,
        recipe,
        tokenizer.special,
        model.most_tokens,
        worker.rank,
        worker.world,
        words=tokenizer.for_masking() if recipe.masks else None,
        phrases=tokenizer.for_pointing() if recipe.points else None,
        pin=worker.device.type == "cuda",
        processes=processes_for(worker.device) if isinstance(opened.source, Folder) else 0,
    )
    if worker.rank == 0:
        _wait(group)
    training = Training(
        recipe=recipe,
        run=run,
        worker=worker,
        tokenizer=tokenizer,
        loader=loader,
        model=model,
        optimizer=optimizer,
        score=score,
        group=group,
        average=average,
        passes=Passes(run, worker.rank, opened) if recipe.dynamics else None,
        state=state,
        writer=Writer(run, recipe.keep_checkpoints, recipe.keep_best, written),
    )
    if began:
        run_directory.check_length(run, state.step, loader.total_steps)
    else:
        _check_start(training)
    if worker.rank == 0:
        run_directory.start(run, recipe)  # not before: a refused command leaves a finished run as it is
    if not began:
        save(training)  # the model before training, for comparison
        training.writer.wait()
    return training


def _check_start(training: Training) -> None:
    """Refuse to continue from a step after the recipe's decay starts (wsd), or after its last step."""
    recipe, step, total = training.recipe, training.state.step, training.loader.total_steps
    last = decay_start(total, recipe) if recipe.schedule == "wsd" else total - 1
    if step > last:
        raise UserError(
            f"recipe {recipe.name}: continue_from {recipe.continue_from} is after step {last}, the last of "
            f"{total} before the {'decay' if recipe.schedule == 'wsd' else 'end'}; raise steps or lower decay"
        )


def save(training: Training) -> None:
    """Save a checkpoint. Rank 0 writes it and gathers the other workers' parts of the tensors.

    Raises:
        UserError: the training dynamics cannot be written.
    """
    if training.passes:
        training.passes.write()  # before the checkpoint, from which a resumed run starts
        if training.worker.rank > 0:
            training.writer.written()
        _wait(training.group)
    tensors = checkpoint.tensors(training.model, training.optimizer, training.average)
    if training.worker.rank == 0:
        training.writer.save(training.model, training.tokenizer, tensors, training.state)
        return
    for tensor in (*tensors.weights.values(), *tensors.states.values()):
        parallel.full_tensor(tensor)


def _freeze(model: UbertModel, recipe: Recipe) -> None:
    """Freeze what the recipe doesn't train.

    Raises:
        UserError: the encoder has fewer layers.
    """
    if recipe.freeze_words:
        model.word_vectors.requires_grad_(False)
    if not recipe.freeze_layers:
        return
    layers = list(parallel.layers(model.encoder))
    if recipe.freeze_layers > len(layers):
        raise UserError(
            f"freeze_layers: expected at most the encoder's {len(layers)} layers, got {recipe.freeze_layers}"
        )
    highest = [*layers[recipe.freeze_layers - 1].parameters()][-1]
    for parameter in model.encoder.parameters():  # embeddings, then layers, then what comes after all of them
        parameter.requires_grad_(False)
        if parameter is highest:
            break
    for part in model.encoder.modules():
        weights = list(part.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            set_dropout(part, 0.0)  # it can't overfit, and on a CPU its masks take a tenth of a step


def _new_model(recipe: Recipe, tokenizer: Tokenizer, ancestor: Path | None) -> UbertModel:
    """Create the model for step 0, from the recipe's encoder with new heads or from an ancestor's weights."""
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
            recipe.copies,
        ),
        vocabulary=tokenizer.vocabulary,
        seed=keyed_seed(recipe.seed),
        initial_bias=recipe.initial_bias,
    )


def _every(steps: int | None, done: int) -> bool:
    return steps is not None and done % steps == 0


def _finish_step(
    training: Training, result: StepResult, began: float, log_row: log.LogRow, measure: Measure | None = None
) -> float:
    """Read a step's numbers, log them and evaluate the model if requested. Return when the step ended.

    Raises:
        UserError: the numbers are not finite.
    """
    loss, norm, ended = result.numbers(training.recipe, training.worker.device)
    done, tokens, seconds = result.index + 1, result.totals.tokens, ended - began
    if training.passes and result.tables:
        training.passes.add(done, result.step, result.tables)
    metrics = _measured(training, measure) if measure else None
    if measure:
        _wait(training.group)
    training.state = training.state.model_copy(
        update={
            "step": done,
            "tokens": training.state.tokens + tokens,
            "seconds": training.state.seconds + seconds,
            "loss": loss,
            "metrics": metrics or {},
        }
    )
    total = training.loader.total_steps
    log_row(
        log.Row(
            done, total, result.step.objective, loss, result.rate, norm, tokens, tokens / seconds, seconds, metrics
        )
    )
    return ended


def _measured(training: Training, measure: Measure) -> dict[str, float] | None:
    """Evaluate a copy of the model on rank 0, which gathers the weights; all workers must call this."""
    tensors = checkpoint.tensors(training.model, training.optimizer, training.average)
    weights = {name: parallel.full_tensor(tensor) for name, tensor in tensors.weights.items()}
    if training.worker.rank > 0:
        return None
    copy = UbertModel(deepcopy(cast(UbertConfig, training.model.config)))
    copy.load_state_dict(weights)
    metrics = measure(copy.to(training.worker.device), training.tokenizer)  # type: ignore[arg-type]
    checkpoint.check_best(training.recipe, metrics)
    return metrics


@contextmanager
def _logging(training: Training) -> Iterator[log.LogRow]:
    """Yield a function that logs a row and, if requested, shows progress. Only rank 0 logs."""
    if training.worker.rank > 0:
        yield lambda row: None
        return
    with ExitStack() as stack:
        loggers = [stack.enter_context(log.logging_to(training.run, training.state.step))]
        if training.recipe.mlflow:
            loggers.append(stack.enter_context(mlflow_log.logging_to(training.run, training.recipe)))
        if training.worker.progress:
            loggers.append(stack.enter_context(log.progress()))

        def log_row(row: log.Row) -> None:
            for each in loggers:
                each(row)

        yield log_row


def _finish(training: Training) -> Path:
    directory = checkpoint.directory_of(training.run, training.state.step)
    training.writer.wait()
    if training.worker.rank == 0:
        run_directory.finish(training.run, training.state, directory)
        training.writer.written()
    _wait(training.group)
    return directory


def _wait(group: dist.ProcessGroup | None) -> None:
    """Wait until all workers arrive. This group waits up to `PATIENCE`; the gradients' group would give up
    after half an hour."""
    if group:
        dist.barrier(group)
