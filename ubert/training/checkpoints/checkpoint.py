"""Checkpoints of a run: written atomically, verified when read, and free of pickle.

<run>/checkpoints/step-000500/
    config.json, model.safetensors, tokenizer files    all that a prediction needs
    optimizer.safetensors                              exp_avg/<parameter>, exp_avg_sq/..., step/...; if the
                                                       model is an average, also weight/..., the trained weights
    state.json                                         the run's state, and the hash of each file, its own too
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from blake3 import blake3
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ubert.evaluation import SMALLER_IS_BETTER
from ubert.inference.thresholds import FILE as THRESHOLDS
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import CONFIG, UbertModel
from ubert.schema.disk import to_disk
from ubert.schema.errors import UserError
from ubert.schema.manifest import Ancestor
from ubert.schema.specs.recipe import Recipe
from ubert.schema.yaml_file import Strict
from ubert.training import parallel
from ubert.training.average import Average

STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"
_NAME = re.compile(r"step-(\d{6,})")
HALF = ".half-"  # prefix of a checkpoint that is being written

logger = logging.getLogger(__name__)


class State(Strict):
    """The state of a run at a checkpoint.

    `step` counts finished steps; it is also the loader's position, as batches are a function of the step.
    `tokens` and `seconds` are totals so far, over all workers. `loss` is that of the last step, None before
    the first. `metrics` were measured at this step, if any. `shards` is their fingerprint, `sources` are the
    splits that they were drawn from (corpus/split), and `tokenizer` is the tokenizer's hash. `ancestry` is
    the chain of runs that gave the first weights. `files` has the blake3 of each file of the checkpoint; the
    one for state.json covers everything in it but itself.
    """

    step: int
    tokens: int
    seconds: float
    loss: float | None
    metrics: dict[str, float] = Field(default_factory=dict)
    recipe: Recipe
    shards: str
    sources: list[str] = Field(default_factory=list)
    tokenizer: str
    ancestry: list[Ancestor] = Field(default_factory=list)
    files: dict[str, str] = Field(default_factory=dict)


class Tensors(NamedTuple):
    """The tensors of a checkpoint: the weights to predict with, and the states that only training needs."""

    weights: dict[str, Tensor]
    states: dict[str, Tensor]


def tensors(model: UbertModel, optimizer: torch.optim.Optimizer, average: Average | None = None) -> Tensors:
    """Collect a checkpoint's tensors without a copy. With FSDP they are this worker's parts."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    states = {
        f"{kind}/{names[parameter]}": tensor.contiguous()
        for parameter, kinds in optimizer.state.items()
        for kind, tensor in kinds.items()
    }
    weights: dict[str, Tensor] = model.state_dict()
    if average is None:
        return Tensors(weights, states)
    trained = {f"weight/{name}": weights[name] for name in average}
    return Tensors(weights | average, states | trained)


def directory_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06}"


def save(run: Path, model: UbertModel, tokenizer: Tokenizer, tensors: Tensors, state: State) -> Path:
    """Write a checkpoint atomically: under a temporary name, which is renamed once the files are on the disk.

    Checkpoints of this step or later ones are damaged, or the run would have resumed from them. They are removed,
    as `prune` would keep them instead of this one.

    Raises:
        UserError: the directory cannot be written, or its disk is full.
    """
    directory = directory_of(run, state.step)
    half = directory.with_name(f"{HALF}{directory.name}")
    try:
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        model.save(half, tensors.weights)
        tokenizer.save(half)
        save_file(tensors.states, half / OPTIMIZER)
        shutil.copymode(half / CONFIG, half / OPTIMIZER)
        write_state(half, state)
        for path in (*half.iterdir(), half):
            to_disk(path)
        for other in _newest_first(run):
            if step_of(other.name) >= state.step:
                shutil.rmtree(other)
        half.rename(directory)
        to_disk(directory.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(half, ignore_errors=True)
        raise UserError(
            f"{directory}: the checkpoint cannot be written ({error}); nothing incomplete is kept: free some "
            "disk space, then run the same command again"
        ) from error
    return directory


def write_state(directory: Path, state: State) -> Path:
    """Write state.json with the hash of each file beside it. Return the directory."""
    files = {path.name: hash_of(path) for path in sorted(directory.iterdir()) if path.name != STATE}
    whole = state.model_copy(update={"files": files})
    whole.files[STATE] = _own_hash(whole.model_dump_json())
    (directory / STATE).write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return directory


def latest(run: Path) -> Path | None:
    """Return the newest undamaged checkpoint of a run, or None without any. Damaged ones are skipped and logged.

    Raises:
        UserError: all are damaged.
    """
    damaged: list[tuple[Path, str]] = []
    for directory in _newest_first(run):
        damage = _damage(directory)
        if damage is None:
            for other, reason in damaged:
                logger.warning("%s is damaged (%s); using %s, an earlier one", other, reason, directory.name)
            return directory
        damaged.append((directory, damage))
    if damaged:
        raise UserError(
            f"{run}: all checkpoints are damaged, the newest because {damaged[0][1]}; train under another "
            "name, or remove this run's directory to start again"
        )
    return None


def check(directory: Path) -> None:
    """Refuse a checkpoint that is missing or damaged.

    Raises:
        UserError: the checkpoint is missing or damaged; the message says how.
    """
    if damage := _damage(directory):
        raise UserError(f"{directory}: not a complete checkpoint ({damage}); give another")


def verify(directory: Path) -> None:
    """Compare the files that a prediction needs with the hashes in state.json.

    Converted and older checkpoints have no hashes, and pass.

    Raises:
        UserError: a file is missing or has changed.
    """
    if (directory / STATE).exists() and (damage := _damage(directory, but={OPTIMIZER})):
        raise UserError(
            f"{directory}: changed since it was written ({damage}); use another checkpoint, or load it without "
            "this check: `--no-verify`, or verify=False in Python"
        )


def remove_halves(run: Path) -> None:
    """Remove checkpoints that killed processes left incomplete."""
    for half in (run / "checkpoints").glob(f"{HALF}*"):
        shutil.rmtree(half)


def prune(run: Path, keep: int, metric: str | None = None) -> None:
    """Remove all checkpoints but the newest `keep`, the best by `metric`, and the first, kept for comparison."""
    best = best_by(run, metric) if metric else None
    for directory in list(_newest_first(run))[keep:-1]:
        if directory != best:
            shutil.rmtree(directory)


def first(run: Path) -> Path:
    """Return the checkpoint that a run began with."""
    return list(_newest_first(run))[-1]


def check_best(recipe: Recipe, metrics: Iterable[str]) -> None:
    """Refuse to keep the best checkpoint by a metric that is not among the measured ones.

    Raises:
        UserError: it is not.
    """
    if recipe.keep_best and recipe.keep_best not in (measured := list(metrics)):
        raise UserError(f"keep_best: {recipe.keep_best} is not measured; expected one of {', '.join(measured)}")


def best_by(run: Path, metric: str) -> Path | None:
    """Return a run's best checkpoint by a metric, or None if none was measured. The newest of equal ones wins."""
    sign = -1 if metric.rpartition("/")[2] in SMALLER_IS_BETTER else 1
    whole = [directory for directory in _newest_first(run) if _damage(directory) is None]
    measured = {directory: read_state(directory).metrics for directory in whole}
    values = {directory: sign * found[metric] for directory, found in measured.items() if metric in found}
    return max(values, key=values.__getitem__) if values else None


def read_state(directory: Path) -> State:
    """Read the state of the run at a checkpoint.

    Raises:
        UserError: state.json is missing or damaged.
    """
    try:
        return State.model_validate_json((directory / STATE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise UserError(f"{directory / STATE}: {reason}; give a checkpoint that training wrote") from None


def load_training(directory: Path, model: UbertModel, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state into `optimizer`, which must be new.

    If the checkpoint's weights are an average, load the trained weights into `model`. With FSDP, load this
    worker's parts.
    """
    tensors = load_file(directory / OPTIMIZER)
    parameters = dict(model.named_parameters())
    weights = {name: p for name, p in parameters.items() if f"weight/{name}" in tensors}
    trained = {name: parallel.local_part(tensors[f"weight/{name}"], p) for name, p in weights.items()}
    model.load_state_dict(trained, strict=False)
    if not any(name.startswith("step/") for name in tensors):  # before the first step
        return
    names = {parameter: name for name, parameter in parameters.items()}
    order = [names[p] for group in optimizer.param_groups for p in group["params"]]
    state = {
        index: {
            kind: parallel.local_part(tensors[f"{kind}/{name}"], parameters[name])
            for kind in ("step", "exp_avg", "exp_avg_sq")
        }
        for index, name in enumerate(order)
        if f"step/{name}" in tensors  # parameters that no step has trained yet have no state
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _newest_first(run: Path) -> Iterator[Path]:
    directories = [path for path in (run / "checkpoints").glob("step-*") if _NAME.fullmatch(path.name)]
    yield from sorted(directories, key=lambda path: step_of(path.name), reverse=True)


def step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def _damage(directory: Path, but: Collection[str] = ()) -> str | None:
    """Return what is wrong with a checkpoint, or None. Files in `but`, and thresholds, which are fitted
    later, may be missing or differ."""
    try:
        state = read_state(directory)
    except UserError as error:
        return str(error)
    own = state.files.pop(STATE, None)  # older checkpoints have none
    if own is not None and own != _own_hash((directory / STATE).read_text(encoding="utf-8")):
        return f"{STATE} has changed"
    if _NAME.fullmatch(directory.name) and directory.name != f"step-{state.step:06}":
        return f"{STATE} is of step {state.step}"
    for name, expected in state.files.items():
        if name in (*but, THRESHOLDS):
            continue
        path = directory / Path(name).name
        if not path.is_file():
            return f"{name} is missing"
        if hash_of(path) != expected:
            return f"{name} has changed"
    return None


def _own_hash(state: str) -> str:
    """Hash the content of a state.json without this hash. Order and whitespace don't matter."""
    content = json.loads(state)
    content["files"].pop(STATE, None)
    return blake3(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hash_of(path: Path) -> str:
    return blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()
