"""What a command does if Ray dies while the command starts or uses it.

If the head has ended, Ray itself ends the process after a minute, with a message of its own. If the raylet has
ended, Ray lets each task fail with a different message, or ends the process at once and without a message.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from ubert.schema.errors import UserError

EVERY = 0.5  # seconds between checks of Ray
HEAD_IS_AWAY = 45.0  # seconds that a cluster's head may be unreachable; Ray waits for a minute
LONGEST_START = 600  # seconds; Ray may wait for ever if the clock jumps while its first workers start
UNWIND = 20.0  # seconds until a process that doesn't end by itself is ended
MESSAGE = (
    "Ray died: its head or this machine's raylet has ended, perhaps because memory ran out; finished work is "
    "kept: run the same command again (on a cluster, once its head runs again)"
)
ENDED = (
    "the command was ended, most likely because one of Ray's processes died or hung, or memory ran out; finished "
    "work is kept: run the same command again"
)

_lost = threading.Event()


def check(within: float = 0.0) -> None:
    """Raise an error if Ray has died, or dies within `within` seconds.

    Raises:
        UserError: Ray has died.
    """
    if _lost.wait(within):
        raise UserError(MESSAGE)


@contextmanager
def report_sudden_exit() -> Iterator[None]:
    """Print an error even if this process ends without an exception, as Ray's C++ code may end it.

    A shell waits for a line from this process, and prints the error if the process ends without it.
    """
    command = ["sh", "-c", 'read -r line || printf "%s\\n" "$0" >&2', f"error: {ENDED}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as shell:
        try:
            yield
        finally:
            shell.communicate(b"\n")


@contextmanager
def starting(seconds: int = LONGEST_START) -> Iterator[None]:
    """End this process if the block takes longer than `seconds`. The kernel ends it, because Ray's C++ code lets
    no other thread run."""
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


@contextmanager
def watched(shutdown: Callable[[], None]) -> Iterator[None]:
    """Watch the Ray session that was just started or joined, and shut it down at the end.

    Loops that wait for Ray call `check`. A process that still waits for a dead Ray after `UNWIND` seconds ends.

    Raises:
        UserError: Ray died, which made it raise an error.
    """
    from ray.exceptions import RayError

    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(over, _how_to_look()), name="ray-watch", daemon=True)
    watch.start()
    try:
        yield
    except RayError:
        check(within=2 * EVERY)
        raise
    finally:
        if not _lost.is_set():  # the watcher would report a shutdown as a death
            over.set()
            watch.join()
        shutdown()
        over.set()
        _lost.clear()


def _watch(over: threading.Event, is_dead: Callable[[], bool]) -> None:
    while not over.wait(EVERY):
        if is_dead():
            _lost.set()
            if not over.wait(UNWIND):
                Console(stderr=True).show_cursor()  # a progress bar hides it
                os._exit(1)
            return


def _how_to_look() -> Callable[[], bool]:
    """Return a function that tells whether Ray is dead. It checks the processes of a local Ray, or the
    port of a cluster's head."""
    import ray
    from ray._private import worker

    node = worker._global_node
    if node is not None and node.ray_init_cluster:
        return lambda: any(kind in ("gcs_server", "raylet") for kind, _ in node.dead_processes())
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    since = math.inf

    def is_away() -> bool:
        nonlocal since
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=EVERY).close()
            since = math.inf
        except OSError:
            since = min(since, time.monotonic())
        return time.monotonic() - since > HEAD_IS_AWAY

    return is_away
