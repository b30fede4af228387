"""One corpus and one model for labelled text datasets: classify, tag, extract and answer with structure tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ubert.inference.predictor import Predictor
    from ubert.schema.specs.recipe import Precision

__all__ = ["checkpoint", "load", "pipeline"]


def load(path: str | Path, *, precision: Precision = "auto", verify: bool = True) -> Predictor:
    """Load a checkpoint: `ubert.load(path).predict(texts, task="ner", categories=["person", "place"])`.

    Args:
        path: the directory of a checkpoint or of a run (its latest checkpoint), or the name of a model that comes
            with the package, such as universal-small.
        precision: precision of matrix products. auto: bf16 if the processor supports it, two to three times as
            fast. With fp32, scores depend neither on the machine nor on the other texts of a batch (except for
            rounding).
        verify: compare the checkpoint's files with the hashes that were written with them.

    Raises:
        UserError: there is no such checkpoint or precision, or the checkpoint is damaged.
    """
    from ubert.schema.garbage_collection import collector_paused

    with collector_paused():
        # Imported here so that `import ubert` doesn't load torch.
        from ubert.inference.predictor import Predictor
        from ubert.training.checkpoints import checkpoint as checkpoints

        directory = checkpoint(path)
        if verify:
            checkpoints.verify(directory)
        return Predictor.load(directory, precision=precision)


def pipeline(task: str, model: str | Path = "universal-small", **settings: Any) -> Callable[..., Any]:
    """Create a pipeline that is called like one of `transformers.pipeline` and returns results in the same form.

    Args:
        task: zero-shot-classification, or token-classification (ner for short), which gives whole entities as
            transformers does with an `aggregation_strategy`.
        model: as `path` of `load`.
        settings: default settings of the calls, which a call may override. `candidate_labels` are needed for both
            tasks. `instruction` is the task in natural words. zero-shot-classification also takes `multi_label`,
            and token-classification `threshold` and `overlap` (see `Predictor.predict`).

    Raises:
        UserError: there is no pipeline for the task, or no checkpoint.
    """
    from inspect import signature

    from ubert.schema.errors import UserError
    from ubert.transformers_pipeline import PIPELINES

    if task not in PIPELINES:
        raise UserError(f"there is no pipeline for task {task!r}; expected one of {', '.join(PIPELINES)}")
    function, predictor = PIPELINES[task], load(model)

    def call(*given: Any, **asked: Any) -> Any:
        # by name, because a call may override a setting by its position, too
        return function(**settings | signature(function).bind_partial(predictor, *given, **asked).arguments)

    return call


def checkpoint(path: str | Path) -> Path:
    """Return the directory of a checkpoint: `path` itself, the latest checkpoint of the run at `path`, or the
    model of that name that comes with the package.

    Raises:
        UserError: there is no such checkpoint.
    """
    from ubert.model import pretrained
    from ubert.schema.disk import is_folder
    from ubert.schema.errors import UserError
    from ubert.training.checkpoints.checkpoint import latest

    directory = Path(path)
    if not is_folder(directory):
        directory = pretrained.FOLDER / path
        if not is_folder(directory) or directory.parent != pretrained.FOLDER:
            ours = ", ".join(pretrained.names()) or "none"
            raise UserError(
                f"{path}: no such folder; give the folder of a checkpoint or a run, or the name of a model that "
                f"comes with ubert ({ours})"
            )
    if not (directory / "checkpoints").is_dir():
        return directory
    newest = latest(directory)
    if newest is None:
        raise UserError(f"{directory}: the run has no complete checkpoint yet; train it until it writes one")
    return newest
