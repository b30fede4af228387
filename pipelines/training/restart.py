"""One attempt at a run under Ray Train, on so many workers: until it is finished, is to stop or fails; and why it
failed.

Ray starts the workers and joins them; batches, checkpoints and logs are those of `ubert.training`. Nothing is
reported to Ray Train: it keeps no metrics without a checkpoint of its own, and a report waits for its next poll.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist

from pipelines import lost_ray
from pipelines.store.store import now
from pipelines.training.capacity import POLL, Kind
from pipelines.training.driven_run import DrivenRun
from pipelines.training.worker import work_on
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.training import log, run_directory
from ubert.training.step import Worker


def fit(
    work: dict[str, Any],
    driven: DrivenRun,
    workers: int,
    kind: Kind,
    asked: Callable[[], bool],
    roomier: Callable[[], bool],
) -> bool:
    """One attempt under Ray Train, which ends when the run is finished or stops: because it is `asked` to, has
    become `roomier`, or a worker's machine is being taken away; returns whether it was for the room."""
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    run = driven.run
    trainer = TorchTrainer(
        _work,
        train_loop_config=work,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=kind == "GPU"),
        run_config=RunConfig(  # type: ignore[call-arg]  # static types are those of V1
            # a name that comes again makes Ray Train go on with what it knows of it
            name=f"{run.name}-{fingerprint(work, now())}",
            storage_path=str(run / "ray"),
            # threads that spin while they wait make a step ten times as long where others use the processor too
            worker_runtime_env={"env_vars": {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}},
            logging_config=LoggingConfig(log_level="ERROR"),
            # or it would try again for ever, with as many workers, where machines are taken away or are busy
            failure_config=FailureConfig(controller_failure_limit=0, max_preemption_failures=0),  # type: ignore[call-arg]
        ),
    )
    fitting = _begun(trainer.fit)
    grows = _show(driven, fitting, asked, roomier)
    if fitting.done():
        fitting.result()
    return grows


def _begun(work: Callable[[], Any]) -> Future[Any]:
    """Work in a thread that this process leaves behind when it ends: it may wait for a dead Ray for ever."""
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again where the result is asked for
            result.set_exception(error)

    Thread(target=run, name="ray-train", daemon=True).start()
    return result


def _show(driven: DrivenRun, fitting: Future[Any], asked: Callable[[], bool], roomier: Callable[[], bool]) -> bool:
    """Show the run's log as it grows, and pass a wish to stop on to the workers, as a file; returns whether it was
    for room alone.

    Workers may need minutes to start. A run that is asked to stop before their first step loses nothing with them,
    and leaves them to the end of the session.

    Raises:
        UserError: Ray died.
    """
    at_work = grows = False
    driven.look()
    _, seen = log.read(driven.logs)
    with log.progress() as show:
        while wait([fitting], timeout=POLL).not_done:
            lost_ray.check()
            grows = grows or (at_work and roomier())  # before, what they will use counts as free
            if grows:
                driven.ask(run_directory.PAUSE)
            elif asked():
                driven.ask(run_directory.STOP)
                if not at_work:
                    return False
            driven.look()
            rows, seen = log.read(driven.logs, seen)
            at_work = at_work or bool(rows)
            for row in rows:
                show(row)
        for row in log.read(driven.logs, seen)[0]:
            show(row)
    driven.take_back(run_directory.PAUSE)
    return grows


def _work(work: dict[str, Any]) -> None:
    """What each worker runs."""
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
    # `ray.train.get_preemption_info` waits for all workers each time
    told = get_train_context().preemption_context
    work_on(work, worker, lambda: told.preemption_info is not None)


def explained(error: Exception) -> tuple[str, bool]:
    """Why an attempt failed, and whether a worker died in it.

    Raises:
        UserError: what a worker refuses, or what watches them died: Ray holds their room while this job lasts.
        TrainingFailedError: it's a fault of ours.
    """
    from ray.exceptions import RayActorError
    from ray.train import ControllerError, PreemptionError, WorkerGroupError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    match error:
        case RayActorError():
            raise UserError(
                "what watches the workers (Ray Train's controller) died, most likely because Ray's head didn't "
                "answer for a minute or memory ran out; the same command goes on from the last checkpoint"
            ) from None
        case PreemptionError():
            return "a machine was taken away", True
        case ControllerError(controller_failure=WorkerGroupStartupTimeoutError()):
            return "others have taken the room", False
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
    return "a worker died", True


def _died(failure: Exception) -> bool:
    """Whether a worker's failure is that it died, or that it lost the connection to one that did."""
    from ray.exceptions import RayError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError

    cause = getattr(failure, "health_check_failure", failure)
    return isinstance(cause, RayError | dist.DistError | WorkerGroupStartupFailedError) or (
        "gloo/transport" in str(failure)
    )
