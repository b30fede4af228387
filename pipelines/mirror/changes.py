"""Describe how a source differs from its pin or from an earlier download."""

from __future__ import annotations

from pathlib import Path

from pipelines.mirror.download import Download
from pipelines.mirror.record import Fetched
from pipelines.mirror.resume import Origin
from ubert.schema.specs.fetch import Fetch


def changed(
    fetch: Fetch, got: str, download: Download, then: Fetched | None, place: Path, *, here: bool = False
) -> str:
    """Describe what is wrong with a download, what changed since the last one, and what to do. `here` means that
    the earlier content is still at `place`."""
    now = f"got {got}{_described(download.origins)}"
    words = [f"{fetch.source}: not the content that is pinned: expected blake3 {fetch.blake3}, {now}"]
    if not fetch.blake3 and then:
        words = [f"{fetch.source}: changed since {then.when}: expected blake3 {then.blake3}, {now}"]
    if then:
        words.append(f"on {then.when} it was {then.blake3}{_described(then.origins)}")
        words += _differences(then.parts, download.parts)
    keep = "revision" if fetch.scheme == "hf" else f"file as {place}" if not fetch.many else f"files in {place}"
    cure = f"keep the earlier {keep}, which still exists" if here else f"put the earlier {keep}"
    words.append(f"if the change is intended, put `blake3: {got}` into the spec, else {cure}")
    return "; ".join(words)


def _differences(then: dict[str, str], now: dict[str, str]) -> list[str]:
    kinds = {
        "changed": [name for name in now if name in then and then[name] != now[name]],
        "new": [name for name in now if name not in then],
        "removed": [name for name in then if name not in now],
    }
    return [f"{kind}: {', '.join(sorted(names)[:5])} ({len(names)})" for kind, names in kinds.items() if names]


def _described(origins: dict[str, Origin]) -> str:
    """Describe the size, ETag and time of a single file, as its source reports them."""
    if len(origins) != 1:
        return ""
    [origin] = origins.values()
    facts = [
        "" if origin.size is None else f"{origin.size:,} bytes",
        origin.etag and f"ETag {origin.etag}",
        origin.last_modified and f"Last-Modified {origin.last_modified}",
    ]
    return f" ({', '.join(filter(None, facts))})" if any(facts) else ""
