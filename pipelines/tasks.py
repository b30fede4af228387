"""Jobs as Ray tasks: on the Ray at hand, on a cluster, or on a local one that is started just for them."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ubert.schema.errors import UserError

Result = TypeVar("Result")
ASK_EVERY = 1.0  # seconds, how many processors the cluster has
TOO_SLOW = "timed out during startup"


class DiedError(UserError):
    """The workers of one job died, one after the other."""


def completed(
    work: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], address: str | None = None
) -> Iterator[tuple[int, Result | UserError]]:
    """Run `work(*job)` for every job; yield the job's index and its result, or its `UserError`, as they end.

    A job that can't read or write a file, or whose worker or machine dies, is tried again, three times; in the
    latter case its error is a `DiedError`. Two jobs a processor run or wait at any time, so that a cluster that
    grows with what waits grows, and gets more. No Ray is started for no jobs.
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
            [done], _ = ray.wait(list(running), num_returns=1)
            index = running.pop(done)
            try:
                yield index, ray.get(done)
            except RayTaskError as error:
                yield index, explained(error)
            except (WorkerCrashedError, NodeDiedError, LocalRayletDiedError, ObjectLostError, OutOfMemoryError):
                yield index, DiedError("a worker died here again and again, most likely for want of memory")


def explained(error: Any) -> UserError:
    """What a job raised, where it is no fault of ours: a `UserError`, or that of a file or an object store."""
    match error.cause:
        case UserError() as cause:
            return cause
        case OSError() as cause:
            return UserError(f"{cause}; what is finished is kept: run the same command again")
        case _:
            raise error


@contextmanager
def session(address: str | None, *, dashboard: bool = False) -> Iterator[None]:
    """Ray, for as long as it is needed; one that is already there is used and left as it is. A local one has a
    dashboard only where the work needs it: it takes seconds to start."""
    import ray

    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise UserError(f"no Ray cluster at {address}: {error}; start one, or leave out --address") from None
    except Exception as error:
        if TOO_SLOW not in str(error):  # Ray raises it as a plain `Exception`
            raise
        raise UserError(
            "Ray did not start within half a minute, most likely as this machine is busy; run the same command "
            "again when it is less so"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()
