"""Tasks on a cluster that has no processors yet: they wait for a machine, and use it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from waiting import HANGS

pytestmark = [pytest.mark.ray, pytest.mark.slow]
REPO = Path(__file__).resolve().parents[1]

GROWING = """
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from ray.cluster_utils import Cluster
from pipelines.tasks import completed

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
    with tempfile.TemporaryDirectory(prefix="ubert-") as home:  # Ray's socket paths must be short
        done = subprocess.run(
            [sys.executable, "-c", GROWING],
            env={**os.environ, "PYTHONPATH": str(REPO), "HOME": home, "RAY_TMPDIR": f"{home}/ray"},
            capture_output=True,
            text=True,
            timeout=HANGS,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[(number, 2 * number) for number in range(20)]}\n"
