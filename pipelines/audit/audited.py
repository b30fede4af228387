"""Run an audit once for the same versions of corpora, and keep its evidence and counts in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.store.code_hash import code_hash
from pipelines.store.storage import persistent
from pipelines.store.store import Store, atomic, now
from ubert.schema.manifest import MANIFEST, AuditManifest, fingerprint, read_manifest

Found = tuple[dict[str, pa.Table], dict[str, int]]  # tables of evidence by the names of their files, and counts


def audited(
    store: Store, name: str, corpora: dict[str, str], parameters: dict[str, Any], search: Callable[[], Found]
) -> AuditManifest:
    """Make the audit `pipelines.audit.<name>` of corpora (fingerprints by name) the current one. `search` runs
    only if the store doesn't have its result.

    Raises:
        UserError: the search fails, or the store can't be written.
    """
    mark = fingerprint(corpora, parameters, code_hash(f"pipelines.audit.{name}"))
    directory = store.directory("audits", name, mark)
    if (directory / MANIFEST).exists():
        return store.again("audits", read_manifest(AuditManifest, directory))
    with store.working_on("audits", name):
        tables, counts = persistent(search)
        for file, table in tables.items():
            with atomic(directory / f"{file}.parquet") as path:
                pq.write_table(table, path, compression="zstd")
        manifest = AuditManifest(
            name=name, fingerprint=mark, created=now(), corpora=corpora, parameters=parameters, counts=counts
        )
        store.publish("audits", manifest)
    return manifest
