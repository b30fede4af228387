"""The directory of a run: its locks, its stop requests, where it resumes, and when it is finished.

runs/<name>/    recipe.yaml, checkpoints/, logs/, dynamics/ if the recipe has it, manifest.json
"""

from __future__ import annotations

import fcntl
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from ubert.model import pretrained
from ubert.model.tokenizer import encoder_path
from ubert.model.ubert import WEIGHTS
from ubert.schema.disk import write_whole
from ubert.schema.errors import UserError
from ubert.schema.manifest import (
    MANIFEST,
    RECIPE,
    Ancestor,
    AnyFolder,
    RunManifest,
    ShardManifest,
    fingerprint,
    read_manifest,
    read_manifests,
)
from ubert.schema.names import checked_name
from ubert.schema.specs.recipe import Recipe
from ubert.training.checkpoints import checkpoint
from ubert.training.checkpoints.checkpoint import State

STOP = "stop"  # a file of this name asks the run to stop after the current step
PAUSE = "pause"  # stops it too; the driver creates it to restart all workers
REQUESTS = (STOP, PAUSE)
INDIFFERENT = {
    "description",
    "tokens_per_step",
    "checkpoint_every",
    "keep_checkpoints",
    "evaluate",
    "evaluate_every",
    "keep_best",
    "parallel",
    "compile",
    "mlflow",
    "dynamics",
    "seen",
}
LENGTH = {"steps", "epochs"}  # may change with --resume
ENDING = LENGTH | {
    "name",
    "ancestor",
    "continue_from",
    "schedule",
    "decay",
}  # may differ from the run that `continue_from` names


def directory(root: Path, name: str) -> Path:
    """Return the directory of the run called `name`.

    Raises:
        UserError: the name is invalid.
    """
    return root / "runs" / checked_name("run", name)


def find_shards(root: AnyFolder, recipe: Recipe, tokenizer: str) -> AnyFolder:
    """Return the newest shards of the recipe's mixture that fit the encoder's tokenizer and `max_tokens`.

    Args:
        tokenizer: hash of the encoder's tokenizer.

    Raises:
        UserError: there are none; the message has the command that makes them.
    """
    folder = root / "shards" / recipe.shards
    found, _ = read_manifests(folder, ShardManifest)
    fitting = [
        (manifest.created, directory)
        for directory, manifest in found
        if manifest.tokenizer == tokenizer and manifest.max_tokens == recipe.max_tokens
    ]
    if not fitting:
        others = f"; the {len(found)} there are of another tokenizer or max_tokens" if found else ""
        raise UserError(
            f"{folder}: no shards for encoder {recipe.encoder!r} with max_tokens {recipe.max_tokens}{others}; "
            f"make them with `ubert shard {recipe.shards} --encoder {shlex.quote(recipe.encoder)} "
            f"--max-tokens {recipe.max_tokens}`"
        )
    return max(fitting, key=itemgetter(0))[1]


def finished(run: Path) -> RunManifest | None:
    """Return the manifest of a finished run, or None."""
    return read_manifest(RunManifest, run) if (run / MANIFEST).exists() else None


@contextmanager
def driving(run: Path) -> Iterator[None]:
    """Hold the exclusive right to start, stop and restart a run, from before its workers start until they end.

    Only the holder may clear stop requests. It clears those of an earlier run here, before anything starts
    that they could stop.

    Raises:
        UserError: another process drives this run, or its directory cannot be written.
    """
    with _exclusive_lock(run, ".driver"):
        for request in REQUESTS:
            (run / request).unlink(missing_ok=True)
        yield


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the exclusive right to write a run. Remove the incomplete checkpoints of a killed process first.

    Raises:
        UserError: another process trains this run, or its directory cannot be written.
    """
    with _exclusive_lock(run, ".lock"):
        checkpoint.remove_halves(run)
        yield


@contextmanager
def _exclusive_lock(run: Path, name: str) -> Iterator[None]:
    """Hold the lock file of this name in a run."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = (run / name).open("wb")
    except OSError as error:
        raise UserError(f"{run}: cannot be written ({error.strerror}); choose another --root") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{run}: another process is training this run; wait for it, or train under another name"
            ) from None
        yield


@contextmanager
def stopping(run: Path) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether to stop after this step, because of SIGINT, SIGTERM, or a file
    `stop` or `pause`.

    A second signal ends the process at once.
    """
    requested = threading.Event()
    before = {}

    def handle(number: int, frame: FrameType | None) -> None:
        requested.set()
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is threading.main_thread():  # other threads can't set signal handlers
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested.is_set() or any((run / request).exists() for request in REQUESTS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check(run: Path, recipe: Recipe, shards: str, tokenizer: str, *, resume: bool) -> State | None:
    """Return the state of the newest undamaged checkpoint, from which a run resumes, or None if there is none.

    Args:
        shards: fingerprint of the shards.
        tokenizer: hash of the tokenizer.
        resume: the user gave --resume, so `steps` or `epochs` may differ.

    Raises:
        UserError: the checkpoint was trained with other settings, or for more steps; or a new run's `from` is
            wrong; or an ancestor was trained on what the recipe evaluates.
    """
    directory = checkpoint.latest(run)
    if directory is None:
        if resume:
            raise UserError(f"{run}: no checkpoint to resume from; train without --resume first")
        ancestor(run, recipe, tokenizer)
        return None
    state = checkpoint.read_state(directory)
    differing = _differing(state, recipe, shards, tokenizer, INDIFFERENT | LENGTH if resume else INDIFFERENT)
    if not differing:
        _check_unseen(recipe, state.ancestry, f"{run}:")  # `evaluate` may have changed
        if recipe.steps:  # the loader knows how many steps `epochs` are
            check_length(run, state.step, recipe.steps)
        return state
    longer = " (or --resume, to train for longer)" if _only_length(state.recipe, recipe) else ""
    raise UserError(
        f"{run}: step {state.step} was trained with other settings: {'; '.join(differing)}; "
        f"set them back, or start again under another name{longer}"
    )


def check_length(run: Path, done: int, total: int) -> None:
    """Refuse to resume a run after more steps than its recipe has.

    Raises:
        UserError: more steps are done.
    """
    if done > total:
        raise UserError(
            f"{run}: {done} steps are done, more than the recipe's {total}; raise its steps or epochs, or train "
            "under another name"
        )


def origin(run: Path, recipe: Recipe, shards: str, tokenizer: str) -> Path | None:
    """Return the checkpoint of another run that this one continues, or None.

    Raises:
        UserError: it is missing, damaged, or was trained with other settings; or an ancestor of it was trained on
            what the recipe evaluates.
    """
    if recipe.continue_from is None:
        return None
    where = f"recipe {recipe.name}: continue_from {recipe.continue_from}"
    name, step = recipe.continue_from.split("/")
    directory = run.parent / name / "checkpoints" / step
    checkpoint.check(directory)
    state = checkpoint.read_state(directory)
    if differing := _differing(state, recipe, shards, tokenizer, INDIFFERENT | ENDING):
        raise UserError(
            f"{where} was trained with other settings: {'; '.join(differing)}; give this recipe the same settings"
        )
    _check_unseen(recipe, state.ancestry, f"{where}:")
    return directory


def ancestor(run: Path, recipe: Recipe, tokenizer: str) -> Path | None:
    """Return the checkpoint of another run whose weights this run starts from, or None.

    Raises:
        UserError: there is no such run, it isn't finished, it has another encoder, or it (or the encoder) was
            trained on what the recipe evaluates; or the checkpoint is damaged.
    """
    if recipe.ancestor is None:
        encoder = Path(encoder_path(recipe.encoder))
        _check_unseen(recipe, ancestry(encoder), f"recipe {recipe.name}: encoder {recipe.encoder}:")
        return None
    where = f"recipe {recipe.name}: from {recipe.ancestor}:"
    directory = _ancestor(run, recipe.ancestor, where)
    checkpoint.check(directory)
    before = checkpoint.read_state(directory)
    if (before.recipe.encoder, before.tokenizer) != (recipe.encoder, tokenizer):
        raise UserError(
            f"{where} its encoder is {before.recipe.encoder} (tokenizer {before.tokenizer[:16]}), this recipe's "
            f"{recipe.encoder} (tokenizer {tokenizer[:16]}); give the recipe its ancestor's encoder"
        )
    _check_unseen(recipe, ancestry(directory), where)
    return directory


def _ancestor(run: Path, wanted: str, where: str) -> Path:
    """Return the checkpoint that `from` names, of a run beside this one or of a model in the package."""
    name, _, step = wanted.partition("/")
    other = run.parent / name
    if other != run and (other / "checkpoints").is_dir():
        if step:
            return other / "checkpoints" / step
        if manifest := finished(other):
            return other / manifest.checkpoint
        raise UserError(
            f"{where} the run isn't finished; finish it with `ubert pretrain {name}`, or name a checkpoint of "
            f"it ({name}/step-...)"
        )
    if not step and (pretrained.FOLDER / name).is_dir():
        return pretrained.FOLDER / name
    runs = sorted(path.parent.name for path in run.parent.glob("*/checkpoints") if path.parent != run)
    raise UserError(
        f"{where} expected another run of {run.parent}, or a model that comes with ubert; there are "
        f"{', '.join([*runs, *pretrained.names()]) or 'none'}"
    )


def _check_unseen(recipe: Recipe, ancestors: list[Ancestor], where: str) -> None:
    """Refuse to evaluate on splits that an ancestor was trained on, unless the recipe allows it."""
    if recipe.seen == "allow":
        return
    measured = {f"{wanted.corpus}/{wanted.split}" for wanted in recipe.evaluate}
    for one in ancestors:
        if seen := sorted(measured & set(one.sources)):
            raise UserError(
                f"{where} {one.run} was trained on {', '.join(seen)}, which the recipe evaluates; evaluate other "
                "splits, or set `seen: allow`"
            )


def ancestry(directory: Path) -> list[Ancestor]:
    """Return the chain of ancestors of a run that starts from this checkpoint, the oldest first.

    None is known of a model without state.json, such as a pretrained encoder or a converted model.
    """
    if not (directory / checkpoint.STATE).exists():
        return []
    state = checkpoint.read_state(directory)
    run = directory.parents[1] if directory.parent.name == "checkpoints" else directory
    weights = state.files[WEIGHTS]
    return [*state.ancestry, Ancestor(run=run.name, step=state.step, weights=weights, sources=state.sources)]


def trained_on(directory: Path, splits: Iterable[str]) -> list[str]:
    """Return those of the splits (`corpus/split`) that a checkpoint or an ancestor of it drew records from."""
    drawn = {source for one in ancestry(directory) for source in one.sources}
    return [split for split in dict.fromkeys(splits) if split in drawn]


def start(run: Path, recipe: Recipe) -> None:
    """Write the recipe, and mark the run as unfinished.

    Raises:
        UserError: it cannot be written, or the disk is full.
    """
    run.mkdir(parents=True, exist_ok=True)
    (run / MANIFEST).unlink(missing_ok=True)
    text = yaml.safe_dump(recipe.model_dump(exclude_none=True), sort_keys=False, allow_unicode=True)
    _write(run / RECIPE, text)


def finish(run: Path, state: State, directory: Path) -> None:
    """Write the manifest of a finished run.

    Raises:
        UserError: it cannot be written, or the disk is full.
    """
    recipe = fingerprint(state.recipe.model_dump())
    assert state.loss is not None
    metric = state.recipe.keep_best
    best = checkpoint.best_by(run, metric) if metric else None
    manifest = RunManifest(
        name=run.name,
        fingerprint=fingerprint(recipe, state.shards, *(ancestor.weights for ancestor in state.ancestry)),
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        recipe=recipe,
        shards=state.shards,
        steps=state.step,
        tokens=state.tokens,
        seconds=state.seconds,
        loss=state.loss,
        checkpoint=str(directory.relative_to(run)),
        best=str(best.relative_to(run)) if best else None,
        ancestry=state.ancestry,
    )
    _write(run / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free some disk space, then run the same "
            "command again"
        ) from None


def _differing(state: State, recipe: Recipe, shards: str, tokenizer: str, but: set[str]) -> list[str]:
    """List the differences of recipe, shards and tokenizer from those of a checkpoint."""
    return [
        *_differences(state.recipe, recipe, but),
        *([f"shards {state.shards} -> {shards}"] if shards != state.shards else []),
        *([f"tokenizer {state.tokenizer[:16]} -> {tokenizer[:16]}"] if tokenizer != state.tokenizer else []),
    ]


def _differences(before: Recipe, now: Recipe, but: set[str]) -> list[str]:
    old: dict[str, Any] = before.model_dump(exclude=but)
    new: dict[str, Any] = now.model_dump(exclude=but)
    return [f"{key} {old[key]!r} -> {new[key]!r}" for key in old if _ordered(old[key]) != _ordered(new[key])]


def _ordered(value: Any) -> Any:
    """Return a form in which order counts: that of `objectives` decides which trains first."""
    return list(value.items()) if isinstance(value, dict) else value


def _only_length(before: Recipe, now: Recipe) -> bool:
    return before != now and not _differences(before, now, INDIFFERENT | LENGTH)
