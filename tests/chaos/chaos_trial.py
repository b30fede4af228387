"""A trial: one command in its own folder, first under faults and then without."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos_clock import clocked
from chaos_faults import FAULTS, SPECIAL, Scene, end_all
from chaos_ray import Cluster
from chaos_world import Stage, World, differences, digest
from object_store import ENVIRONMENT, ObjectStore
from pyarrow.fs import FileSelector
from ray_head import environment

HANGS = 900.0  # seconds after which a command counts as hanging
BUSY, PATIENCE = "Ray did not start", 10  # maximum attempts
MOST_FAULTS = 3  # maximum faults per attempt
WAYS = ("ended well", "one sentence", "Ray's words", "killed")  # how an attempt ends
RAY_SAYS = "because it is dead. Worker will terminate."  # Ray logs this, and ends the process that is joining


@dataclass
class Tally:
    """Outcomes of attempts and trials.

    Attributes:
        rows: counts by fault, stage and outcome of the attempt.
        failed: messages of failed trials.
        trials: counts by stage.
    """

    rows: Counter[tuple[str, Stage, str]] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    trials: Counter[Stage] = field(default_factory=Counter)


@dataclass(frozen=True)
class Chaos:
    """A world, the faults to draw from, the duration and the expected store of each stage, and an object store."""

    world: World
    faults: list[str]
    seconds: dict[Stage, float]
    expected: dict[Stage, dict[str, str]]
    objects: ObjectStore
    endpoint: str
    cluster: Cluster | None

    def end_all(self) -> None:
        """Kill the processes that a command has left behind."""
        end_all(self.cluster.family() if self.cluster else [])


def variables(folder: Path, endpoint: str) -> dict[str, str]:
    """Return the environment variables of a command, or of Ray, with all files in a folder."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return environment(home) | ENVIRONMENT | clocked(folder) | {
        "AWS_ENDPOINT_URL": endpoint,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_TMPDIR": str(folder),
        "RAY_gcs_server_port_wait_time_s": "60",
        "RAY_worker_niceness": "0",  # default priority: on a busy machine, nicer workers would starve
        "XDG_DATA_HOME": str(folder),
    }  # fmt: skip


@dataclass
class Trial:
    """A stage in its own folder."""

    chaos: Chaos
    stage: Stage
    folder: Path
    rng: random.Random
    setting: str

    @property
    def store(self) -> Path:
        """The part of the store that is on the disk."""
        return self.folder / (f"ubert/bucket/{self.folder.name}" if self.setting == "objects" else "disk/store")

    @property
    def mounted(self) -> bool:
        return self.setting == "disk" and (self.folder / "disk").is_mount()

    @contextmanager
    def set_up(self) -> Iterator[None]:
        """Copy the store from before the stage; mount a small disk for it if the disk is to fill up."""
        (self.folder / "disk").mkdir(parents=True)
        if self.setting == "disk":
            mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(self.folder / "disk")]
            subprocess.run(mount, capture_output=True, check=False)
        try:
            before = self.chaos.world.before(self.stage)
            if self.setting == "objects":
                for path in before.rglob("*"):
                    if path.is_file():
                        self.chaos.objects.put(f"{self.key}/{path.relative_to(before)}", path.read_bytes())
            else:
                shutil.copytree(before, self.store)
            yield
        finally:
            if self.mounted:
                shutil.copytree(self.store, self.folder / "kept", dirs_exist_ok=True)  # for a trial that fails
                subprocess.run(["umount", "--lazy", str(self.folder / "disk")], check=True)

    @property
    def key(self) -> str:
        return f"bucket/{self.folder.name}"

    def start(self, log: str) -> subprocess.Popen[bytes]:
        environ = variables(self.folder, self.chaos.endpoint)
        if self.chaos.cluster:
            environ["RAY_ADDRESS"] = self.chaos.cluster.address()
        with (self.folder / f"{log}.out").open("wb") as out, (self.folder / f"{log}.err").open("wb") as err:
            arguments = [sys.executable, "-m", "pipelines.cli", *self.command()]
            return subprocess.Popen(arguments, env=environ, cwd=self.folder, stdout=out, stderr=err)

    def attempt(self, number: int, tally: Tally) -> bool:
        """Run the command under faults; return whether it succeeded."""
        log = f"attempt-{number}"
        process = self.start(log)
        scene = Scene(
            self.rng,
            process,
            self.folder / "clock",
            self.folder / "disk" if self.mounted else None,
            self.chaos.objects if self.setting == "objects" else None,
        )
        special = [name for name in self.chaos.faults if SPECIAL.get(name) == self.setting]
        others = [name for name in self.chaos.faults if name not in SPECIAL]
        hit = []
        for _ in range(self.rng.randint(1, MOST_FAULTS)):
            kind = self.rng.choice(special if special and self.rng.random() < 0.6 else others)
            until = time.monotonic() + self.rng.random() * self.chaos.seconds[self.stage]
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            if process.poll() is None and FAULTS[kind](scene):
                hit.append(kind)
        code = self.ended(process, log)
        if self.chaos.cluster and any("raylet" in kind or "head" in kind for kind in hit):
            self.chaos.cluster.end()
        (self.folder / "disk/.ballast").unlink(missing_ok=True)
        print(f"; {', '.join(hit) or 'nothing hit it'}: exit {code}", end="", flush=True)
        said = self.said(log)
        how = WAYS[0 if code == 0 else 3 if code == -signal.SIGKILL else 2 if RAY_SAYS in said else 1]
        tally.rows.update((kind, self.stage, how) for kind in hit)
        if how == "one sentence":
            assert "Traceback" not in said and "internal error" not in said, f"a bug in {log}"
            interrupted = code in (130, -signal.SIGINT)  # the latter if the command is done and Python ends
            assert interrupted or (code == 1 and "error: " in said), f"{log} says nothing, exit {code}"
        return code == 0

    def run_without_faults(self) -> float:
        """Run the command without faults, again if the machine was too busy to start Ray; return its seconds."""
        for number in range(PATIENCE):
            log = f"peace-{number}"
            process = self.start(log)
            began = time.monotonic()
            code = self.ended(process, log)
            seconds = time.monotonic() - began
            self.chaos.end_all()
            if BUSY not in (said := self.said(log)):
                break
        assert code == 0, f"in peace it ended with {code}: {said.strip()[-300:]}"
        return seconds

    def command(self) -> list[str]:
        root = f"s3://{self.key}" if self.setting == "objects" else str(self.store)
        return self.chaos.world.command(self.stage, root)

    def said(self, log: str) -> str:
        return (self.folder / f"{log}.err").read_text(encoding="utf-8", errors="replace")

    def ended(self, process: subprocess.Popen[bytes], log: str) -> int:
        try:
            return process.wait(HANGS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{log} hangs") from None

    def check(self) -> None:
        """Compare the store with that of an uninterrupted run."""
        if self.setting == "objects":
            files = self.chaos.objects.files
            for info in files.get_file_info(FileSelector(self.key, recursive=True)):
                if info.is_file:
                    path = self.store / info.path.removeprefix(f"{self.key}/")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(files.open_input_stream(info.path).read())
        expected, found = self.chaos.expected[self.stage], digest(self.store)
        for name, digests in (("expected", expected), ("found", found)):
            (self.folder / f"{name}.json").write_text(json.dumps(digests, indent=1), encoding="utf-8")
        assert not (others := differences(expected, found)), "; ".join(others)
