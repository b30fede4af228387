"""Rank the records of a corpus whose annotations models contradict, and keep the evidence in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.audit.audited import audited
from pipelines.audit.evidence import LABEL_TASKS, SUSPECT_TASKS, SUSPECTS_OF
from pipelines.models.evaluate import read_records
from pipelines.progress import progress
from pipelines.ray_tasks import completed
from pipelines.store.storage import StorePath, parquet
from pipelines.store.store import Store, atomic
from pipelines.suspects.evidence import Suspect, ranked
from pipelines.suspects.fold import PREDICTIONS, Fold, place_of, run_fold
from pipelines.suspects.labels import check_installed, suspicious_labels
from pipelines.suspects.mentions import Mention, Predicted, suspicious_mentions
from pipelines.suspects.start import default_recipe, seen_by
from pipelines.suspects.training_dynamics import fingerprint_of, suspicious_passes
from pipelines.training.short_run import short, weights_of, weights_of_encoder
from ubert.model import pretrained
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest, CorpusManifest
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Recipe

# Fields of a recipe that are replaced, because a fold trains on its own data.
_OWN: dict[str, Any] = {"name": "suspects", "description": "", "mixture": "suspects", "replay": None}


def suspects(
    corpus: str,
    *,
    root: StorePath,
    recipe: Recipe | None = None,
    folds: int = 5,
    run: str | None = None,
    address: str | None = None,
) -> AuditManifest:
    """Find the suspects of a corpus's training split, and write them to the store, for the view `suspects`.

    Finished folds in the store are reused.

    Args:
        recipe: the training of each fold's model; default: a short one that starts from `START`, or from the
            encoder if `START` has seen the corpus.
        run: a finished or unfinished run with `dynamics`, which are used instead of folds.

    Raises:
        UserError: the corpus has no training split, fewer records than folds or a task without suspects, or the
            recipe doesn't fit. Cleanlab is missing, a fold fails, or the run has no dynamics of the corpus.
    """
    store = Store(root.absolute())
    manifest = store.current("corpora", corpus)[1]
    check_corpus(manifest)
    if run is not None:
        version = fingerprint_of(store, run)
        return _kept(store, manifest, f"run {run}", version, lambda: suspicious_passes(store, manifest, run))
    records = sum(counts.kept for counts in manifest.splits if counts.split == "train")
    if folds > records:
        raise UserError(
            f"corpus {corpus} has {records:,} training records, too few for {folds:,} folds; lower --folds to at "
            "most that number"
        )
    if manifest.task in LABEL_TASKS:
        check_installed()
    every = folds_of(manifest, recipe or default_recipe(manifest), folds)
    left = [(fold, store.root) for fold in every if not place_of(store, fold).exists()]
    for _, outcome in progress(completed(run_fold, left, address), len(left), "folds"):
        if isinstance(outcome, UserError):
            raise outcome
    keys = [fold.key for fold in every]
    return _kept(store, manifest, f"{folds} folds", keys, lambda: _found(store, manifest, every))


def check_corpus(manifest: CorpusManifest) -> None:
    """Check that a corpus can have suspects.

    Raises:
        UserError: it has no training split, or neither labels, mentions nor answers.
    """
    if manifest.task not in SUSPECT_TASKS:
        raise UserError(
            f"corpus {manifest.name}: a model can contradict labels, mentions and answers, and task "
            f"{manifest.task} has none of them; give a corpus of {', '.join(SUSPECT_TASKS)}"
        )
    if not any(counts.kept for counts in manifest.splits if counts.split == "train"):
        raise UserError(
            f"corpus {manifest.name} has no training split, so it has no suspects; give another corpus, or "
            "set `split: train` for some of its files in its spec"
        )


def folds_of(manifest: CorpusManifest, recipe: Recipe, folds: int) -> list[Fold]:
    """Return the folds of a corpus.

    Raises:
        UserError: the recipe trains another objective than structure tables. Or it starts from a run, or from a
            model that was trained on the corpus.
    """
    model = recipe.ancestor
    if (
        recipe.objectives != {"structure": 1.0}
        or recipe.continue_from
        or (model and model not in pretrained.names())
    ):
        raise UserError(
            f"recipe {recipe.name}: folds are trained on structure tables, from the encoder or a model that comes "
            f"with ubert ({', '.join(pretrained.names())}); give a recipe without `objectives` and "
            "`continue_from`, and without another `from`"
        )
    if model and (seen := seen_by(model, manifest)):
        raise UserError(
            f"recipe {recipe.name}: {model} was trained on {', '.join(seen)}, so it may have learnt the "
            f"annotations of corpus {manifest.name}; leave out `from`"
        )
    settings = short(recipe, **_OWN).model_dump(mode="json")
    mark = weights_of(pretrained.FOLDER / model) if model else weights_of_encoder(recipe.encoder)
    return [Fold(manifest.name, manifest.fingerprint, settings, mark, number, folds) for number in range(folds)]


def _found(store: Store, manifest: CorpusManifest, folds: list[Fold]) -> pa.Table:
    records = list(read_records(*store.current("corpora", manifest.name), "train", None))
    rows = parquet([place_of(store, fold) for fold in folds], PREDICTIONS).to_table().to_pylist()
    return ranked(contradicted(records, rows), f"{len(folds)} folds")


def contradicted(records: Sequence[Record], rows: Iterable[dict[str, Any]]) -> Iterator[Suspect]:
    """Yield the suspects among records of one task, from models' predictions (rows of `PREDICTIONS`)."""
    if records[0].task in LABEL_TASKS:
        return suspicious_labels(records, _scores(rows))
    return suspicious_mentions(records, _predictions(rows))


def _scores(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["record_id"], {})[row["category"]] = row["score"]
    return found


def _predictions(rows: Iterable[dict[str, Any]]) -> dict[str, Predicted]:
    scores: dict[str, dict[Mention, float]] = {}
    holding: dict[str, list[Mention]] = {}
    for row in rows:
        mention = Mention(row["start"], row["end"], row["category"])
        scores.setdefault(row["record_id"], {})[mention] = row["score"]
        if row["holds"]:
            holding.setdefault(row["record_id"], []).append(mention)
    return {record_id: Predicted(every, holding.get(record_id, ())) for record_id, every in scores.items()}


def _kept(
    store: Store, manifest: CorpusManifest, source: str, inputs: Any, search: Callable[[], pa.Table]
) -> AuditManifest:
    """Write the result of `search` as an audit, unless the store has it already."""

    def write(directory: StorePath) -> dict[str, int]:
        table = search()
        with atomic(directory / "suspects.parquet") as path:
            pq.write_table(table, path, compression="zstd")
        records, flagged = (
            len(set(some["record_id"].to_pylist())) for some in (table, table.filter(table["flagged"]))
        )
        return {"annotations": len(table), "records": records, "flagged": flagged}

    name, versions = f"{SUSPECTS_OF}{manifest.name}", {manifest.name: manifest.fingerprint}
    return audited(store, name, versions, {"source": source}, write, module=__name__, inputs=inputs)
