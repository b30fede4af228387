"""Free GPUs and CPUs of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from pipelines import lost_ray

Kind = Literal["GPU", "CPU"]
NODES_TIMEOUT = 120.0  # timeout in seconds; Ray needs half a minute to notice that a node is dead
RELEASE_SECONDS = 5.0  # seconds until Ray counts released resources as free
POLL = 0.5  # seconds between polls


def kind() -> Kind:
    """Return the kind of processor that workers train on: GPUs if Ray has any now, else CPUs."""
    return "GPU" if total("GPU") else "CPU"


def total(kind: Kind) -> int:
    """Count the processors that Ray has now, busy or idle."""
    import ray

    return int(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def free(kind: Kind) -> int:
    """Count the idle processors, except those of nodes that are draining."""
    from ray._private import state

    draining = state.state.get_draining_nodes()
    available = state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return sum(int(resources.get(kind, 0)) for node, resources in available.items() if node not in draining)


def wait_until_free(kind: Kind, wanted: int) -> int:
    """Wait a few seconds until `wanted` processors are free, then count the free ones. Ray takes a moment
    to count released processors."""
    deadline = time.monotonic() + RELEASE_SECONDS
    while (count := free(kind)) < wanted and time.monotonic() < deadline:
        time.sleep(POLL)
    return count


def wait_for_one(kind: Kind, stop_requested: Callable[[], bool]) -> None:
    """Wait until a processor is free, or until `stop_requested` returns true. The pending placement group makes an
    autoscaling cluster grow."""
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group([{kind: 1}])
    try:
        while not stop_requested() and not group.wait(1):  # Ray truncates the timeout to whole seconds
            lost_ray.check()
    finally:
        remove_placement_group(group)


def wait_for_nodes(stop_requested: Callable[[], bool]) -> None:
    """Wait until each node has answered or is known to be dead, or until `stop_requested` returns true. Without
    this, Ray still counts a dead node's processors for a while."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answer = ray.remote(num_cpus=0, max_retries=0)(_answer)
    calls = [
        answer.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]
    deadline = time.monotonic() + NODES_TIMEOUT
    while calls and not stop_requested() and time.monotonic() < deadline:
        lost_ray.check()
        _, calls = ray.wait(calls, num_returns=len(calls), timeout=POLL)


def _answer() -> None:
    """Do nothing: a node that runs this is alive."""
