"""Faults: what happens to a command of `ubert` while it runs, to its processes, its disk or its object store."""

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
from object_store import ObjectStore

SUBREAPER = 36  # of prctl: whatever loses its parent becomes a child of this process
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
STOPPED = (1.0, 45.0)  # seconds
OUTAGE = (1.0, 20.0)  # seconds
ANSWERS = ("500", "503", "drop", "hang", "500 in words", "403")


@dataclass
class Scene:
    """What a fault can reach. `process` is the command that runs; `disk` and `objects` are there where a trial
    has a small disk, or a store in an object store."""

    rng: random.Random
    process: subprocess.Popen[bytes]
    disk: Path | None
    objects: ObjectStore | None


def adopt() -> None:
    """Make this process the parent of all that its children leave behind, so that it can end them by id."""
    if ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl: cannot become a subreaper")


def family() -> list[psutil.Process]:
    """All living processes below this one."""
    living = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE:
                living.append(one)
    return living


def end_all(spared: list[psutil.Process]) -> None:
    """Kill by id whatever is left, once the command itself has been waited for, and take leave of it."""
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
    """Ray's workers that have something to do."""
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
    """A fault that waits for a process of a kind, and sends it signals with a while between two."""

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


def fill_disk(scene: Scene) -> bool:
    """No room is left, until the trial makes some; without the right to mount, no file gets larger than it is."""
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
    """For some seconds, some or all requests fail in one way or in many."""
    assert scene.objects is not None
    share, answers = scene.rng.choice((0.1, 0.5, 1.0)), scene.rng.sample(ANSWERS, scene.rng.randint(1, 3))
    drawn = random.Random(scene.rng.random())
    until = time.monotonic() + scene.rng.uniform(*OUTAGE)
    with scene.objects.failing(lambda method, path: drawn.choice(answers) if drawn.random() < share else None):
        while time.monotonic() < until and scene.process.poll() is None:
            time.sleep(0.05)
    return True


FAULTS: dict[str, Callable[[Scene], bool]] = {  # each returns whether it met anything
    **{f"kill -9 of {name}": _signalled(key, signal.SIGKILL) for key, name in (
        ("worker", "a worker"), ("raylet", "the raylet"), ("head", "Ray's head"), ("driver", "the driver"))},
    **{f"SIGSTOP of {name}": _signalled(key, signal.SIGSTOP, signal.SIGCONT) for key, name in (
        ("worker", "a worker"), ("raylet", "the raylet"), ("driver", "the driver"))},
    "SIGINT to the driver": _signalled("driver", signal.SIGINT),
    "disk full": fill_disk,
    "object store fails": objects_fail,
}  # fmt: skip
SPECIAL = {"disk full": "disk", "object store fails": "objects"}
