"""Metrics as addable counts, one file per task, found by its file name.

A module has:

    count(record, predictions) -> Counts       the counts of one record
    summarise(counts) -> dict[str, float]      the metrics by name

Counts of records, shards and workers can be added in any order. The metrics are computed once, from the sum.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, cast

from ubert.evaluation.counts import Counts
from ubert.objectives import Prediction
from ubert.schema.errors import UserError
from ubert.schema.record import TASKS, Record

MAIN: Mapping[str, str] = MappingProxyType(
    {
        "classification": "accuracy",
        "multilabel": "micro_f1",
        "pair": "accuracy",
        "choice": "accuracy",
        "regression": "pearson",
        "ner": "span_f1",
        "relation": "relation_f1",
        "event": "trigger_f1",
        "coref": "conll_f1",
        "qa": "qa_f1",
        "seq2seq": "rouge_l",
        "text": "perplexity",
    }
)
"""The main metric of each task, which comparisons show."""
SMALLER_IS_BETTER = frozenset({"perplexity", "rmse"})


class Metric(Protocol):
    """The functions of a task's module."""

    def count(self, record: Record, predictions: Sequence[Prediction]) -> Counts: ...

    def summarise(self, counts: Counts) -> dict[str, float]: ...


def measured() -> list[str]:
    """List the tasks that have metrics: those with a file in this folder."""
    return sorted({module.name for module in pkgutil.iter_modules(__path__)} & set(TASKS))


def metric(task: str) -> Metric:
    """Return the metrics of a task.

    Raises:
        UserError: the task has no metrics.
    """
    if task not in measured():
        raise UserError(f"task {task!r} has no metric; expected one of {', '.join(measured())}")
    return cast(Metric, import_module(f"{__name__}.{task}"))
