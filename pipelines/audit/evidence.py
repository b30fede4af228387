"""Schemas and files of evidence: a row for each match of an audit, and for each record that a mixture drops."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest, MixtureManifest
from ubert.schema.record import Task


def _pairs(other: str, *more: pa.Field) -> pa.Schema:
    """Return the schema of a record and another one that is the evidence against it."""
    names = ("record_id", "corpus", "split", f"{other}_id", f"{other}_corpus", f"{other}_split")
    return pa.schema([*(pa.field(name, pa.string(), nullable=False) for name in names), *more])


_KIND = pa.field("kind", pa.string(), nullable=False)  # exact, near or n-gram
_SIMILARITY = pa.field("similarity", pa.float32(), nullable=False)  # Jaccard similarity of the shingles, 0 to 1

# A record that duplicates another one, its keeper, which is not a duplicate.
DUPLICATES = _pairs("keeper", _KIND, _SIMILARITY)
# A record whose text is also in an evaluation split, with any prompt; one row for each such split.
LEAKS = _pairs("evaluation", _KIND, _SIMILARITY)
# A record whose annotation differs from that of the first one with the same text and prompt, in fields `differs`.
CONTRADICTIONS = _pairs(
    "keeper",
    pa.field("task", pa.string(), nullable=False),
    pa.field("differs", pa.string(), nullable=False),
    pa.field("annotation", pa.string(), nullable=False),  # JSON
    pa.field("keeper_annotation", pa.string(), nullable=False),
)
# A training record that shares n-grams with an evaluation split, and the record there that shares the most.
CONTAMINATION = _pairs(
    "evaluation",
    pa.field("ngrams", pa.int64(), nullable=False),  # number of distinct n-grams that both share
    pa.field("share", pa.float32(), nullable=False),  # `ngrams` as a share of the evaluation record's n-grams
    pa.field("records", pa.int64(), nullable=False),  # records of that split that share any n-gram
    pa.field("ngram", pa.string(), nullable=False),  # the first shared one, in normal form
)
LABEL_TASKS: tuple[Task, ...] = ("classification", "pair", "choice", "multilabel")
SUSPECT_TASKS: tuple[Task, ...] = (*LABEL_TASKS, "ner", "qa")  # tasks whose annotations `ubert suspects` checks
# An annotation that a model contradicts; see `ubert suspects`.
SUSPECTS = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("record_id", "corpus", "split")),
        pa.field("rank", pa.int64(), nullable=False),  # rank of the record in its corpus, the worst first
        pa.field("kind", pa.string(), nullable=False),
        pa.field("said", pa.string()),  # the corpus's annotation
        pa.field("predicted", pa.string()),  # the model's prediction
        pa.field("confidence", pa.float32(), nullable=False),  # the model's confidence in its prediction
        pa.field("score", pa.float32(), nullable=False),  # how likely the corpus is wrong, 0 to 1
        pa.field("flagged", pa.bool_(), nullable=False),  # whether `suspects: drop` of a mixture drops the record
        pa.field("source", pa.string(), nullable=False),  # folds, or a run
    ]
)
# A record that a mixture doesn't draw. `reason` is leak, duplicate, held out or suspect; the other record is the
# evaluation record, the keeper, the held-out record, or the record itself.
DROPPED = pa.schema(
    [pa.field("mixture", pa.string(), nullable=False), *_pairs("kept"), pa.field("reason", pa.string()), _KIND]
)

SUSPECTS_OF = "suspects-"  # prefix of a corpus's name in the name of its audit of suspects
_FILES = {
    "duplicates": ("duplicates", "matches.parquet"),
    "leaks": ("duplicates", "leaks.parquet"),
    "contradictions": ("duplicates", "contradictions.parquet"),
    "contamination": ("contamination", "matches.parquet"),
}


def evidence_files(
    audits: Mapping[str, tuple[StorePath, AuditManifest]],
    mixtures: Mapping[str, tuple[StorePath, MixtureManifest]],
) -> dict[str, list[StorePath]]:
    """Return the files of each view of evidence, from the current audits and mixtures."""
    return {
        **{view: [audits[audit][0] / file] if audit in audits else [] for view, (audit, file) in _FILES.items()},
        "suspects": [at / "suspects.parquet" for name, (at, _) in audits.items() if name.startswith(SUSPECTS_OF)],
        "dropped": [at / "dropped.parquet" for at, manifest in mixtures.values() if manifest.dropped],
    }


def audit_of_all(store: Store, audit: str) -> AuditManifest:
    """Return the current audit, and check that it covers the whole store in its current state.

    Raises:
        UserError: there is no such audit. Corpora were added, changed or left out, or evaluation splits left out.
    """
    cure = f"run `ubert {audit}`"
    audits, corpora = store.currents("audits"), store.currents("corpora")
    if audit not in audits:
        raise UserError(f"{store.root}: no audit of {audit} yet; {cure}")
    manifest = audits[audit][1]
    for name, (_, corpus) in corpora.items():
        if manifest.corpora.get(name) != corpus.fingerprint:
            raise UserError(
                f"{store.root}: the audit of {audit} does not cover the current version of {name}; {cure}"
            )
    splits = [(name, counts.split) for name, (_, corpus) in corpora.items() for counts in corpus.splits]
    whole = {"corpora": {*corpora}, "against": {f"{name}/{split}" for name, split in splits if split != "train"}}
    audited = {what: {*names} for what, names in manifest.parameters.items() if isinstance(names, list)}
    for what, expected in whole.items():
        if left_out := sorted(expected - audited.get(what, expected)):
            raise UserError(f"{store.root}: the audit of {audit} leaves out {', '.join(left_out)}; {cure}")
    return manifest
