"""The number of processors of a Ray cluster, and how many are idle. Ray's answers are set by the test."""

from __future__ import annotations

import pytest
import ray
from ray._private import state

from pipelines.training import capacity


def test_workers_train_on_gpus_if_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"CPU": 3.0, "GPU": 2.0, "memory": 1e9}
    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    assert (capacity.kind(), capacity.total("GPU"), capacity.total("CPU")) == ("GPU", 2, 3)
    del there["GPU"]
    assert (capacity.kind(), capacity.total("GPU"), capacity.total("CPU")) == ("CPU", 0, 3)


def test_idle_processors_are_whole_ones_of_nodes_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = {"a": {"CPU": 2.5, "GPU": 1.0}, "b": {"CPU": 1.5}, "leaving": {"CPU": 8.0, "GPU": 4.0}, "c": {}}
    monkeypatch.setattr(state.state, "get_draining_nodes", lambda: {"leaving": 0})
    monkeypatch.setattr(state, "available_resources_per_node", lambda: idle)
    assert (capacity.free("CPU"), capacity.free("GPU")) == (3, 1)


@pytest.mark.parametrize(
    ("wanted", "seconds", "count", "asked"), [(2, 60.0, 3, 3), (1, 60.0, 1, 2), (2, 0.0, 0, 1)]
)
def test_released_processors_are_waited_for_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch, wanted: int, seconds: float, count: int, asked: int
) -> None:
    counts, seen = iter([0, 1, 3, 9]), list[int]()

    def free(kind: capacity.Kind) -> int:
        seen.append(next(counts))
        return seen[-1]

    monkeypatch.setattr(capacity, "free", free)
    monkeypatch.setattr(capacity, "POLL", 0.0)
    monkeypatch.setattr(capacity, "RELEASE_SECONDS", seconds)
    assert (capacity.wait_until_free("CPU", wanted), len(seen)) == (count, asked)
