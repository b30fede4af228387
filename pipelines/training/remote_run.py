"""A run in an object store. It trains on a machine's disk, and is uploaded during training.

recipe.yaml, manifest.json, evaluation.json     as on disk
checkpoints/step-*/                             as on disk; complete once it has state.json, the last upload
logs/<file>/<generation>-<offset>               see `remote_logs.py`
dynamics/<first step>-<rank>.parquet            training dynamics, uploaded by the worker that wrote them
stop, pause                                     ask the run to stop after its step
lock.json                                       who trains it, see `lease.py`
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.store.storage import ObjectPath, upload
from pipelines.store.store import link
from pipelines.training import lease
from pipelines.training.remote_logs import LogPieces, RemoteLog
from ubert.inference import thresholds
from ubert.schema.dynamics import FOLDER, first_step
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, RECIPE
from ubert.training.checkpoints import checkpoint
from ubert.training.checkpoints.checkpoint import STATE
from ubert.training.run_directory import REQUESTS

EVALUATION = "evaluation.json"
SMALL = (RECIPE, EVALUATION, MANIFEST)
POLL, UPLOAD = 2.0, 10.0  # seconds between polls for requests to stop, and between uploads of log pieces

logger = logging.getLogger(__name__)


def run_in(root: ObjectPath, name: str) -> ObjectPath:
    return root / "runs" / name


def pull(remote: ObjectPath, run: Path) -> None:
    """Download a run, except what is already on this disk. If the disk has the store's newest checkpoint,
    later checkpoints on the disk stay: this machine stopped before it had uploaded them.

    Raises:
        UserError: the store can't be reached, or the disk is full.
    """
    names = remote.sizes()
    whole = sorted((name.split("/")[1] for name in names if name.endswith(f"/{STATE}")), key=checkpoint.step_of)
    if not whole:
        return
    run.mkdir(parents=True, exist_ok=True)
    with (run / ".pull").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers on one machine share its disk
        differing = [name for name in whole if not _same(remote, run, name)]
        if whole[-1] in differing:
            for path in (run / "checkpoints").glob("step-*"):
                if path.name in differing or path.name not in whole:
                    shutil.rmtree(path)
            shutil.rmtree(run / "logs", ignore_errors=True)
            RemoteLog(remote, run).update(names)
            for part in (run / FOLDER).glob("*.parquet"):
                repeated = first_step(part.name) <= checkpoint.step_of(whole[-1])  # by other machines
                if repeated and f"{FOLDER}/{part.name}" not in names:
                    part.unlink()
            (run / MANIFEST).unlink(missing_ok=True)
        for name in differing:
            _pull_checkpoint(remote, run, names, name)
        fitted = [f"checkpoints/{name}/{thresholds.FILE}" for name in whole]  # perhaps after the download
        for name in (*SMALL, *fitted):
            if name in names and (run / name).parent.is_dir():
                link(remote / name, run / name)


def push_dynamics(remote: ObjectPath, run: Path) -> None:
    """Upload the parts of the training dynamics that the store doesn't have. A part never changes."""
    there = {path.name for path in (remote / FOLDER).glob("*.parquet")}
    for path in sorted((run / FOLDER).glob("*.parquet")):
        if path.name not in there:
            upload(path, remote / FOLDER / path.name)


class Mirror:
    """Uploads a run to the store from the machine that trains it. `token` is the token of the run's lock."""

    def __init__(self, remote: ObjectPath, run: Path, token: str) -> None:
        self.remote, self.run, self._token = remote, run, token
        self._logs: dict[str, LogPieces] = {}
        self._lock = threading.RLock()  # `push` calls `push_logs`

    def push(self) -> None:
        """Upload complete files, and delete checkpoints from the store that the run has deleted.

        Raises:
            UserError: the store can't be reached, or another machine trains the run now.
        """
        with self._lock:
            lease.check(self.remote, self._token)
            if not (self.run / MANIFEST).exists():
                (self.remote / MANIFEST).unlink()
            names = self.remote.sizes()
            here = sorted(path.name for path in (self.run / "checkpoints").glob("step-*"))
            self.push_logs()  # with the dynamics before the checkpoint that a resumed run starts from
            push_dynamics(self.remote, self.run)
            for name in here:
                if not _same(self.remote, self.run, name):
                    self._push_checkpoint(name)
            for name in sorted(names):
                if name.startswith("checkpoints/") and name.split("/")[1] not in here:
                    _remove(self.remote, names, name.split("/")[1])
            for name in SMALL:
                if (self.run / name).exists():
                    upload(self.run / name, self.remote / name)

    def restart(self, done: int) -> None:
        """Upload what the store doesn't have, and remove its training dynamics after step `done`.

        The run repeats these steps.
        """
        self.push()
        for part in (self.remote / FOLDER).glob("*.parquet"):
            if first_step(part.name) > done:
                part.unlink()

    def push_logs(self) -> None:
        """Upload what was appended to the logs."""
        with self._lock:
            for path in sorted((self.run / "logs").glob("*")):
                if path.is_file():
                    self._logs.setdefault(path.name, LogPieces(self.remote / "logs" / path.name)).put(path)

    @contextmanager
    def following(self) -> Iterator[None]:
        """During training, upload pieces of the logs, and copy requests to stop from the store to this disk."""
        ended = threading.Event()
        for request in REQUESTS:  # left by an earlier attempt; the store has those that still apply
            (self.run / request).unlink(missing_ok=True)

        def follow() -> None:
            put = time.monotonic()
            while not ended.wait(POLL):
                try:
                    for request in REQUESTS:
                        if (self.remote / request).exists():
                            (self.run / request).touch()
                    if time.monotonic() - put > UPLOAD:
                        put = time.monotonic()
                        self.push_logs()
                except UserError as error:  # the next checkpoint uploads the logs too, or fails
                    logger.warning("%s", error)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.push_logs()

    def _push_checkpoint(self, name: str) -> None:
        directory, target = self.run / "checkpoints" / name, self.remote / "checkpoints" / name
        (target / STATE).unlink()
        for path in sorted(directory.iterdir(), key=lambda path: path.name == STATE):
            upload(path, target / path.name)


def _pull_checkpoint(remote: ObjectPath, run: Path, names: Iterable[str], name: str) -> None:
    """Download a checkpoint, unless it is corrupt in the store."""
    directory = run / "checkpoints" / name
    half = directory.with_name(f"{checkpoint.HALF}{name}")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    prefix = f"checkpoints/{name}/"
    for file in names:
        if file.startswith(prefix):
            link(remote / file, half / file.removeprefix(prefix))
    try:
        checkpoint.check(half)
    except UserError as error:
        logger.warning("%s/%s: left out: %s", remote, prefix, error)
        shutil.rmtree(half)
        return
    shutil.rmtree(directory, ignore_errors=True)
    half.rename(directory)


def _same(remote: ObjectPath, run: Path, name: str) -> bool:
    """Tell whether the disk and the store have the same checkpoint of that name. Its state contains the
    hashes of all its files."""
    try:
        here = (run / "checkpoints" / name / STATE).read_text(encoding="utf-8")
        return here == (remote / "checkpoints" / name / STATE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def _remove(remote: ObjectPath, names: Iterable[str], name: str) -> None:
    """Delete a checkpoint. Its state goes first, so that the rest no longer counts as one."""
    (remote / "checkpoints" / name / STATE).unlink()
    for file in names:
        if file.startswith(f"checkpoints/{name}/"):
            (remote / file).unlink()
