"""`ubert pretrain` on a machine without the run's files continues a run that another machine stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from handmade import shard_members, write_mixture
from ray_head import free_ports
from tiny_run import losses, make_corpora, make_encoder, make_recipe
from waiting import HANGS

from pipelines.mixtures.mix import mix
from pipelines.specs import mixture
from pipelines.store.disk_cache import CACHE
from pipelines.store.storage import ObjectPath, StorePath
from pipelines.store.store import Store
from pipelines.training import lease
from pipelines.training import pretrain as job
from pipelines.training.driven_run import DrivenRun
from pipelines.training.remote_run import pull
from pipelines.training.worker import work_on
from ubert.schema.errors import UserError
from ubert.training.step import ALONE

WORKER = """
import json, os, sys
import torch.distributed as dist
from pipelines.training.worker import work_on
from ubert.training.step import Worker

dist.init_process_group("gloo")
work_on(json.loads(sys.argv[1]), Worker(dist.get_rank(), dist.get_world_size(), progress=False), lambda: False)
dist.destroy_process_group()
"""


class GoneError(Exception):
    """The machine is."""


def pretrain(root: StorePath, home: Path, patch: pytest.MonkeyPatch, steps: int = 8, cache: int = CACHE) -> Path:
    """Train on a machine with an empty disk at `home`, with a worker in this process, which ends after a step."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        patch.setenv(name, str(home / name))
    left = iter(range(steps - 1))

    def fit(work: dict[str, Any], driven: DrivenRun, *others: object) -> bool:
        work_on(work, ALONE, leaving=lambda: next(left, None) is None)
        if steps < 8:
            raise GoneError
        return False

    patch.setattr(job.restart, "fit", fit)
    patch.setattr(job, "session", lambda *given, **named: nullcontext())
    patch.setattr(job.capacity, "kind", lambda: "CPU")
    for name in ("total", "wait_until_free"):
        patch.setattr(job.capacity, name, lambda *given: 1)
    recipe = make_recipe(home.parent / "encoder")
    return job.pretrain(recipe, root=root, specs=home.parent / "specs", cache=cache)


@pytest.fixture
def stores(remote: ObjectPath, tmp_path: Path) -> tuple[ObjectPath, Path]:
    """The same shards in an object store and in a folder, made without Ray; and the spec of their mixture."""
    encoder = str(make_encoder(tmp_path / "encoder", dropout=0.0))
    (tmp_path / "specs/mixtures").mkdir(parents=True)
    drawn = {"name": "tiny", "sources": [{"corpus": name} for name in make_corpora()]}
    (tmp_path / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(drawn), encoding="utf-8")
    for root in (remote, tmp_path / "disk"):
        write_mixture(root, "unused", make_corpora())
        mix(mixture("tiny", tmp_path / "specs"), root=root, encoder=encoder)
        shard_members(root, "tiny", encoder, 32)
    return remote, tmp_path / "disk"


def test_losses_are_those_of_a_folder(
    stores: tuple[ObjectPath, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, disk = stores
    with pytest.raises(UserError, match=r"--cache 1,000 bytes: the shards of tiny need [\d,]+"):
        pretrain(remote, tmp_path / "small", monkeypatch, cache=1000)
    with pytest.raises(GoneError):
        pretrain(remote, tmp_path / "one", monkeypatch, steps=5)
    last = pretrain(remote, tmp_path / "other", monkeypatch)
    assert last.is_relative_to(tmp_path / "other") and last.name == "step-000008"
    pretrain(disk, tmp_path / "none", monkeypatch)
    assert losses(last.parents[1]) == losses(disk / "runs/tiny")


@pytest.mark.slow
def test_workers_on_machines_that_share_no_folder(
    stores: tuple[ObjectPath, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, disk = stores
    pretrain(disk, tmp_path / "none", monkeypatch)
    shards, _ = Store(remote).current("shards", "tiny")
    run, recipe = remote / "runs" / "tiny", make_recipe(tmp_path / "encoder")
    [port] = free_ports(1)
    with lease.holding(run) as token:
        work = {"recipe": recipe.model_dump(), "root": str(remote), "shards": str(shards), "run": "tiny"}
        work |= {"cache": CACHE, "token": token, "resume": False}
        group = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, json.dumps(work)],
                env=group
                | {"RANK": str(rank)}
                | {name: str(tmp_path / f"{rank}" / name) for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME")},
            )
            for rank in range(2)
        ]
        assert [worker.wait(timeout=2 * HANGS) for worker in workers] == [0, 0]
    pull(run, tmp_path / "pulled")
    assert losses(tmp_path / "pulled") == pytest.approx(losses(disk / "runs/tiny"), abs=1e-6)
    assert [path.name for path in (tmp_path / "1" / "XDG_CACHE_HOME/ubert").glob("*") if len(path.name) == 64]
