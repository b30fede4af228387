"""Tasks on a cluster without processors: they wait for a machine, and use it."""

from __future__ import annotations

import pytest
from ray_head import driven

pytestmark = [pytest.mark.ray, pytest.mark.slow]

GROWING = """
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from ray.cluster_utils import Cluster
from pipelines.ray_tasks import completed

def double(number):
    return 2 * number

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
with ThreadPoolExecutor(1) as thread:
    work = thread.submit(lambda: sorted(completed(double, [(number,) for number in range(20)], cluster.address)))
    sleep(5)
    assert not work.done()
    cluster.add_node(num_cpus=2)
    print(work.result())
cluster.shutdown()
"""


def test_tasks_wait_for_the_first_machine() -> None:
    said = driven(GROWING).stdout
    assert said == f"{[(number, 2 * number) for number in range(20)]}\n"
