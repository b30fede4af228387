"""A run as its driver process sees it. It is on this disk, or in an object store while workers train it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.store.storage import ObjectPath, StorePath, on_disk, upload
from pipelines.training import lease
from pipelines.training.remote_logs import RemoteLog
from pipelines.training.remote_run import pull, run_in
from ubert.schema.specs.recipe import Recipe
from ubert.training import run_directory

POLL = 5.0  # seconds between polls of the store


class DrivenRun:
    """A run whose workers share this disk.

    Attributes:
        run: its directory.
        logs: a directory that contains its logs.
        token: the token of the lock in the object store; empty without one.
    """

    token = ""

    def __init__(self, run: Path) -> None:
        self.run = self.logs = run

    def download(self) -> None:
        """Update the run on this disk. No worker may train it meanwhile."""

    def update_logs(self) -> None:
        """Update its logs."""

    def request(self, request: str) -> None:
        """Ask its workers to stop after their step, by creating a file of this name."""
        (self.run / request).touch()

    def withdraw(self, request: str) -> None:
        """Remove the file that `request` created."""
        (self.run / request).unlink(missing_ok=True)


class StoredRun(DrivenRun):
    """A run in an object store. Its logs are copied to a directory of their own."""

    def __init__(self, root: ObjectPath, run: Path, recipe: Recipe, token: str, logs: Path) -> None:
        super().__init__(run)
        self.logs, self.token = logs, token
        self._root, self._recipe = root, recipe
        self._remote = run_in(root, run.name)
        self._log, self._updated = RemoteLog(self._remote, logs), 0.0

    def download(self) -> None:
        download(self._root, self.run, self._recipe)
        if (self._remote / run_directory.STOP).exists():  # it need not come from this process
            (self.run / run_directory.STOP).touch()

    def update_logs(self) -> None:
        if time.monotonic() - self._updated > POLL:
            self._log.update()
            self._updated = time.monotonic()

    def request(self, request: str) -> None:
        if not (self._remote / request).exists():
            with tempfile.NamedTemporaryFile() as empty:
                upload(Path(empty.name), self._remote / request)

    def withdraw(self, request: str) -> None:
        (self._remote / request).unlink()
        super().withdraw(request)  # a worker on this machine may have copied it here


def download(root: StorePath, run: Path, recipe: Recipe) -> None:
    """Download a run from an object store, and the runs that it starts from or continues.

    Raises:
        UserError: the store can't be reached, or the disk is full.
    """
    if isinstance(root, ObjectPath):
        ancestors = (given.partition("/")[0] for given in (recipe.ancestor, recipe.continue_from) if given)
        for name in (run.name, *ancestors):
            pull(run_in(root, name), run.with_name(name))


@contextmanager
def driving(root: StorePath, name: str, recipe: Recipe) -> Iterator[DrivenRun]:
    """Hold the exclusive right to start, stop and restart a run, and download the run to this disk.

    Raises:
        UserError: another process drives it, or the store or the disk fails.
    """
    run = run_directory.directory(on_disk(root), name)
    with run_directory.driving(run):
        if not isinstance(root, ObjectPath):
            yield DrivenRun(run)
            return
        with lease.holding(run_in(root, name)) as token, tempfile.TemporaryDirectory(prefix="ubert-") as logs:
            driven = StoredRun(root, run, recipe, token, Path(logs))
            for request in run_directory.REQUESTS:  # left by an earlier driver, which is dead
                driven.withdraw(request)
            driven.download()
            yield driven
