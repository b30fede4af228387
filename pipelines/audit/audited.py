"""Run an audit once for the same versions of corpora, and keep its evidence and counts in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.store.code_hash import code_hash
from pipelines.store.storage import Place, explained, persistent
from pipelines.store.store import Store, now
from ubert.schema.manifest import MANIFEST, AuditManifest, fingerprint, read_manifest


def audited(
    store: Store,
    name: str,
    corpora: dict[str, str],
    parameters: dict[str, Any],
    search: Callable[[Place], dict[str, int]],
) -> AuditManifest:
    """Make the audit `pipelines.audit.<name>` of corpora (fingerprints by name) the current one. `search` writes
    its evidence to a directory and returns counts. It runs only if the store doesn't have its result.

    Raises:
        UserError: the search fails, or the store can't be written.
    """
    mark = fingerprint(corpora, parameters, code_hash(f"pipelines.audit.{name}"))
    directory = store.directory("audits", name, mark)
    if (directory / MANIFEST).exists():
        return store.again("audits", read_manifest(AuditManifest, directory))
    with store.working_on("audits", name):
        counts = persistent(lambda: explained(directory)(search)(directory))
        manifest = AuditManifest(
            name=name, fingerprint=mark, created=now(), corpora=corpora, parameters=parameters, counts=counts
        )
        store.publish("audits", manifest)
    return manifest
