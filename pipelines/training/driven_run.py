"""A run as its driver process sees it. The run lies on this disk, or in an object store while workers train it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.store.storage import ObjectPath, Place, on_disk, upload
from pipelines.training import lease
from pipelines.training.remote_run import RemoteLog, pull, run_in
from ubert.schema.specs.recipe import Recipe
from ubert.training import run_directory

LOOK = 5.0  # seconds between polls of the store


class DrivenRun:
    """A run whose workers share this disk.

    Attributes:
        run: its directory.
        logs: a directory that contains its logs.
        word: the token of the lock in the object store; empty without one.
    """

    word = ""

    def __init__(self, run: Path) -> None:
        self.run = self.logs = run

    def bring(self) -> None:
        """Update the run on this disk. No worker may train it meanwhile."""

    def look(self) -> None:
        """Update its logs."""

    def ask(self, request: str) -> None:
        """Ask its workers to stop after their step, by creating a file of this name."""
        (self.run / request).touch()

    def withdraw(self, request: str) -> None:
        """Remove the file that `ask` created."""
        (self.run / request).unlink(missing_ok=True)


class StoredRun(DrivenRun):
    """A run in an object store. Its logs are copied to a directory of their own."""

    def __init__(self, root: ObjectPath, run: Path, recipe: Recipe, word: str, logs: Path) -> None:
        super().__init__(run)
        self.logs, self.word = logs, word
        self._root, self._recipe = root, recipe
        self._there = run_in(root, run.name)
        self._log, self._looked = RemoteLog(self._there, logs), 0.0

    def bring(self) -> None:
        bring(self._root, self.run, self._recipe)

    def look(self) -> None:
        if time.monotonic() - self._looked > LOOK:
            self._log.look()
            self._looked = time.monotonic()

    def ask(self, request: str) -> None:
        if not (self._there / request).exists():
            with tempfile.NamedTemporaryFile() as empty:
                upload(Path(empty.name), self._there / request)

    def withdraw(self, request: str) -> None:
        (self._there / request).unlink()


def bring(root: Place, run: Path, recipe: Recipe) -> None:
    """Download a run from an object store, and the runs that it starts from or continues.

    Raises:
        UserError: the store can't be reached, or the disk is full.
    """
    if isinstance(root, ObjectPath):
        others = (given.partition("/")[0] for given in (recipe.ancestor, recipe.continue_from) if given)
        for name in (run.name, *others):
            pull(run_in(root, name), run.with_name(name))


@contextmanager
def driving(root: Place, name: str, recipe: Recipe) -> Iterator[DrivenRun]:
    """Hold the exclusive right to start, stop and restart a run, and download the run to this disk.

    Raises:
        UserError: another process drives it, or the store or the disk fails.
    """
    run = run_directory.directory(on_disk(root), name)
    with run_directory.driving(run):
        if not isinstance(root, ObjectPath):
            yield DrivenRun(run)
            return
        with lease.holding(run_in(root, name)) as word, tempfile.TemporaryDirectory(prefix="ubert-") as logs:
            driven = StoredRun(root, run, recipe, word, Path(logs))
            for request in run_directory.REQUESTS:  # left by an earlier driver, which is dead
                driven.withdraw(request)
            driven.bring()
            yield driven
