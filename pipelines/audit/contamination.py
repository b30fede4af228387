"""Find contamination: training records that share n-grams with evaluation splits.

The evidence has one row for each training record and evaluation split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.audit.audited import Found, audited
from pipelines.audit.evidence import CONTAMINATION
from pipelines.audit.ngrams import INDEXED, contaminated, index_of, indexed
from pipelines.progress import progress
from pipelines.store.storage import Place
from pipelines.store.store import Store
from pipelines.tasks import completed, session
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest, CorpusManifest


def contamination(
    names: Sequence[str] = (),
    *,
    root: Place,
    against: Sequence[str] = (),
    n: int = 13,
    address: str | None = None,
) -> AuditManifest:
    """Compare the training records of corpora with evaluation splits. An existing audit of the same versions is
    reused.

    Args:
        names: corpora whose training records are compared; default: all.
        against: `corpus/split`, or `corpus` for all its evaluation splits; default: every test and validation
            split of the store.
        n: words of an n-gram.

    Raises:
        UserError: a corpus or split is not in the store, or there is none; the store cannot be written.
    """
    store = Store(root.absolute())
    current = {name: store.current("corpora", name) for name in store.names("corpora")}
    trained = {name: current.get(name) or store.current("corpora", name) for name in names} or current
    splits = _evaluation_splits({name: manifest for name, (_, manifest) in current.items()}, against)
    held = {name: current[name] for name in sorted({corpus for corpus, _ in splits})}
    corpora = {name: manifest.fingerprint for name, (_, manifest) in sorted((trained | held).items())}
    spelled = sorted(f"{corpus}/{split}" for corpus, split in splits)
    parameters = {"n": n, "corpora": sorted(trained), "against": spelled}

    def search() -> Found:
        import ray

        with session(address):
            jobs = [(part, splits, n) for part in _parts(held)]
            rows = pa.concat_tables([INDEXED.empty_table(), *_done(indexed, jobs, "evaluation splits")])
            rows = rows.sort_by([(name, "ascending") for name in ("corpus", "split", "record_id")])
            index = ray.put(index_of(rows))
            hits = [*_done(contaminated, [(part, index, n) for part in _parts(trained)], "training records")]
        found = _evidence(pa.concat_tables(hits), rows)
        records = len(pc.unique(found.column("record_id")))
        counts = {"evaluation_records": len(rows), "matches": len(found), "contaminated_records": records}
        return {"matches": found}, counts

    return audited(store, "contamination", corpora, parameters, search)


def _evaluation_splits(corpora: dict[str, CorpusManifest], against: Sequence[str]) -> list[tuple[str, str]]:
    """Return the evaluation splits (corpus, split) that `against` names, or all if it is empty.

    Raises:
        UserError: there is no split of a name, or none at all.
    """
    splits = [(name, str(counts.split)) for name, manifest in corpora.items() for counts in manifest.splits]
    there = sorted((name, split) for name, split in splits if split != "train")
    names = ", ".join(f"{corpus}/{split}" for corpus, split in there) or "none"
    for name in against:
        if not any(name in (corpus, f"{corpus}/{split}") for corpus, split in there):
            raise UserError(f"--against {name}: no such evaluation split in the store; there are {names}")
    chosen = [(c, s) for c, s in there if not against or c in against or f"{c}/{s}" in against]
    if not chosen:
        raise UserError("no evaluation split in the store to hold training records against; ingest one first")
    return chosen


def _parts(corpora: dict[str, tuple[Place, CorpusManifest]]) -> list[Place]:
    return [directory / part for directory, manifest in corpora.values() for part in manifest.parts]


def _done(work: Callable[..., pa.Table], jobs: Sequence[tuple[Any, ...]], label: str) -> Iterator[pa.Table]:
    for _, outcome in progress(completed(work, jobs), len(jobs), label):
        if isinstance(outcome, UserError):
            raise outcome
        yield outcome


def _evidence(hits: pa.Table, evaluation: pa.Table) -> pa.Table:
    """Return sorted rows of `CONTAMINATION`, with the indices of evaluation records replaced by their ids."""
    other = evaluation.take(hits.column("evaluation"))
    share = hits.column("ngrams").to_numpy() / pc.list_value_length(other.column("ngrams")).to_numpy()
    columns = {
        **{name: hits.column(name) for name in hits.column_names if name != "evaluation"},
        "evaluation_id": other.column("record_id"),
        "evaluation_corpus": other.column("corpus"),
        "evaluation_split": other.column("split"),
        "share": pa.array(share.astype(np.float32)),
    }
    table = pa.table([columns[name] for name in CONTAMINATION.names], schema=CONTAMINATION)
    order = ("corpus", "split", "record_id", "evaluation_corpus", "evaluation_split")
    return table.sort_by([(name, "ascending") for name in order])
