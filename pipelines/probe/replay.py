"""Replay a mixture beside the shots, and measure what is forgotten of its corpora."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.audit.held_out import covered
from pipelines.probe.shots import NOT_PROBED, shuffled
from pipelines.store.storage import intact, parquet, parquet_file
from pipelines.store.store import Store
from ubert.schema.arrow import batch_to_records
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest, MixtureManifest, read_manifest
from ubert.schema.record import RECORD_SCHEMA, Record, Split


class Kept(NamedTuple):
    """A split that a mixture does not draw from, of a corpus that it draws from. `version` is the corpus's."""

    corpus: str
    version: str
    split: Split


class Replayed(NamedTuple):
    """A drawn mixture, and the share of the training records that come from it."""

    mixture: str
    version: str
    share: float


def kept_of(drawn: MixtureManifest, names: Sequence[str] | None, store: Store) -> tuple[Kept, ...]:
    """Return what shows whether a mixture's corpora are forgotten: of each the test split, else validation.

    Args:
        names: corpora of the mixture; default: all that have such a split.

    Raises:
        UserError: one of `names` is not in the mixture, or has no such split; or none has.
    """
    seen = {(source.corpus, source.split) for source in drawn.sources}
    able: dict[str, Kept] = {}
    for corpus in dict.fromkeys(source.corpus for source in drawn.sources):
        manifest = store.current("corpora", corpus)[1]
        unseen = {counts.split for counts in manifest.splits if counts.kept and (corpus, counts.split) not in seen}
        tests: tuple[Split, ...] = ("test", "validation")
        if manifest.task not in NOT_PROBED and (split := next((one for one in tests if one in unseen), None)):
            able[corpus] = Kept(corpus, manifest.fingerprint, split)
    if wrong := [name for name in names or () if name not in able]:
        raise UserError(
            f"--keep {','.join(wrong)}: can't be measured, because mixture {drawn.name} draws nothing from it, or "
            f"draws from all its splits; name {'some of ' + ', '.join(able) if able else 'another mixture'}"
        )
    if not able:
        raise UserError(
            f"mixture {drawn.name} draws from every split of its corpora, so forgetting can't be measured; name "
            "another mixture with --replay"
        )
    return tuple(able[name] for name in names or able)


def replayed(replay: Replayed, beside: int, without: str, seed: int, store: Store) -> list[Record]:
    """Draw distinct records of a mixture by key, as many as make its share beside other records.

    They are read from the versions of the corpora that the mixture was drawn from.

    Args:
        beside: number of the other records.
        without: the corpus of the other records. None is drawn of it, nor of its twins.
    """
    count = round(beside * replay.share / (1 - replay.share))
    place = store.directory("mixtures", replay.mixture, replay.version)
    versions = read_manifest(MixtureManifest, place).versions
    members = parquet_file(place / "members.parquet")
    table = members.read(["record_id", "corpus"]).group_by(["record_id", "corpus"]).aggregate([])
    corpora = {name: manifest for name, (_, manifest) in store.currents("corpora").items()}
    same = pa.array([without, *covered([without], corpora)])
    table = table.filter(pc.invert(pc.is_in(table["corpus"], same)))
    chosen = table.take(shuffled(table["record_id"].to_pylist(), seed)[:count])
    records: list[Record] = []
    for corpus in sorted(set(chosen["corpus"].to_pylist())):
        wanted = chosen.filter(pc.equal(chosen["corpus"], corpus))["record_id"].combine_chunks()
        directory = store.directory("corpora", corpus, versions[corpus])
        parts = read_manifest(CorpusManifest, directory).parts
        found = parquet([directory / part for part in parts], RECORD_SCHEMA)
        with intact():
            for batch in found.to_batches(filter=ds.field("record_id").isin(wanted)):
                records += batch_to_records(batch)
    return records
