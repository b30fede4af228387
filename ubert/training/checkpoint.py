"""Checkpoints of a run: whole or not there, verified when read, and free of pickle.

<run>/checkpoints/step-000500/
    config.json, model.safetensors, tokenizer files    all that a prediction needs
    optimizer.safetensors                              exp_avg/<parameter>, exp_avg_sq/..., step/..., and, where
                                                       the model is an average, weight/...: those that are trained
    state.json                                         where the run was, and the hash of each file, its own too
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Collection, Iterator
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
from ubert.model.ubert import UbertModel
from ubert.schema.disk import to_disk
from ubert.schema.errors import UserError
from ubert.schema.manifest import Ancestor
from ubert.schema.recipe import Recipe
from ubert.schema.yaml_file import Strict
from ubert.training import parallel
from ubert.training.average import Average

STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"
_NAME = re.compile(r"step-(\d{6,})")
HALF = ".half-"  # prefix of a checkpoint that is being written

logger = logging.getLogger(__name__)


class State(Strict):
    """Where a run was. `step` counts finished steps, and is the loader's position: batches are a function of it.

    `tokens` and `seconds` were spent so far, over all workers; `loss` is that of the last step, None before the
    first; `metrics` were measured at this step, if they were. `shards` is their fingerprint, `sources` are the
    splits that they were drawn from (corpus/split), `tokenizer` its hash,
    `ancestry` the chain of runs that gave the first weights, `files` the blake3 of each file of the checkpoint (of
    state.json, of all that it says but this).
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
    """Of a checkpoint: the weights to predict with, and what only training needs."""

    weights: dict[str, Tensor]
    states: dict[str, Tensor]


def tensors(model: UbertModel, optimizer: torch.optim.Optimizer, average: Average | None = None) -> Tensors:
    """The tensors that a checkpoint has, as they are: not copied, and perhaps this worker's parts of them."""
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
    """Where a run's checkpoint of that step lies."""
    return run / "checkpoints" / f"step-{step:06}"


def save(run: Path, model: UbertModel, tokenizer: Tokenizer, tensors: Tensors, state: State) -> Path:
    """Write a checkpoint under a temporary name, and rename it once it is on the disk: nobody sees half of it,
    also if power fails.

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
        write_state(half, state)
        for path in (*half.iterdir(), half):
            to_disk(path)
        if directory.exists():  # damaged, or this step would not have been done again
            shutil.rmtree(directory)
        half.rename(directory)
        to_disk(directory.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(half, ignore_errors=True)
        raise UserError(
            f"{directory}: the checkpoint cannot be written ({error}); nothing incomplete is kept: make room, "
            "then run the same command again"
        ) from error
    return directory


def write_state(directory: Path, state: State) -> Path:
    """Write state.json, with the hash of each file that lies beside it; returns the directory."""
    files = {path.name: hash_of(path) for path in sorted(directory.iterdir()) if path.name != STATE}
    whole = state.model_copy(update={"files": files})
    whole.files[STATE] = _own_hash(whole.model_dump_json())
    (directory / STATE).write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return directory


def latest(run: Path) -> Path | None:
    """The newest whole checkpoint of a run, or None where it has none; a damaged one is passed over and logged.

    Raises:
        UserError: all are damaged.
    """
    damaged: list[tuple[Path, str]] = []
    for directory in _newest_first(run):
        damage = _damage(directory)
        if damage is None:
            for other, reason in damaged:
                logger.warning("%s is damaged (%s); %s before it is used", other, reason, directory.name)
            return directory
        damaged.append((directory, damage))
    if damaged:
        raise UserError(
            f"{run}: all checkpoints are damaged, the newest because {damaged[0][1]}; train under another "
            "name, or remove this run's directory to start afresh"
        )
    return None


def check(directory: Path) -> None:
    """Refuse a checkpoint that is missing or damaged.

    Raises:
        UserError: what is wrong with it.
    """
    if damage := _damage(directory):
        raise UserError(f"{directory}: not a whole checkpoint ({damage}); give another")


def verify(directory: Path) -> None:
    """Hold the files that a prediction needs against the hashes in state.json, where there is one with hashes:
    converted and older checkpoints have none.

    Raises:
        UserError: which file is missing, or is not what was written.
    """
    if (directory / STATE).exists() and (damage := _damage(directory, but={OPTIMIZER})):
        raise UserError(
            f"{directory}: not what was written ({damage}); use another checkpoint, or trust it as it is: "
            "`--no-verify`, or verify=False in Python"
        )


def remove_halves(run: Path) -> None:
    """Remove what killed processes left half-written."""
    for half in (run / "checkpoints").glob(f"{HALF}*"):
        shutil.rmtree(half)


def prune(run: Path, keep: int, metric: str | None = None) -> None:
    """Remove all but the newest `keep` checkpoints, the best by `metric`, and the first, to compare with."""
    best = best_by(run, metric) if metric else None
    for directory in list(_newest_first(run))[keep:-1]:
        if directory != best:
            shutil.rmtree(directory)


def first(run: Path) -> Path:
    """The checkpoint that a run began with."""
    return list(_newest_first(run))[-1]


def best_by(run: Path, metric: str) -> Path | None:
    """The best checkpoint of a run by a metric, the newest of equal ones; None where none was measured."""
    sign = -1 if metric.rpartition("/")[2] in SMALLER_IS_BETTER else 1
    whole = [directory for directory in _newest_first(run) if _damage(directory) is None]
    measured = {directory: read_state(directory).metrics for directory in whole}
    values = {directory: sign * found[metric] for directory, found in measured.items() if metric in found}
    return max(values, key=values.__getitem__) if values else None


def read_state(directory: Path) -> State:
    """Where the run of a checkpoint was.

    Raises:
        UserError: state.json is missing or damaged.
    """
    try:
        return State.model_validate_json((directory / STATE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{directory / STATE}: {reason}; give a checkpoint that training wrote") from None


def load_training(directory: Path, model: UbertModel, optimizer: torch.optim.Optimizer) -> None:
    """Give `optimizer`, freshly made for `model`, the state that a checkpoint holds; and `model`, if it is an
    average, the weights that are trained. Of those that are in parts, this worker's."""
    tensors = load_file(directory / OPTIMIZER)
    parameters = dict(model.named_parameters())
    weights = {name: p for name, p in parameters.items() if f"weight/{name}" in tensors}
    trained = {name: parallel.part(tensors[f"weight/{name}"], p) for name, p in weights.items()}
    model.load_state_dict(trained, strict=False)
    if not any(name.startswith("step/") for name in tensors):  # before the first step
        return
    names = {parameter: name for name, parameter in parameters.items()}
    order = [names[p] for group in optimizer.param_groups for p in group["params"]]
    state = {
        index: {
            kind: parallel.part(tensors[f"{kind}/{name}"], parameters[name])
            for kind in ("step", "exp_avg", "exp_avg_sq")
        }
        for index, name in enumerate(order)
        if f"step/{name}" in tensors  # what no step has trained yet has no state
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _newest_first(run: Path) -> Iterator[Path]:
    directories = [path for path in (run / "checkpoints").glob("step-*") if _NAME.fullmatch(path.name)]
    yield from sorted(directories, key=lambda path: step_of(path.name), reverse=True)


def step_of(name: str) -> int:
    """The step of a checkpoint's folder."""
    return int(name.removeprefix("step-"))


def _damage(directory: Path, but: Collection[str] = ()) -> str | None:
    """What is wrong with a checkpoint, or None. Files in `but` may be missing or differ, and thresholds, which are
    fitted later."""
    try:
        state = read_state(directory)
    except UserError as error:
        return str(error)
    own = state.files.pop(STATE, None)  # older checkpoints have none
    if own is not None and own != _own_hash((directory / STATE).read_text(encoding="utf-8")):
        return f"{STATE} is not what was written"
    if _NAME.fullmatch(directory.name) and directory.name != f"step-{state.step:06}":
        return f"{STATE} is of step {state.step}"
    for name, expected in state.files.items():
        if name in (*but, THRESHOLDS):
            continue
        path = directory / Path(name).name
        if not path.is_file():
            return f"{name} is missing"
        if hash_of(path) != expected:
            return f"{name} is not what was written"
    return None


def _own_hash(state: str) -> str:
    """Of what a state.json says, in whatever order and with whatever spaces, but for this hash."""
    said = json.loads(state)
    said["files"].pop(STATE, None)
    return blake3(json.dumps(said, sort_keys=True).encode()).hexdigest()


def hash_of(path: Path) -> str:
    """Hex blake3 of a file."""
    return blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()
