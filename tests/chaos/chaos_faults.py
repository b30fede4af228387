"""Faults to inject into a running `ubert` command: into its processes, clock, disk or object store."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from chaos_clock import set_clock
from object_store import ObjectStore

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphaned descendants become children of this process
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
STOPPED = (1.0, 45.0)  # seconds
OUTAGE = (1.0, 20.0)  # seconds
HOUR, DAY = 3600, 86_400  # seconds
JUMPS = (HOUR, -HOUR, 2 * DAY, -2 * DAY, 400 * DAY, -400 * DAY)  # to before the store was made, too
BETWEEN = (0.2, 5.0)  # seconds between two jumps
ANSWERS = ("500", "503", "drop", "hang", "500 in words", "403")


@dataclass
class Scene:
    """The targets of a fault.

    Attributes:
        process: the running command.
        clock: file with the offset of the clock that its processes see; missing if no compiler could build it.
        disk: small disk of the trial, if it has one.
        objects: object store that holds the trial's store, if it does.
    """

    rng: random.Random
    process: subprocess.Popen[bytes]
    clock: Path
    disk: Path | None
    objects: ObjectStore | None


def adopt() -> None:
    """Make this process the parent of its orphaned descendants, so that it can end them by id."""
    if ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl: cannot become a subreaper")


def family() -> list[psutil.Process]:
    """Return all living descendants of this process."""
    living = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE:
                living.append(one)
    return living


def end_all(spared: list[psutil.Process]) -> None:
    """Kill and reap all remaining descendants by id, after the command itself has ended."""
    while left := [one for one in family() if one not in spared]:
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        time.sleep(0.05)
    for one in psutil.Process().children():
        if one not in spared:
            with suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)


def workers(scene: Scene) -> list[psutil.Process]:
    """Return Ray's busy workers."""
    return [one for one in _named("ray::") if not _title(one).startswith((*AGENTS, "ray::IDLE"))]


def _named(start: str) -> list[psutil.Process]:
    return [one for one in family() if _title(one).startswith(start)]


def _title(one: psutil.Process) -> str:
    with suppress(psutil.Error, IndexError):
        first = one.cmdline()[0]
        return first if first.startswith("ray::") else Path(first).name
    return ""


def _driver(scene: Scene) -> list[psutil.Process]:
    return [psutil.Process(scene.process.pid)]


TARGETS: dict[str, Callable[[Scene], list[psutil.Process]]] = {
    "driver": _driver,
    "worker": workers,
    "raylet": lambda scene: _named("raylet"),
    "head": lambda scene: _named("gcs_server"),
}


def _signalled(target: str, *signals: signal.Signals) -> Callable[[Scene], bool]:
    """Make a fault that waits for a process of a kind, and sends it signals with random pauses."""

    def fault(scene: Scene) -> bool:
        while not (found := TARGETS[target](scene)):
            if scene.process.poll() is not None:
                return False
            time.sleep(0.02)
        one = scene.rng.choice(sorted(found, key=lambda process: process.pid))
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signals[0])
            for number in signals[1:]:
                time.sleep(scene.rng.uniform(*STOPPED))
                one.send_signal(number)
        return True

    return fault


def _go_on(scene: Scene, seconds: tuple[float, float]) -> None:
    """Let the command run for a random time, or until it ends."""
    with suppress(subprocess.TimeoutExpired):
        scene.process.wait(scene.rng.uniform(*seconds))


def clock_jumps(scene: Scene) -> bool:
    """Let the wall clock jump forward and back several times; it keeps the last time until the command ends."""
    jumps = scene.rng.sample(JUMPS, scene.rng.randint(2, len(JUMPS)))
    if not scene.clock.exists():
        return False
    for seconds in jumps:
        set_clock(scene.clock, seconds)
        _go_on(scene, BETWEEN)
    return True


def fill_disk(scene: Scene) -> bool:
    """Fill the trial's small disk, or limit the file size of its processes if the disk could not be mounted."""
    if scene.disk is not None:
        with suppress(OSError), (scene.disk / ".ballast").open("wb") as ballast:
            while True:
                ballast.write(bytes(1 << 16))
                ballast.flush()
        return True
    for one in (*_driver(scene), *workers(scene)):
        with suppress(OSError):
            resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY))
    return True


def objects_fail(scene: Scene) -> bool:
    """Let some or all requests fail for some seconds, in one or several ways."""
    assert scene.objects is not None
    share, answers = scene.rng.choice((0.1, 0.5, 1.0)), scene.rng.sample(ANSWERS, scene.rng.randint(1, 3))
    drawn = random.Random(scene.rng.random())
    with scene.objects.failing(lambda method, path: drawn.choice(answers) if drawn.random() < share else None):
        _go_on(scene, OUTAGE)
    return True


FAULTS: dict[str, Callable[[Scene], bool]] = {  # each returns whether it hit a target
    **{f"kill -9 of {name}": _signalled(key, signal.SIGKILL) for key, name in (
        ("worker", "a worker"), ("raylet", "the raylet"), ("head", "Ray's head"), ("driver", "the driver"))},
    **{f"SIGSTOP of {name}": _signalled(key, signal.SIGSTOP, signal.SIGCONT) for key, name in (
        ("worker", "a worker"), ("raylet", "the raylet"), ("driver", "the driver"))},
    "SIGINT to the driver": _signalled("driver", signal.SIGINT),
    "clock jumps": clock_jumps,
    "disk full": fill_disk,
    "object store fails": objects_fail,
}  # fmt: skip
SPECIAL = {"disk full": "disk", "object store fails": "objects"}
