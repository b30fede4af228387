"""Publish a corpus that a benchmark made up."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.store.store import Store, now
from ubert.schema.manifest import CorpusManifest, SplitCounts
from ubert.schema.record import Split, Task


def publish(
    store: Store, name: str, fingerprint: str, task: Task, splits: Mapping[Split, int], parts: list[str]
) -> None:
    """Publish the `parts` of a corpus, which are in its directory. `splits` has the number of records of each."""
    manifest = CorpusManifest(
        name=name,
        fingerprint=fingerprint,
        created=now(),
        task=task,
        language="en",
        licence="CC0-1.0",
        upstream=None,
        splits=[
            SplitCounts(split=split, files=1, bytes=1, records=n, kept=n, rejected=0)
            for split, n in splits.items()
        ],
        parts=parts,
        reject_parts=[],
        mismatch_parts=[],
    )
    store.publish("corpora", manifest)
