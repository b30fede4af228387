"""Workers and machines that die during ingest: no row is lost or doubled.

Each cluster is real and has its own process: a head and two more nodes, each with its own raylet.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ray_head import driven
from worlds import World, numbers

from pipelines.store.warehouse import sql

pytestmark = [pytest.mark.ray, pytest.mark.slow]
FILES, ROWS = 24, 4_000

# Ingest on a cluster; once a few parts are there, something dies: a machine with its workers, or every worker.
DISTURBED = """
import os, signal, sys, threading, time
from contextlib import suppress
from pathlib import Path
import psutil, ray
from ray.cluster_utils import Cluster
from pipelines.ingest import source_files
from pipelines.ingest.ingest import ingest

victim, specs, data, root = sys.argv[1], *map(Path, sys.argv[2:])
source_files.MOST_FILES = 1
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
cluster.wait_for_nodes()

def at_work(process):
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # some that Ray starts end at once
            found += [child] * child.name().startswith("ray::run_unit")
    return found

def disturb():
    while len(list(root.glob("corpora/toy/*/part-*"))) < 3:
        time.sleep(0.01)
    if victim == "node":
        raylet = psutil.Process(nodes[0].all_processes["raylet"][0].process.pid)
        while not (workers := at_work(raylet)):
            time.sleep(0.001)
        cluster.remove_node(nodes[0], allow_graceful=False)
    else:
        while len(workers := at_work(psutil.Process())) < 2:
            time.sleep(0.001)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
    print("killed with", len(workers), "workers at work; parts:", len(list(root.glob("corpora/toy/*/part-*"))))

if victim != "nothing":
    threading.Thread(target=disturb, daemon=True).start()
[manifest] = ingest(["toy"], specs=specs, data=data, root=root, address=cluster.address)
ray.init(address=cluster.address, logging_level="ERROR")
expected, deadline = 3 - (victim == "node"), time.monotonic() + 300
while (alive := sum(node["Alive"] for node in ray.nodes())) != expected and time.monotonic() < deadline:
    time.sleep(0.1)  # its death is noticed when it misses its heartbeats
print("nodes", alive, "kept", sum(counts.kept for counts in manifest.splits))
ray.shutdown()
cluster.shutdown()
"""


def run(world: World, victim: str, root: Path) -> str:
    return driven(DISTURBED, victim, world.specs, world.data, root).stdout


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("cluster"))
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for number in range(FILES):
        world.source(numbers(range(number, number + ROWS)) + "no JSON\n", f"{number:02}.jsonl")
    return world


@pytest.fixture(scope="module")
def undisturbed(world: World) -> Path:
    root = world.folder / "undisturbed"
    assert f"nodes 3 kept {FILES * ROWS}" in run(world, "nothing", root)
    return root


@pytest.mark.parametrize(("victim", "nodes"), [("node", 2), ("workers", 3)])
def test_what_dies_loses_and_doubles_nothing(victim: str, nodes: int, world: World, undisturbed: Path) -> None:
    root = world.folder / victim
    said = run(world, victim, root)
    assert "killed with" in said
    assert f"nodes {nodes} kept {FILES * ROWS}" in said
    for table in ("records", "rejects", "corpora"):
        statement = f"SELECT * FROM {table} ORDER BY ALL"
        assert sql(root, statement) == sql(undisturbed, statement)
    parts = {path.relative_to(root): path.read_bytes() for path in root.glob("corpora/*/*/*.parquet")}
    assert parts == {
        path.relative_to(undisturbed): path.read_bytes() for path in undisturbed.glob("corpora/*/*/*.parquet")
    }
