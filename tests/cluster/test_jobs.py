"""Commands as jobs on a real head: effects, output and exit codes are those of the command on this machine."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray_head import Head, free_ports, head
from tiny_run import make_encoder, make_recipe, write_recipe
from waiting import HANGS, wait_for

from ubert.training import run_directory
from ubert.training.checkpoints import checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Head]:
    with head() as started:
        yield started


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with specs, a mirror of one dataset, and a tiny encoder; `store` isn't there yet."""
    world = tmp_path_factory.mktemp("world")
    write_rows(world / "raw/films/train.jsonl", 40)
    for kind, name, content in (
        ("datasets", "films", dataset("films")),
        ("datasets", "absent", dataset("absent")),
        ("mixtures", "tiny", {"name": "tiny", "sources": [{"corpus": "films"}]}),
    ):
        (world / "specs" / kind).mkdir(parents=True, exist_ok=True)
        (world / "specs" / kind / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    (world / "specs/recipes").mkdir()
    encoder = make_encoder(world / "encoder", dropout=0.0)
    for name, steps in (("tiny", 8), ("lasting", 100_000)):
        write_recipe(make_recipe(encoder, name=name, steps=steps), world / f"specs/recipes/{name}.yaml")
    return world


def dataset(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Opinions of films.",
        "task": "classification",
        "language": "en",
        "licence": "CC0-1.0",
        "instruction": "opinion",
        "format": "jsonl",
        "files": [{"split": "train", "path": "train.jsonl"}],
        "map": {"text": "text", "label": "label"},
        "categories": {"label": {"good": "good", "bad": "bad"}},
    }


def write_rows(path: Path, count: int) -> None:
    path.parent.mkdir(parents=True)
    rows = [{"text": f"Film number {i} was slept", "label": "good" if i % 2 else "bad"} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def where(world: Path) -> tuple[str, ...]:
    return "--root", str(world / "store"), "--data", str(world / "raw"), "--specs", str(world / "specs")


@pytest.fixture(scope="module")
def ingested(cluster: Head, world: Path) -> Path:
    """The store after `ingest --all` as a job."""
    secret = world / "specs/store/secret"
    secret.parent.mkdir()
    secret.touch()
    code, out, err = cluster.ubert("submit", *where(world), "--", "ingest", "--all")
    assert code == 0, out + err
    assert "films: 40 records kept, 0 rejected" in out
    assert "skipped 1 of 2 datasets whose raw sources are not all here: absent" in out
    assert re.fullmatch(rf"job ingest-[0-9a-f]{{6}} at {cluster.address}, store {world}/store\n", err)
    return world / "store"


def test_ingest_shard_and_pretrain_run_as_jobs(cluster: Head, world: Path, ingested: Path) -> None:
    for command in (["mix", "tiny"], ["shard", "tiny", "--encoder", str(world / "encoder")], ["pretrain", "tiny"]):
        code, out, err = cluster.ubert("submit", *where(world), "--", *command)
        assert code == 0, out + err
    assert next(ingested.glob("shards/tiny/*/manifest.json"))
    assert run_directory.finished(ingested / "runs/tiny")
    assert f"checkpoint: {ingested}/runs/tiny/checkpoints/step-000008" in out
    listed = cluster.ubert("jobs")[1]
    for command in ("ingest --all", "mix tiny", "pretrain tiny"):
        assert re.search(rf"ubert {command}\s+succeeded", listed), listed


def test_code_and_specs_go_along_and_nothing_else(cluster: Head, ingested: Path) -> None:
    [package] = (
        path
        for path in cluster.folder.glob("session_latest/runtime_resources/working_dir_files/*")
        if path.is_dir()
    )
    assert {path.name for path in package.iterdir()} == {"corpus_specs", "pipelines", "ubert"}
    assert {path.name for path in (package / "corpus_specs").iterdir()} == {"datasets", "mixtures", "recipes"}


@pytest.mark.parametrize(("command", "code", "said"), [("absent", 1, "absent: no folder"), ("--no", 2, "--no")])
def test_the_exit_code_of_a_failing_job_is_passed_on(
    cluster: Head, world: Path, command: str, code: int, said: str
) -> None:
    ended, out, _ = cluster.ubert("submit", *where(world), "--", "ingest", command)
    assert (ended, said in out) == (code, True), out


@pytest.mark.parametrize("whose", ["none", "another's"])
def test_without_the_token_a_job_is_refused(cluster: Head, world: Path, tmp_path: Path, whose: str) -> None:
    (tmp_path / "token").write_text("0" * 64)
    changed = {"HOME": str(tmp_path)} if whose == "none" else {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    why = (
        "this machine has none"
        if whose == "none"
        else "the token on this machine is of another cluster or has expired"
    )
    before = cluster.ubert("jobs")[1].count("ubert ingest")
    code, out, err = cluster.ubert("submit", *where(world), "--", "ingest", "films", **changed)
    assert (code, out) == (1, "")
    assert err == (
        f"error: {cluster.address}: a job needs the cluster's token, and {why}; put it into ~/.ray/auth_token, "
        "or name its file in RAY_AUTH_TOKEN_PATH\n"
    )
    assert cluster.ubert("jobs")[1].count("ubert ingest") == before


def test_a_job_continues_without_whoever_submitted_it(cluster: Head, world: Path, ingested: Path) -> None:
    """Detached, listed, followed, left with Ctrl-C, stopped: it ends with a checkpoint."""
    code, _, err = cluster.ubert("submit", "--detach", *where(world), "--", "pretrain", "lasting")
    assert code == 0
    [job] = set(re.findall(r"pretrain-[0-9a-f]{6}", err))
    watch = f"ubert jobs {job} --address {cluster.address}"
    assert f"the job continues; follow it with `{watch}`, stop it with `{watch} --stop`" in err
    assert re.search(rf"{job}\s+ubert pretrain lasting\s+(pending|running)", cluster.ubert("jobs")[1])
    run = ingested / "runs/lasting"
    wait_for((run / "logs/train.jsonl").exists)
    with cluster.popen("jobs", job) as watching:
        assert watching.stdout
        next(iter(watching.stdout))  # the log comes
        watching.send_signal(signal.SIGINT)
        assert "the job continues" in watching.communicate(timeout=HANGS)[1]
    assert watching.returncode == 130
    assert re.search(rf"{job}\s+ubert pretrain lasting\s+running", cluster.ubert("jobs")[1])
    assert cluster.ubert("jobs", job, "--stop") == (0, f"job {job}: asked to stop\n", "")
    code, _, err = cluster.ubert("jobs", job)
    assert code == 1 and f"error: job {job} was stopped; the same command continues it\n" in err
    reached = checkpoint.latest(run)
    assert reached is not None and reached.name > "step-000000"
    assert cluster.ubert("jobs", job, "--stop")[1] == f"job {job}: had ended already\n"


def test_a_job_that_is_not_there_gives_one_clear_error(cluster: Head) -> None:
    said = f"error: {cluster.address}: no job ingest-000000; `ubert jobs` lists those there are\n"
    for options in ([], ["--stop"]):
        assert cluster.ubert("jobs", "ingest-000000", *options) == (1, "", said)


def test_a_cluster_that_is_not_there_gives_one_clear_error(cluster: Head) -> None:
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    code, out, err = cluster.ubert("jobs", "--address", address)  # which counts more than the environment
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {address}: no Ray cluster answers") and err.count("\n") == 1
