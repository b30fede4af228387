"""Room on a Ray cluster: processors that nobody uses, on machines that stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from pipelines import lost_ray

Kind = Literal["GPU", "CPU"]
ROLL_CALL = 120.0  # seconds that nodes have to answer; Ray takes half a minute to find that one is dead
SETTLED = 5.0  # seconds after which Ray counts as free what was let go
POLL = 0.5  # seconds between two looks


def kind() -> Kind:
    """What workers train on: GPUs, where Ray has any now."""
    return "GPU" if there("GPU") else "CPU"


def there(kind: Kind) -> int:
    """Processors that Ray has now, busy or not."""
    import ray

    return int(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def free(kind: Kind) -> int:
    """Processors that nobody uses, but for those of machines that are being taken away."""
    from ray._private import state

    going = state.state.get_draining_nodes()
    every = state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return sum(int(available.get(kind, 0)) for node, available in every.items() if node not in going)


def found(kind: Kind, wanted: int) -> int:
    """As `free`, once what was just let go is counted."""
    deadline = time.monotonic() + SETTLED
    while (room := free(kind)) < wanted and time.monotonic() < deadline:
        time.sleep(POLL)
    return room


def wait_for_one(kind: Kind, asked: Callable[[], bool]) -> None:
    """Hold until there is a free processor, which a cluster that grows with what waits is asked for; or until it's
    `asked` to stop."""
    from ray.util.placement_group import placement_group, remove_placement_group

    place = placement_group([{kind: 1}])
    try:
        while not asked() and not place.wait(1):  # whole seconds: part of one is none
            lost_ray.check()
    finally:
        remove_placement_group(place)


def call_roll(asked: Callable[[], bool]) -> None:
    """Wait until each node has answered or is known to be dead, or until it's `asked` to stop: Ray counts a dead
    node's processors for a while."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answer = ray.remote(num_cpus=0, max_retries=0)(_answer)
    calls = [
        answer.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]
    deadline = time.monotonic() + ROLL_CALL
    while calls and not asked() and time.monotonic() < deadline:
        lost_ray.check()
        _, calls = ray.wait(calls, num_returns=len(calls), timeout=POLL)


def _answer() -> None:
    """What a node does that is there."""
