"""Draw a mixture. Its YAML becomes SQL over the corpora, and the same input always gives the same draw.

First, leaks and duplicates are dropped, and listed in `dropped.parquet` (`guard.py`). Then the policy computes the
number of draws from the remaining records (`shares.py`). Last, each source is drawn (`draw.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.audit.held_out import held_out_corpora
from pipelines.mixtures.draw import MEMBERS, Planned, count_tokens, draw, plan
from pipelines.mixtures.guard import counts, dropped
from pipelines.mixtures.sql import condition, count_sql, explain, matching, members_sql, source_name
from pipelines.mixtures.where import check
from pipelines.progress import progress
from pipelines.store.code_hash import code_hash
from pipelines.store.sandbox import sandbox
from pipelines.store.storage import StorePath, persistent
from pipelines.store.store import Store, atomic, now, parquet_writer
from pipelines.store.warehouse import connect, explained
from ubert.schema.errors import UserError
from ubert.schema.licence import CLASSES, POLICIES, meets
from ubert.schema.manifest import (
    MANIFEST,
    CorpusManifest,
    MixtureManifest,
    RealisedSource,
    fingerprint,
    read_manifest,
)
from ubert.schema.specs.mixture import Mixture


def mix(
    mixture: Mixture,
    *,
    root: StorePath,
    into: StorePath | None = None,
    encoder: str | None = None,
    dry_run: bool = False,
) -> MixtureManifest:
    """Draw a mixture. A mixture that is already drawn is not drawn again.

    Args:
        root: the store that has the corpora.
        into: the store that gets the mixture; default: the same one.
        encoder: the encoder whose tokens the manifest counts, if any.
        dry_run: compute the manifest, but write nothing.

    Raises:
        UserError: a corpus is not ingested, its licence is not allowed, or the encoder doesn't exist. A `where` is
            wrong or matches nothing. The mixture refuses leaks and there is one, or a quota cannot be met.
    """
    store, target = (Store(place.absolute()) for place in (root, into or root))
    return persistent(lambda: _mix(mixture, store, target, encoder, dry_run))


def composition(manifest: MixtureManifest) -> pa.Table:
    """Return one row for each source and one for the whole mixture. `share` is a source's share of the tokens,
    0 to 1."""
    tokens = sum(source.tokens or 0 for source in manifest.sources)
    rows = []
    for source in manifest.sources:
        row: dict[str, Any] = {"source": f"{source.corpus}/{source.split}", "available": source.available}
        if manifest.dropped:
            row |= {"leaks": source.dropped_leaks, "repeats": source.dropped_duplicates}
        if manifest.held_out:
            row["held out"] = source.dropped_held_out
        if any(of.dropped_suspects for of in manifest.sources):
            row["suspects"] = source.dropped_suspects
        row |= source.model_dump(include={"records", "draws", "epochs", "tokens"})
        row["share"] = round((source.tokens or 0) / max(1, tokens), 6)
        if len(source.phases) > 1:
            row |= {f"phase {i}": draws for i, draws in enumerate(source.phases)}
        rows.append(row)
    table = pa.Table.from_pylist(rows)
    sums = {f.name: pc.sum(table.column(f.name)) for f in table.schema if pa.types.is_integer(f.type)}
    whole = {**dict.fromkeys(table.column_names), **sums, "source": "(all)", "share": 1.0}
    return pa.concat_tables([table, pa.Table.from_pylist([whole], schema=table.schema)])


def _mix(mixture: Mixture, store: Store, target: Store, encoder: str | None, dry_run: bool) -> MixtureManifest:
    names = dict.fromkeys(leaf.corpus for leaf in mixture.leaves)
    corpora = {name: store.current("corpora", name)[1] for name in names}
    _check_licences(mixture, corpora)
    versions = {name: manifest.fingerprint for name, manifest in corpora.items()}
    held = {name: manifest.fingerprint for name, manifest in held_out_corpora(mixture, store).items()}
    with (
        TemporaryDirectory() as scratch,
        connect(store.root, versions=versions, scratch=Path(scratch)) as connection,
    ):
        available = _counted(connection, store, mixture, corpora)
        with explained(connection, f"mixture {mixture.name}", seconds=None):
            records = {leaf.name: (matching(mixture, leaf), available[leaf.name]) for leaf in mixture.leaves}
            drops = dropped(connection, store, mixture, records, held)
        mark = fingerprint(
            mixture.meaning,
            versions,
            held,
            explain(mixture),
            drops.column("record_id").to_pylist(),
            _audits_seen(store, mixture),
            code_hash("pipelines.mixtures.draw"),
        )
        directory = target.directory("mixtures", mixture.name, mark)
        if (directory / MANIFEST).exists():
            drawn = read_manifest(MixtureManifest, directory)
            manifest = count_tokens(connection, mixture, drawn, encoder) if encoder else drawn
            if not dry_run:
                if manifest != drawn:
                    target.publish("mixtures", manifest)
                manifest = target.again("mixtures", manifest)
            return manifest
        connection.register("dropped", drops)
        matched = _matched(mixture, available, drops)
        planned = plan(connection, mixture, corpora, {name: one.left for name, one in matched.items()})
        with nullcontext() if dry_run else target.working_on("mixtures", mixture.name):
            draws = _members(connection, mixture, planned, None if dry_run else directory / "members.parquet")
            manifest = MixtureManifest(
                name=mixture.name,
                fingerprint=mark,
                created=now(),
                sql=members_sql([one.sql for one in planned]),
                held_out=held,
                sources=[
                    RealisedSource(
                        corpus=leaf.corpus,
                        split=leaf.split,
                        corpus_fingerprint=versions[leaf.corpus],
                        **matched[leaf.name]._asdict(),
                        **draws[leaf.name],
                    )
                    for leaf in mixture.leaves
                ],
            )
            if encoder:
                manifest = count_tokens(connection, mixture, manifest, encoder)
            if not dry_run:
                if len(drops):
                    with atomic(directory / "dropped.parquet") as path:
                        pq.write_table(drops, path, compression="zstd")
                target.publish("mixtures", manifest)
        return manifest


class Matched(NamedTuple):
    """The number of records of a source that match, and of those that are dropped, by reason."""

    available: int
    dropped_leaks: int
    dropped_duplicates: int
    dropped_held_out: int
    dropped_suspects: int

    @property
    def left(self) -> int:
        """Return the number of records that may be drawn."""
        return self.available - sum(self[1:])


def _matched(mixture: Mixture, available: Mapping[str, int], drops: pa.Table) -> dict[str, Matched]:
    """Count matching and dropped records by name of the leaf.

    Raises:
        UserError: no record of a leaf is left.
    """
    fallen = counts(drops)
    found = {}
    for leaf in mixture.leaves:
        one = Matched(
            available[leaf.name],
            fallen[leaf.corpus, leaf.split, "leak"],
            fallen[leaf.corpus, leaf.split, "duplicate"],
            fallen[leaf.corpus, leaf.split, "held out"],
            fallen[leaf.corpus, leaf.split, "suspect"],
        )
        if one.left == 0:
            raise UserError(
                f"{source_name(mixture, leaf)}: of {one.available} records that match, {one.dropped_leaks} are "
                f"dropped as leaks, {one.dropped_duplicates} as duplicates, {one.dropped_held_out} as held out "
                f"and {one.dropped_suspects} as suspects, so none is left; remove the source, or set "
                "`leaks: allow`, `duplicates: keep` or `suspects: keep` in the mixture"
            )
        found[leaf.name] = one
    return found


def _members(
    connection: duckdb.DuckDBPyConnection, mixture: Mixture, planned: Sequence[Planned], path: StorePath | None
) -> dict[str, dict[str, Any]]:
    """Draw from each source, and write the members if a path is given. Return the manifest's fields by leaf."""
    with nullcontext() if path is None else parquet_writer(path, MEMBERS) as file:
        steps = progress(planned, len(planned), "draw")
        return {one.leaf.name: draw(connection, mixture, one, file) for one in steps}


def _audits_seen(store: Store, mixture: Mixture) -> list[str]:
    """Return the fingerprints of all audits if there is a `where`, because it may query them."""
    if not any(leaf.where for leaf in mixture.leaves):
        return []
    return [manifest.fingerprint for _, manifest in store.currents("audits").values()]


def _check_licences(mixture: Mixture, corpora: Mapping[str, CorpusManifest]) -> None:
    """Check that the mixture, and each mixture nested in it, allows the licences of its corpora.

    Raises:
        UserError: a licence is not allowed; one line for each corpus.
    """
    asked, known = ", ".join(mixture.licences), ", ".join([*POLICIES, *CLASSES])
    problems = [
        f"mixture {mixture.name}: the licence of {corpus.name} is {corpus.licence!r} ({corpus.licence_class}), "
        f"but `licences` allows {asked}; remove the source, or add its licence or class to `licences` ({known}); "
        f"if the class is wrong, correct `licence_class` in the spec of {corpus.name} and ingest it again"
        for corpus in (corpora[name] for name in dict.fromkeys(leaf.corpus for leaf in mixture.leaves))
        if mixture.licences and not meets(corpus.licence, corpus.licence_class, mixture.licences)
    ]
    if problems:
        raise UserError("\n".join(problems))
    for source in mixture.sources:
        if source.mixture:
            _check_licences(source.mixture, corpora)


def _counted(
    connection: duckdb.DuckDBPyConnection, store: Store, mixture: Mixture, corpora: Mapping[str, CorpusManifest]
) -> dict[str, int]:
    """Count the matching records of each leaf, by its name. A `where` runs here in a sandbox with limits; later
    evaluations cost the same, so they run without.

    Raises:
        UserError: a `where` is wrong, needs too much or matches nothing.
    """
    counts: dict[str, int] = {}
    for leaf in mixture.leaves:
        if leaf.where:
            check(connection, condition(mixture, leaf), f"{source_name(mixture, leaf)}: where")
    versions = {name: manifest.fingerprint for name, manifest in corpora.items()}
    judged = any(leaf.where for leaf in mixture.leaves)
    with sandbox(store.root, versions=versions) if judged else nullcontext() as ask:
        for leaf in progress(mixture.leaves, len(mixture.leaves), "count"):
            if leaf.where and ask:
                found = ask(count_sql(mixture, leaf), f"{source_name(mixture, leaf)}: where")
                counts[leaf.name] = found.column(0)[0].as_py()
            else:
                splits = corpora[leaf.corpus].splits
                counts[leaf.name] = sum(there.kept for there in splits if there.split == leaf.split)
            if counts[leaf.name] == 0:
                what = f"`where: {leaf.where}` matches no record" if leaf.where else "the split has no record"
                raise UserError(f"{source_name(mixture, leaf)}: {what}; correct it, or remove the source")
    return counts
