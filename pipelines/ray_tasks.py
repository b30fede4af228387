"""Run jobs as Ray tasks: in a running Ray session, on a cluster, or in a local Ray that is started for them."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, TypeVar

from pipelines import lost_ray
from ubert.schema.errors import UserError

Result = TypeVar("Result")
ASK_EVERY = 1.0  # seconds between queries of the cluster's number of CPUs


class DiedError(UserError):
    """A job's worker died at each attempt."""


def completed(
    work: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], address: str | None = None
) -> Iterator[tuple[int, Result | UserError]]:
    """Run `work(*job)` for each job. Yield the index of each job and its result or `UserError`, as jobs finish.

    A job is retried three times if it can't read or write a file, or if its worker or machine dies. In the latter
    case its final error is a `DiedError`. Two jobs for each CPU are submitted at any time, so that pending tasks
    make an autoscaling cluster grow. Without jobs, Ray isn't started.

    Raises:
        UserError: Ray died.
    """
    if not jobs:
        return
    import ray
    from ray.exceptions import (
        LocalRayletDiedError,
        NodeDiedError,
        ObjectLostError,
        OutOfMemoryError,
        RayTaskError,
        WorkerCrashedError,
    )

    with session(address):
        task = ray.remote(work).options(retry_exceptions=[OSError])
        running: dict[Any, int] = {}
        following = iter(enumerate(jobs))
        processors, asked = 0, -math.inf
        while True:
            if time.monotonic() - asked > ASK_EVERY:
                processors = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
                asked = time.monotonic()
            while len(running) < 2 * max(1, processors) and (job := next(following, None)):
                running[task.remote(*job[1])] = job[0]
            if not running:
                return
            ended, _ = ray.wait(list(running), num_returns=1, timeout=ASK_EVERY)
            lost_ray.check()
            if not ended:
                continue
            [done] = ended
            index = running.pop(done)
            try:
                yield index, ray.get(done)
            except RayTaskError as error:
                yield index, explained(error)
            except LocalRayletDiedError:
                raise UserError(lost_ray.MESSAGE) from None
            except (WorkerCrashedError, NodeDiedError, ObjectLostError, OutOfMemoryError):
                lost_ray.check(within=2 * lost_ray.EVERY)
                yield index, DiedError("its worker died at each attempt, most likely because memory ran out")


def explained(error: Any) -> UserError:
    """Convert a task's error to a `UserError` if it comes from the user's input, a file or an object
    store. Raise any other error again: it is a bug."""
    match error.cause:
        case UserError() as cause:
            return cause
        case OSError() as cause:
            return UserError(f"{cause}; finished work is kept: run the same command again")
        case _:
            raise error


@contextmanager
def session(address: str | None, *, dashboard: bool = False) -> Iterator[bool]:
    """Start or join Ray, and shut it down afterwards. A session that is already running is used and left running.
    A local Ray gets a dashboard only on request, because it takes seconds to start. SIGTERM then acts as Ctrl-C.

    Yields:
        Whether tasks and actors end with this session.

    Raises:
        KeyboardInterrupt: SIGTERM came while Ray started.
        UserError: Ray does not start, or dies.
    """
    import ray
    from ray._private import auto_init_hook, worker

    if ray.is_initialized():
        yield False
        return
    address = address or os.environ.get("RAY_ADDRESS")
    auto_init_hook.enable_auto_connect = False  # otherwise a thread that is left behind starts another Ray
    worker._worker_logs_enabled = False  # otherwise Ray reports each dead worker on standard output
    # otherwise Ray prints the tracebacks of tasks that failed after the first
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    at_sigterm = signal.getsignal(signal.SIGTERM)
    with lost_ray.report_sudden_exit():
        try:
            with lost_ray.starting():
                if address:
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                else:
                    ray.init(include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise UserError(f"no Ray cluster at {address}: {error}; start one, or leave out --address") from None
        except Exception as error:  # noqa: BLE001  # Ray raises many types if one of its processes does not start
            said = str(error).strip().partition("\n")[0]
            raise UserError(
                f"Ray did not start: {said}; if this machine is busy or one of Ray's processes was killed, "
                "run the same command again"
            ) from None
        except SystemExit:  # from Ray's handler of SIGTERM
            raise KeyboardInterrupt from None
        with lost_ray.watched(ray.shutdown):
            if at_sigterm in (signal.SIG_DFL, signal.default_int_handler) and current_thread() is main_thread():
                signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray's own prints a stack of C++
            yield True
