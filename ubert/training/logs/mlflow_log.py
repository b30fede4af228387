"""Log a run's numbers to MLflow: to `runs/mlflow.db`, or to the store in MLFLOW_TRACKING_URI."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, time
from typing import Any

from ubert.schema.disk import write_whole
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training.logs.log import LogRow, Row, curves, read

RUN = Path("logs/mlflow")  # a file with the id of the MLflow run
EVERY = 10.0  # seconds between two writes; a write takes as long as a step


@contextmanager
def logging_to(run: Path, recipe: Recipe) -> Iterator[LogRow]:
    """Log rows to the MLflow run of a run, and those of its log that MLflow doesn't have yet. If steps are
    repeated, the first values stay.

    Raises:
        UserError: mlflow is not installed, or its store cannot be written.
    """
    if any(find_spec(package) is None for package in ("mlflow", "sqlalchemy", "alembic")):
        raise UserError(f"recipe {recipe.name}: `mlflow` needs that package; run pip install 'ubert[mlflow]'")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no usage reports to its makers
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    from mlflow.entities import Metric  # takes a second
    from mlflow.exceptions import MlflowException

    store = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{run.absolute().parent / 'mlflow.db'}")
    metrics: list[Any] = []
    written = monotonic()
    try:
        client, number, done = _opened(run, recipe, store)

        def write() -> None:
            nonlocal written
            for start in range(0, len(metrics), 1000):  # MLflow's limit
                client.log_batch(number, metrics=metrics[start : start + 1000])
            metrics.clear()
            written = monotonic()

        def log_row(row: Row) -> None:
            if row.step <= done:
                return
            now = int(time() * 1000)
            metrics.extend(Metric(name, value, now, row.step) for name, value in curves(row).items())
            if monotonic() - written > EVERY:
                write()

        for row in read(run)[0]:
            log_row(row)
        ended = "FAILED"
        try:
            yield log_row
            ended = "FINISHED"
        except KeyboardInterrupt:
            ended = "KILLED"
            raise
        finally:
            write()
            client.set_terminated(number, ended)
    except MlflowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{store}: MLflow cannot write there ({reason}); set MLFLOW_TRACKING_URI") from None


def _opened(run: Path, recipe: Recipe, store: str) -> tuple[Any, str, int]:
    """Return a client of the store, the id of the run there, and the last step that it has. A store on another
    machine's disk may have the run; then this store gets one of its own."""
    from mlflow import MlflowClient
    from mlflow.entities import Param
    from mlflow.exceptions import MlflowException

    client = MlflowClient(store)
    if (run / RUN).exists():
        number = (run / RUN).read_text(encoding="utf-8").strip()
        try:
            client.update_run(number, status="RUNNING")
            steps = [one.step for one in client.get_metric_history(number, "learning_rate")]
            return client, number, max(steps, default=0)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
    experiment = client.get_experiment_by_name(recipe.mixture)
    of_mixture = experiment.experiment_id if experiment else client.create_experiment(recipe.mixture)
    number = client.create_run(of_mixture, run_name=run.name).info.run_id
    settings = recipe.model_dump(exclude_none=True)
    client.log_batch(number, params=[Param(name, str(value)) for name, value in settings.items()])
    (run / RUN).parent.mkdir(parents=True, exist_ok=True)
    write_whole(run / RUN, f"{number}\n")
    return client, number, 0
