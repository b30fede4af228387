"""Predict a large file with several processes: Ray Data reads it in one, and predicts its chunks in the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ubert
from pipelines.models.inputs import read_inputs, to_input
from pipelines.models.json_lines import utf8_line
from pipelines.models.own_categories import with_own_categories
from pipelines.models.predict import Ask, chunks_of, with_predictions
from pipelines.ray_tasks import explained, session
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Precision

Batch = dict[str, list[Any]]


def predict_on_workers(
    checkpoint: Path,
    source: Path,
    skip: int,
    ask: Ask,
    *,
    precision: Precision,
    verify: bool,
    workers: int,
    address: str | None,
) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Predict the texts after the first `skip` with Ray workers, in the same chunks as a single process.

    Yields:
        The rows of each chunk, in the order of the texts, and how much of the source has been read up to them.

    Raises:
        UserError: there is an error in the checkpoint, the texts or the arguments.
    """
    import ray
    from ray.exceptions import RayTaskError

    with session(address):
        processors = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        if workers > processors:
            raise UserError(
                f"--workers {workers}: Ray has {processors} CPUs, and a worker needs one; ask for fewer"
            )
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # each chunk is a block, which goes to the next free worker
        chunks = ray.data.from_items([{"source": str(source.resolve())}]).map_batches(
            partial(_read, skip=skip, ask=ask), batch_size=1, num_cpus=0
        )
        found = chunks.map_batches(
            _Worker,
            fn_constructor_args=[checkpoint.resolve(), precision, ask, verify],
            batch_size=1,
            concurrency=workers,
            num_cpus=1,
        )
        try:
            for row in found.iter_rows():
                yield [json.loads(line) for line in row["rows"].split("\n")[:-1]], row["done"]
        except RayTaskError as error:
            raise explained(error) from None


def _read(batch: Batch, skip: int, ask: Ask) -> Iterator[Batch]:
    """Yield the chunks of a source."""
    for texts, done in chunks_of(read_inputs(Path(str(batch["source"][0]))), skip, ask):
        yield {"texts": ["".join(utf8_line(one.row) for one in texts)], "done": [done]}


class _Worker:
    """A process with a model, which predicts chunks."""

    def __init__(self, checkpoint: Path, precision: Precision, ask: Ask, verify: bool) -> None:
        self.predictor, self.ask = ubert.load(checkpoint, precision=precision, verify=verify), ask

    def __call__(self, batch: Batch) -> Batch:
        [texts], done = batch["texts"], batch["done"]
        read = [to_input("", json.loads(line)) for line in texts.split("\n")[:-1]]
        inputs = list(with_own_categories(read, self.ask))
        return {
            "rows": ["".join(map(utf8_line, with_predictions(self.predictor, inputs, self.ask)))],
            "done": list(done),
        }
