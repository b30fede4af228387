"""Find contamination: training records that share n-grams with evaluation splits.

The evidence has one row for each training record and evaluation split.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.audit.audited import audited
from pipelines.audit.evidence import CONTAMINATION
from pipelines.audit.exchange import HEAD, ROWS, database, exchange, write
from pipelines.audit.shared_ngrams import find_shared
from pipelines.ray_tasks import session
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest, CorpusManifest

_MATCHES = "FROM matches ORDER BY corpus, split, record_id, evaluation_corpus, evaluation_split"


def contamination(
    names: Sequence[str] = (),
    *,
    root: StorePath,
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
        UserError: a corpus or split is not in the store, or the store has no such split or cannot be written.
    """
    store = Store(root.absolute())
    current = store.currents("corpora")
    trained = {name: current.get(name) or store.current("corpora", name) for name in names} or current
    splits = _evaluation_splits({name: manifest for name, (_, manifest) in current.items()}, against)
    held = {name: current[name] for name in sorted({corpus for corpus, _ in splits})}
    corpora = {name: manifest.fingerprint for name, (_, manifest) in sorted((trained | held).items())}
    spelled = sorted(f"{corpus}/{split}" for corpus, split in splits)
    parameters = {"n": n, "corpora": sorted(trained), "against": spelled}
    manifests = [manifest for _, manifest in (trained | held).values()]

    def search(directory: StorePath) -> dict[str, int]:
        with session(address), exchange(directory, manifests) as between:
            counts = find_shared(between, _parts(held), _parts(trained), splits, n)
            with database(HEAD) as (connection, _):
                between.load(connection, "matches")
                rows = connection.sql(_MATCHES).to_arrow_reader(ROWS)
                write(rows, CONTAMINATION, directory / "matches.parquet")
        return counts

    return audited(store, "contamination", corpora, parameters, search, module=__name__)


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
        raise UserError("no evaluation split in the store to compare training records with; ingest one first")
    return chosen


def _parts(corpora: dict[str, tuple[StorePath, CorpusManifest]]) -> list[StorePath]:
    return [directory / part for directory, manifest in corpora.values() for part in manifest.parts]
