"""Metrics as addable counts, one file per task, found by its file name.

A module has:

    count(record, predictions) -> Counts       what one record adds
    summarise(counts) -> dict[str, float]      the metrics by name

Counts of records, shards and workers are added in any order; metrics are computed once, from the sum.
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
"""The one metric of a task that comparisons show."""
SMALLER_IS_BETTER = frozenset({"perplexity", "rmse"})


class Metric(Protocol):
    """What the module of a task offers."""

    def count(self, record: Record, predictions: Sequence[Prediction]) -> Counts: ...

    def summarise(self, counts: Counts) -> dict[str, float]: ...


def measured() -> list[str]:
    """Tasks that have metrics: the files beside this one that bear a task's name."""
    return sorted({module.name for module in pkgutil.iter_modules(__path__)} & set(TASKS))


def metric(task: str) -> Metric:
    """The metrics of a task.

    Raises:
        UserError: there are none.
    """
    if task not in measured():
        raise UserError(f"task {task!r} has no metric; expected one of {', '.join(measured())}")
    return cast(Metric, import_module(f"{__name__}.{task}"))
