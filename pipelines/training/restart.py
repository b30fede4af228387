"""One attempt at a run under Ray Train with a fixed number of workers, and the reason if it fails.

Ray starts the workers and connects them; batches, checkpoints and logs come from `ubert.training`. Nothing
is reported to Ray Train, because it keeps no metrics without a checkpoint of its own, and each report
waits for its next poll.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist

from pipelines import lost_ray, openmp
from pipelines.store.store import now
from pipelines.training.capacity import POLL, Kind
from pipelines.training.driven_run import DrivenRun
from pipelines.training.worker import work_on
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.training import run_directory
from ubert.training.logs import log
from ubert.training.step import Worker

DIED, PREEMPTED = "a worker died", "a machine was preempted"
CURES = {
    DIED: "most likely memory ran out: lower tokens_per_step or ask for fewer --workers",
    PREEMPTED: "lower checkpoint_every, or use machines that are preempted less often",
}  # if it happens again and again


def fit(
    work: dict[str, Any],
    driven: DrivenRun,
    workers: int,
    kind: Kind,
    stop_requested: Callable[[], bool],
    can_grow: Callable[[], bool],
    leaves: bool,
) -> bool:
    """Run one attempt under Ray Train, until the run is finished or stops.

    It stops if `stop_requested` or `can_grow` returns true, or if a worker's machine is being preempted.

    Args:
        leaves: return at once if `stop_requested` returns true before the first step. Workers may need minutes to
            start, and the end of the Ray session must end them.

    Returns:
        Whether it stopped because of `can_grow`.
    """
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    run = driven.run
    trainer = TorchTrainer(
        _work,
        train_loop_config=work,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=kind == "GPU"),
        run_config=RunConfig(  # type: ignore[call-arg]  # static types are those of V1
            # with a name it has seen, Ray Train would resume the state that it stored
            name=f"{run.name}-{fingerprint(work, now())}",
            storage_path=str(run / "ray"),
            worker_runtime_env={"env_vars": openmp.variables()},
            logging_config=LoggingConfig(log_level="ERROR"),
            # otherwise Ray retries for ever, with as many workers, when machines are preempted or busy
            failure_config=FailureConfig(controller_failure_limit=0, max_preemption_failures=0),  # type: ignore[call-arg]
        ),
    )
    driven.update_logs()
    _, seen = log.read(driven.logs)
    attempt = _in_thread(trainer.fit)
    grows = _show(driven, seen, attempt, stop_requested, can_grow, leaves)
    if attempt.done():
        attempt.result()
    return grows


def _in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run `work` in a daemon thread. It may wait for a dead Ray for ever, and the process can end without it."""
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by `result()`
            result.set_exception(error)

    Thread(target=run, name="ray-train", daemon=True).start()
    return result


def _show(
    driven: DrivenRun,
    seen: int,
    attempt: Future[Any],
    stop_requested: Callable[[], bool],
    can_grow: Callable[[], bool],
    leaves: bool,
) -> bool:
    """Show the run's log from byte `seen` on as it grows, and forward requests to stop to the workers, as
    files. Return whether the run paused to continue with more workers.

    Raises:
        UserError: Ray died.
    """
    at_work = grows = False
    with log.progress() as show:
        while wait([attempt], timeout=POLL).not_done:
            lost_ray.check()
            # before a step, the processors of starting workers count as free
            grows = grows or (at_work and can_grow())
            stops = stop_requested()
            if grows:
                driven.request(run_directory.PAUSE)
            elif stops:
                driven.request(run_directory.STOP)
            driven.update_logs()
            rows, seen = log.read(driven.logs, seen)
            at_work = at_work or bool(rows)
            if leaves and stops and not at_work:  # read after the request: steps before it are in the log
                return False
            for row in rows:
                show(row)
        for row in log.read(driven.logs, seen)[0]:
            show(row)
    driven.withdraw(run_directory.PAUSE)
    return grows


def _work(work: dict[str, Any]) -> None:
    """Run the training loop in a worker process."""
    import ray.train
    import ray.train.torch
    from ray.train.v2._internal.execution.context import get_train_context

    context = ray.train.get_context()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // context.get_local_world_size()))
    worker = Worker(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        device=ray.train.torch.get_device(),
        progress=False,
    )
    # `ray.train.get_preemption_info` waits for all workers at each call
    preemption = get_train_context().preemption_context
    work_on(work, worker, lambda: preemption.preemption_info is not None)


def explained(error: Exception) -> tuple[str, bool]:
    """Return why an attempt failed, and whether a worker died in it.

    Raises:
        UserError: a worker raised it, or Ray Train's controller died. In the latter case Ray reserves
            the workers' resources until this job ends.
        TrainingFailedError: the failure is a bug.
    """
    from ray.exceptions import RayActorError
    from ray.train import ControllerError, PreemptionError, WorkerGroupError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    match error:
        case RayActorError():
            raise UserError(
                "Ray Train's controller died, most likely because Ray's head did not answer for a minute or "
                "memory ran out; the same command continues from the last checkpoint"
            ) from None
        case PreemptionError():
            return PREEMPTED, True
        case ControllerError(controller_failure=WorkerGroupStartupTimeoutError()):
            return "other jobs took the CPUs or GPUs", False
        case ControllerError(controller_failure=failure):
            failures = [failure]
        case WorkerGroupError(worker_failures=by_rank):
            failures = list(by_rank.values())
        case _:
            raise error
    for failure in failures:
        if isinstance(failure, UserError):
            raise UserError(str(failure)) from None
    if not any(map(_died, failures)):
        raise error
    return DIED, True


def _died(failure: Exception) -> bool:
    """Tell whether a worker died, or lost its connection to one that did."""
    from ray.exceptions import RayError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError

    cause = getattr(failure, "health_check_failure", failure)
    return isinstance(cause, RayError | dist.DistError | WorkerGroupStartupFailedError) or (
        "gloo/transport" in str(failure)
    )
