"""Simulate how long training waits for shards in an object store, and the cost of the requests.

In ours, each machine fetches shards in the order in which its steps first need them
(`pipelines/shards/remote.py`). In theirs, each machine copies all shards and then trains.

    python benchmarks/simulate.py --machines 64 --bytes 790e9 --cache 1e12 --bandwidth 1e9
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from collections import deque
from dataclasses import asdict, dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from measure import report

from pipelines.shards.remote import THREADS
from pipelines.store.storage import BLOCK

REQUEST = 0.4e-6  # dollars per GET or HEAD request


@dataclass(frozen=True)
class Given:
    """Parameters of a simulation.

    Attributes:
        bandwidth: bytes per second of a machine.
        latency: seconds of a request.
        rows: rows per machine and step.
        step: seconds of computation per step.
        price: dollars per machine and hour.
    """

    machines: int = 16
    bytes: float = 790e9
    shard: float = 32e6
    cache: float = 1e12
    bandwidth: float = 1e9
    latency: float = 0.03
    rows: int = 512
    step: float = 0.25
    steps: int = 20_000
    price: float = 3.92


class Found(NamedTuple):
    """Results of a simulation.

    Attributes:
        first: seconds before the first step.
        stall: seconds of waiting after that.
        share: `stall` as a share of all seconds after `first`.
        requests: requests of all machines.
        dollars: cost of requests and of waiting.
    """

    first: float
    stall: float
    share: float
    requests: int
    dollars: float


def simulate(given: Given, ahead: bool = True, seed: int = 0) -> Found:
    """Simulate the steps of one machine; all machines behave alike.

    Raises:
        ValueError: the shards don't fit into the cache, which `ubert pretrain` refuses.
    """
    if given.bytes > given.cache:
        raise ValueError(f"{given.bytes:g} bytes of shards don't fit into a cache of {given.cache:g}")
    shards = max(1, round(given.bytes / given.shard))
    there_at = _fetched(given, shards, seed)
    need = _needed(given, shards, seed)
    now = there_at[-1] if not ahead else there_at[need[0] - 1]
    first, stall = now, 0.0
    for count in need:
        late = there_at[count - 1] - now if ahead else 0.0
        stall += max(0.0, late)
        now += max(0.0, late) + given.step
    requests = given.machines * shards * (1 + math.ceil(given.shard / BLOCK))
    waited = given.machines * (first + stall) / 3600 * given.price
    return Found(first, stall, stall / (now - first), requests, requests * REQUEST + waited)


def _fetched(given: Given, shards: int, seed: int) -> list[float]:
    """Return the arrival time of each shard in fetching order. Each thread waits for its requests, and then
    transfers a shard. Transfers share the bandwidth equally. Latencies vary by half, so that threads don't wait at
    the same time."""
    waits = given.latency * (1 + math.ceil(given.shard / BLOCK))
    drawn = np.random.default_rng(seed)
    begins = [waits * drawn.uniform(0.5, 1.5) for _ in range(min(THREADS, shards))]  # when transfers begin
    heapq.heapify(begins)
    now = served = 0.0  # `served`: the bytes that a transfer which never ends would have got
    transfers: deque[float] = deque()  # the value of `served` at which each ends
    ends: list[float] = []
    while len(ends) < shards:
        end = now + (transfers[0] - served) * len(transfers) / given.bandwidth if transfers else math.inf
        if begins and begins[0] <= end:
            served += (begins[0] - now) * given.bandwidth / max(1, len(transfers))
            now = heapq.heappop(begins)
            transfers.append(served + given.shard)
            continue
        now, served = end, transfers.popleft()
        ends.append(now)
        if len(ends) + len(begins) + len(transfers) < shards:
            heapq.heappush(begins, now + waits * drawn.uniform(0.5, 1.5))
    return ends


def _needed(given: Given, shards: int, seed: int) -> list[int]:
    """Return for each step the number of shards needed up to it."""
    drawn = np.random.default_rng(seed)
    seen = np.zeros(shards, bool)
    counts = []
    for _ in range(given.steps):
        if not seen.all():
            seen[drawn.integers(shards, size=given.rows)] = True
        counts.append(int(seen.sum()))
    return counts


def main() -> None:
    """Simulate the given setting, and the same with smaller shards and with less bandwidth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Given):
        parser.add_argument(f"--{field.name}", type=float, default=field.default)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    asked = vars(parser.parse_args())
    quick = asked.pop("quick")
    whole = {"machines", "rows", "steps"}
    given = Given(**{name: round(value) if name in whole else value for name, value in asked.items()})
    if quick:
        given = replace(given, steps=min(given.steps, 2_000))
    cases = {
        "as given": given,
        "shards of 8 MB": replace(given, shard=8e6),
        "a tenth of the bandwidth": replace(given, bandwidth=given.bandwidth / 10),
    }
    for name, case in cases.items():
        ours, theirs = simulate(case), simulate(case, ahead=False)
        report("simulate", f"{name}: seconds of waiting", ours.first + ours.stall, theirs.first, "s", 1)
        print(json.dumps({"benchmark": "simulate", "case": name, **asdict(case), **ours._asdict()}), flush=True)


if __name__ == "__main__":
    main()
