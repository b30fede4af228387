"""A run on Ray clusters of several nodes: workers, nodes and drivers die, and the result stays the same."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml
from handmade import write_mixture
from ray_head import Head, below, driven, environment, head, node
from tiny_run import losses, make_corpora, make_encoder, make_recipe, write_recipe
from waiting import HANGS, wait_for

from ubert.training import loop, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log

pytestmark = [pytest.mark.ray, pytest.mark.slow]
STEPS = 600
ELASTIC = """
import json, sys, threading, time
from pathlib import Path
from ray.cluster_utils import Cluster
from pipelines.training.pretrain import pretrain
from pipelines.specs import specs_folder
from ubert.schema.specs.recipe import Recipe
from ubert.training.logs import log

root, given = Path(sys.argv[1]), json.loads(sys.argv[2])
recipe = Recipe(**given)
run = root / "runs" / recipe.name
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
node = cluster.add_node(num_cpus=1)

def until(wanted):
    while not wanted():
        time.sleep(0.05)

def steps():
    return len(log.read(run)[0])

def train():
    print(pretrain(recipe, root=root, specs=root / "specs", workers=2, address=cluster.address).name, flush=True)

thread = threading.Thread(target=train)  # nodes come in the main thread alone
thread.start()
until(lambda: steps() > 40)
cluster.remove_node(node, allow_graceful=False)
at = steps()
until(lambda: at + 30 < steps())
print("fewer", flush=True)
cluster.add_node(num_cpus=1)
thread.join()
cluster.shutdown()
"""

BUSY = """
import sys
import ray
from ray.util.placement_group import placement_group

ray.init(address=sys.argv[1], log_to_driver=False)
assert placement_group([{"CPU": 1}] * int(sys.argv[2])).wait(60)
print("busy", flush=True)
sys.stdin.read()
"""

ONE_GPU = """
import json, sys
from pathlib import Path
import ray
from pipelines.training.pretrain import pretrain
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe

root = Path(sys.argv[1])
ray.init(num_cpus=2, num_gpus=1, include_dashboard=False)
try:
    pretrain(Recipe(**json.loads(sys.argv[2])), root=root, specs=root / "specs", workers=2)
except UserError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two corpora, and a mixture of them and recipes in the folder of specs."""
    root = tmp_path_factory.mktemp("store")
    corpora = make_corpora()
    write_mixture(root, "unused", corpora)
    (root / "specs/recipes").mkdir(parents=True)
    (root / "specs/mixtures").mkdir()
    mixture = {"name": "tiny", "sources": [{"corpus": name} for name in corpora]}
    (root / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(mixture), encoding="utf-8")
    make_encoder(root / "encoder", dropout=0.0)
    return root


def command(root: Path, name: str, *more: str, **changed: object) -> list[str]:
    """`ubert pretrain` of a recipe of that name, which is written."""
    recipe = make_recipe(root / "encoder", name=name, **{"steps": STEPS, "checkpoint_every": 50, **changed})
    write_recipe(recipe, root / f"specs/recipes/{name}.yaml")
    return ["pretrain", name, "--root", str(root), "--specs", str(root / "specs"), *more]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Head]:
    """A head of two processors."""
    with head() as started:
        yield started


@contextmanager
def busy(cluster: Head, processors: int) -> Iterator[None]:
    """While another job uses so many processors."""
    environ = environment(cluster.home) | {"RAY_AUTH_MODE": "token"}
    given = [sys.executable, "-c", BUSY, cluster.gcs, str(processors)]
    with subprocess.Popen(given, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout
        assert "busy\n" in other.stdout
        yield
        other.stdin.close()


@pytest.fixture(scope="module")
def uninterrupted(root: Path, cluster: Head) -> list[float]:
    """Losses of a run of two workers to which nothing happened."""
    finish(root, cluster, "uninterrupted")
    return losses(root / "runs/uninterrupted")


def start(root: Path, cluster: Head, name: str, **changed: object) -> subprocess.Popen[str]:
    """The command that trains a run of two workers."""
    given = command(root, name, "--workers", "2", **changed)
    at_once = {"RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.2"}  # or a run is over before Ray Train looks
    return cluster.popen(*given, RAY_ADDRESS=cluster.gcs, RAY_AUTH_MODE="token", **at_once)


def started(root: Path, cluster: Head, name: str, **changed: object) -> tuple[Path, subprocess.Popen[str]]:
    """A run of two workers that has taken a hundred steps, and the command that trains it."""
    process = start(root, cluster, name, **changed)
    run = root / "runs" / name
    wait_for(lambda: len(log.read(run)[0]) >= 100, process)
    return run, process


def pretrained(root: Path, cluster: Head, name: str, **changed: object) -> tuple[int, str, str]:
    """How a run of two workers ended, and what it said."""
    given = command(root, name, "--workers", "2", **changed)
    return cluster.ubert(*given, RAY_ADDRESS=cluster.gcs, RAY_AUTH_MODE="token")


def finish(root: Path, cluster: Head, name: str) -> None:
    """Run the same command again."""
    code, _, said = pretrained(root, cluster, name)
    assert code == 0, said


def workers(root: Path) -> list[psutil.Process]:
    """Ray's workers that hold the lock of a run, or map its shards."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "RayTrainWorker" in " ".join(process.info["cmdline"] or []):
            with suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
                maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
                found += [process] * (str(root) in maps)
    return found


def test_a_worker_that_is_killed(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    run, process = started(root, cluster, "worker")
    killed, *_ = workers(root)
    killed.kill()
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0 and "a worker died" in said, said
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


def test_a_controller_that_is_killed(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    run, process = started(root, cluster, "controller")
    raylet = workers(root)[0].parent()
    assert raylet
    (controller,) = (one for one in raylet.children() if "TrainController" in " ".join(one.cmdline()))
    controller.kill()
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 1 and "the same command continues from the last checkpoint" in said, said
    assert "Traceback" not in said and "internal error" not in said
    psutil.wait_procs(workers(root), timeout=HANGS)  # Ray ends them
    finish(root, cluster, "controller")
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


def test_a_driver_that_is_killed(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    run, process = started(root, cluster, "driver")
    process.kill()
    process.communicate(timeout=HANGS)
    psutil.wait_procs(workers(root), timeout=HANGS)  # Ray ends them
    assert run_directory.finished(run) is None and checkpoint.latest(run)
    finish(root, cluster, "driver")
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_asked_to_stop(
    root: Path, cluster: Head, uninterrupted: list[float], sent: signal.Signals
) -> None:
    name = sent.name.lower()
    run, process = started(root, cluster, name)
    process.send_signal(sent)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode != 0 and "the same command continues from there" in said, said
    last = checkpoint.latest(run)
    assert last is not None and checkpoint.read_state(last).step == len(losses(run)) < STEPS
    finish(root, cluster, name)
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("early", [True, False])
def test_a_driver_that_is_asked_to_stop_before_the_first_step(
    root: Path, tmp_path: Path, sent: signal.Signals, early: bool
) -> None:
    """While its own Ray starts, or its worker."""
    name = f"{sent.name.lower()}-{'ray' if early else 'worker'}"
    with subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", *command(root, name)],
        env=environment(tmp_path) | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(lambda: below(process.pid, "raylet"), process)
        if not early:
            assert process.stderr and any("starting 1 worker" in line for line in process.stderr)
        ray = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 130 and "Traceback" not in said, said
    assert ("run the same command again" if early else "stopped before the first step") in said, said
    psutil.wait_procs(ray, timeout=HANGS)
    assert not any(one.is_running() for one in ray)
    run = root / "runs" / name
    with run_directory.driving(run), run_directory.locked(run):
        pass  # nobody holds its locks


def test_a_checkpoint_that_is_damaged(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    run, process = started(root, cluster, "damaged")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=HANGS)
    last = checkpoint.latest(run)
    assert last is not None
    (last / "optimizer.safetensors").write_bytes(b"")
    _, _, said = pretrained(root, cluster, "damaged")
    assert f"{last.name} is damaged (optimizer.safetensors has changed)" in said
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


def test_a_disk_that_gets_full(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    run = root / "runs/full"
    run.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(run)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs the right to")
    try:
        code, _, said = pretrained(root, cluster, "full")
        assert code != 0 and "Traceback" not in said and "internal error" not in said, said
        assert re.search(
            r"error: .*: the checkpoint cannot be written \(.*No space left on device.*: free some disk space",
            said,
        )
        subprocess.run(["mount", "-o", "remount,size=200m", str(run)], check=True)
        code, _, said = pretrained(root, cluster, "full")
        assert code == 0, said
        assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)
    finally:
        subprocess.run(["umount", "--lazy", str(run)], check=True)  # a worker may end a little later than the run


def test_a_second_run_of_the_name(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    run, process = started(root, cluster, "twice")
    code, _, said = pretrained(root, cluster, "twice")
    assert code != 0 and "another process is training this run; wait for it" in said, said
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


def test_a_loss_that_is_not_finite(root: Path, cluster: Head) -> None:
    wild = {"learning_rate": 1e30, "head_learning_rate": 1e30, "checkpoint_every": 1}
    code, _, said = pretrained(root, cluster, "wild", **wild)
    sentences = [line for line in said.splitlines() if line.startswith("error: ")]
    assert code != 0 and len(sentences) == 1 and "Traceback" not in said, said
    assert re.match(r"error: step 2: the loss is (nan|inf), on the records \S+, .*", sentences[0])
    assert checkpoint.latest(root / "runs/wild") == root / "runs/wild/checkpoints/step-000001"


def test_a_node_that_is_taken_away(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    """It has notice of it: the run writes the only checkpoint on its way, and loses no step."""
    with ExitStack() as stack:
        with busy(cluster, 2):
            leaving = stack.enter_context(node(cluster))
            run, process = started(root, cluster, "taken", checkpoint_every=STEPS)
            leaving.terminate()
        _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert re.search(r"a machine is being preempted; the run continues from step-000[1-5]", said), said
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


def test_a_node_that_is_killed(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    """The other has processors for all workers."""
    with ExitStack() as stack:
        with busy(cluster, 2):
            killed = stack.enter_context(node(cluster))
            run, process = started(root, cluster, "killed")
            for one in (*killed.children(recursive=True), killed):
                one.kill()
        _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0 and "a worker died" in said and "are free for all" not in said, said
    assert losses(run) == pytest.approx(uninterrupted, abs=1e-6)


def test_busy_processors_are_not_used(root: Path, cluster: Head, uninterrupted: list[float]) -> None:
    with busy(cluster, 1):
        code, _, said = pretrained(root, cluster, "beside")
    assert code == 0, said
    assert "starting 2 workers on CPUs: Ray has no GPU now" in said
    assert said.count("starting 1 of 2 workers") == 1 and "are free for all" not in said, said
    assert losses(root / "runs/beside") == pytest.approx(uninterrupted, abs=1e-4)


@pytest.mark.usefixtures("uninterrupted")  # which makes the shards
def test_a_run_that_waits_for_room_says_so_and_stops_when_it_is_asked_to(root: Path, cluster: Head) -> None:
    with busy(cluster, 2):
        process = start(root, cluster, "waiting")
        assert process.stderr
        assert any("no CPU is free; the run waits" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 130 and "stopped before the first step" in said, said


def test_fewer_gpus_than_workers_are_refused(root: Path) -> None:
    said = driven(ONE_GPU, root, json.dumps(make_recipe(root / "encoder", name="gpus").model_dump())).stdout
    assert said.startswith("--workers 2: Ray has 1 GPUs, and a worker needs one; ask for fewer, or start Ray with")


def test_fewer_nodes_and_one_that_comes(root: Path) -> None:
    """The run continues with one worker, and with two when a CPU is free again: of the same global batches, whose
    losses are added up in another order. Its steps are of many micro-batches, so that it lasts until then."""
    slow = {"steps": 300, "checkpoint_every": 20, "tokens_per_batch": 2048, "tokens_per_step": 64}
    recipe = make_recipe(root / "encoder", name="fewer", parallel="fsdp", **slow)
    done = driven(ELASTIC, root, json.dumps(recipe.model_dump()))
    assert [line for line in done.stdout.splitlines() if "raylet" not in line][-2:] == ["fewer", "step-000300"]
    assert done.stderr.count("starting 1 of 2 workers") == 1
    [shards] = root.glob("shards/tiny/*/")
    alone = root / "runs/alone"
    loop.train(recipe, shards=shards, run=alone, worker=loop.Worker(progress=False))
    assert losses(root / "runs" / recipe.name) == pytest.approx(losses(alone), abs=1e-4)
