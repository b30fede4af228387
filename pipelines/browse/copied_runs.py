"""Copies of the logs of runs in an object store, for pages that read them from a folder."""

from __future__ import annotations

import threading
from pathlib import Path

from pipelines.store.storage import ObjectPath, StorePath, on_disk, remove
from pipelines.store.store import link
from pipelines.training.remote_logs import RemoteLog
from ubert.schema.manifest import MANIFEST, RECIPE
from ubert.schema.names import is_name

_updating = threading.Lock()
_logs: dict[ObjectPath, RemoteLog] = {}


def runs_on_disk(root: StorePath) -> Path:
    """Return a folder of the runs of a store. For an object store, copy their recipes, manifests and logs first.

    Raises:
        UserError: the object store can't be reached.
    """
    if not isinstance(root, ObjectPath):
        return on_disk(root) / "runs"
    copies = on_disk(root) / "browse" / "runs"
    found: dict[str, set[str]] = {}
    for path in (root / "runs").sizes():
        run, _, name = path.partition("/")
        found.setdefault(run, set()).add(name)
    with _updating:
        for run, names in found.items():
            if RECIPE in names and is_name(run):
                _update(root / "runs" / run, copies / run, names)
        for copy in copies.glob("*"):
            if RECIPE not in found.get(copy.name, ()):
                remove(copy)
                _logs.pop(root / "runs" / copy.name, None)
    return copies


def _update(remote: ObjectPath, folder: Path, names: set[str]) -> None:
    """Copy the objects among `names` that a page of the run shows. Only the new pieces of logs are copied."""
    link(remote / RECIPE, folder / RECIPE)
    if MANIFEST in names:
        link(remote / MANIFEST, folder / MANIFEST)
    else:  # a resumed run has no manifest until it ends again
        (folder / MANIFEST).unlink(missing_ok=True)
    _logs.setdefault(remote, RemoteLog(remote, folder)).update(names)
