"""Run an audit once for the same versions of corpora, and keep its evidence and counts in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.store.code_hash import code_hash
from pipelines.store.storage import StorePath, explained, persistent
from pipelines.store.store import Store, now
from ubert.schema.manifest import MANIFEST, AuditManifest, fingerprint, read_manifest


def audited(
    store: Store,
    name: str,
    corpora: dict[str, str],
    parameters: dict[str, Any],
    search: Callable[[StorePath], dict[str, int]],
    *,
    module: str,
    inputs: Any = None,
) -> AuditManifest:
    """Make an audit the current one of its name.

    Args:
        corpora: fingerprints by name.
        search: writes the evidence to a directory and returns counts. It is called only if the store doesn't have
            the result.
        module: the module that implements it.
        inputs: what it reads besides the corpora (any JSON value).

    Raises:
        UserError: the search fails, or the store can't be written.
    """
    mark = fingerprint(corpora, parameters, inputs, code_hash(module))
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
