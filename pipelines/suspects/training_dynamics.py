"""Find suspects by the training dynamics of one run.

Records of low confidence are often labelled wrongly (Swayamdipta et al. 2020, section 5). For mentions, a run
records only the loss. The records with the highest loss per mention then come first, but it isn't known which
mention is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipelines.models.evaluate import read_records
from pipelines.store.storage import arrow
from pipelines.store.store import Store, read_json
from pipelines.store.warehouse import sql
from pipelines.suspects.evidence import Suspect, ranked
from pipelines.suspects.mentions import described, mentions_of
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, CorpusManifest, MixtureManifest, ShardManifest, read_manifests
from ubert.schema.names import checked_name
from ubert.schema.record import Record
from ubert.training.checkpoints.checkpoint import STATE

_PASSES = """
SELECT record_id, confidence, correctness, loss, predicted FROM cartography WHERE run = '{run}' AND record_id IN (
    SELECT record_id FROM records WHERE corpus = '{corpus}' AND split = 'train')
"""


def fingerprint_of(store: Store, run: str) -> list[tuple[str, int]]:
    """Return the names and sizes of the files of a run's dynamics.

    Raises:
        UserError: the run has no dynamics.
    """
    parts = store.dynamics(checked_name("run", run))
    if not parts:
        raise UserError(
            f"run {run}: no dynamics in the store {str(store.root)!r}; train it with `dynamics: true` in "
            "its recipe, or leave out --run"
        )
    filesystem = arrow(store.root)[1]
    return [(part.name, filesystem.get_file_info(arrow(part)[0]).size) for part in parts]


def suspicious_passes(store: Store, manifest: CorpusManifest, run: str) -> pa.Table:
    """Return rows of `SUSPECTS` from the dynamics of a run.

    Raises:
        UserError: the run was not trained on the corpus, or on another version of it.
    """
    rows = sql(store.root, _PASSES.format(run=run, corpus=manifest.name), [manifest.name]).to_pylist()
    if not rows:
        raise UserError(
            f"run {run}: its dynamics have no record of corpus {manifest.name}; give a run that was trained on it"
        )
    _check_version(store, manifest, run)
    passes = {row["record_id"]: row for row in rows}
    records = read_records(*store.current("corpora", manifest.name), "train", None)
    known = [(record, passes[record.record_id]) for record in records if record.record_id in passes]
    found = _labels(known) if rows[0]["confidence"] is not None else _losses(known)
    return ranked(found, f"run {run}")


def _check_version(store: Store, manifest: CorpusManifest, run: str) -> None:
    """Check that a run was trained on the current version of a corpus. Records of another one have the same names.

    Raises:
        UserError: it was trained on another version, or the store no longer has its shards or mixture.
    """
    states = sorted((store.root / "runs").glob(f"{run}/checkpoints/*/{STATE}"), key=str)
    shards = read_json(states[-1])["shards"] if states else None
    made, _ = read_manifests(store.root / "shards", ShardManifest, f"*/{shards}/{MANIFEST}")
    drawn = [f"{one.mixture}/{one.mixture_fingerprint}/{MANIFEST}" for _, one in made]
    mixtures = [
        one for name in drawn for _, one in read_manifests(store.root / "mixtures", MixtureManifest, name)[0]
    ]
    cure = "train again under another name, or leave out --run"
    if not mixtures:
        raise UserError(
            f"run {run}: the store no longer has the mixture or the shards that it was trained on, so it isn't "
            f"known which version of corpus {manifest.name} it learned; {cure}"
        )
    if (version := mixtures[0].versions.get(manifest.name)) != manifest.fingerprint:
        raise UserError(
            f"run {run}: it was trained on version {version} of corpus {manifest.name}, but the current version "
            f"is {manifest.fingerprint}; {cure}"
        )


def _labels(known: list[tuple[Record, dict[str, Any]]]) -> Iterator[Suspect]:
    for record, row in known:
        if row["confidence"] is not None and row["correctness"] < 1:
            right = row["predicted"] in record.labels  # in most passes; of several labels another may be wrong
            if right and record.task != "multilabel":
                continue
            annotated = ", ".join(record.categories[label].name for label in record.labels)
            doubt = 1 - row["confidence"]
            predicted = None if right else record.categories[row["predicted"]].name
            yield Suspect(record, "wrong label", annotated, predicted, doubt, doubt, row["correctness"] == 0)


def _losses(known: list[tuple[Record, dict[str, Any]]]) -> Iterator[Suspect]:
    order = sorted(known, key=lambda one: one[1]["loss"] / (1 + len(one[0].spans)))
    for place, (record, _) in enumerate(order, 1):
        annotated = "; ".join(described(record, mention) for mention in mentions_of(record)) or None
        share = place / len(order)
        yield Suspect(record, "high loss", annotated, None, share, share, False)
