"""A run whose store is an object store, on nodes that share no folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from handmade import shard_members, write_mixture
from object_store import ObjectStore
from ray_head import Head, head, node
from tiny_run import losses, make_corpora, make_encoder, make_recipe, write_recipe
from waiting import HANGS, wait_for

from pipelines.mixtures.mix import mix
from pipelines.specs import mixture
from pipelines.store.storage import ObjectPath, StorePath
from pipelines.store.warehouse import sql
from pipelines.training.remote_run import pull
from ubert.training import loop
from ubert.training.checkpoints.checkpoint import STATE

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, and specs."""
    folder = tmp_path_factory.mktemp("objects")
    make_encoder(folder / "encoder", dropout=0.0)
    for kind in ("recipes", "mixtures"):
        (folder / "specs" / kind).mkdir(parents=True)
    drawn = {"name": "tiny", "sources": [{"corpus": name} for name in make_corpora()]}
    (folder / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(drawn), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def root(object_store: ObjectStore, folder: Path) -> ObjectPath:
    """A store with two corpora."""
    root = ObjectPath(f"bucket/{folder.name}")
    write_mixture(root, "unused", make_corpora())
    return root


@pytest.fixture(scope="module")
def disk(folder: Path) -> Path:
    """A store with the same corpora on this disk."""
    write_mixture(folder / "disk", "unused", make_corpora())
    return folder / "disk"


@pytest.fixture(scope="module")
def cluster(object_store: ObjectStore) -> Iterator[Head]:
    """A head of two processors, whose nodes know the object store."""
    with head() as started:
        yield started


@contextmanager
def fresh_node(cluster: Head, folder: Path) -> Iterator[psutil.Popen]:
    """A node of two processors with a disk of its own, which is empty."""
    with node(cluster, XDG_DATA_HOME=str(folder / "data"), XDG_CACHE_HOME=str(folder / "cache")) as started:
        yield started


def command(root: StorePath, folder: Path, name: str, workers: int, **changed: object) -> list[str]:
    """`ubert pretrain` of a recipe of that name, which is written."""
    recipe = make_recipe(folder / "encoder", name=name, **changed)
    write_recipe(recipe, folder / f"specs/recipes/{name}.yaml")
    return ["pretrain", name, "--root", str(root), "--specs", str(folder / "specs"), "--workers", str(workers)]


def joined(cluster: Head) -> dict[str, str]:
    """Environment variables of a command that joins the cluster."""
    return {"RAY_ADDRESS": cluster.gcs, "RAY_AUTH_MODE": "token"}


def expected(disk: Path, folder: Path, **changed: object) -> list[float]:
    """Losses of one worker on a folder of this disk."""
    encoder = str(folder / "encoder")
    mix(mixture("tiny", folder / "specs"), root=disk, encoder=encoder)
    shards = shard_members(disk, "tiny", encoder, 32)
    loop.train(make_recipe(folder / "encoder", **changed), shards=shards, run=disk / "run")
    return losses(disk / "run")


def test_a_node_that_dies_is_replaced_by_one_with_an_empty_disk(
    root: ObjectPath, disk: Path, folder: Path, cluster: Head, tmp_path: Path
) -> None:
    changed = {"steps": 300, "checkpoint_every": 30, "dynamics": True}
    there = root / "runs" / "node"
    with fresh_node(cluster, tmp_path / "one") as one:
        process = cluster.popen(*command(root, folder, "node", 3, **changed), **joined(cluster))
        wait_for(lambda: (there / "checkpoints/step-000060" / STATE).exists(), process)
        for each in [one, *one.children(recursive=True)]:
            each.kill()
    with fresh_node(cluster, tmp_path / "other"):
        _, said = process.communicate(timeout=HANGS)
        assert process.returncode == 0, said
    pull(there, tmp_path / "pulled")
    assert [path.name for path in (tmp_path / "one" / "cache" / "ubert").glob("*.held")]
    assert losses(tmp_path / "pulled") == pytest.approx(expected(disk, folder, **changed), abs=1e-5)
    passes = "SELECT record_id, epoch, step FROM dynamics WHERE run = '{}' ORDER BY ALL"
    (disk / "runs").mkdir(exist_ok=True)
    (disk / "run").rename(disk / "runs" / "run")
    assert sql(root, passes.format("node"), []) == sql(disk, passes.format("run"), [])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_of_nodes_without_a_shared_folder_train_as_from_a_disk(
    root: ObjectPath, disk: Path, folder: Path, cluster: Head, tmp_path: Path, workers: int
) -> None:
    """Each of two nodes has room for two workers."""
    name = f"workers-{workers}"
    with fresh_node(cluster, tmp_path / "node"):
        for place in (root, disk):
            code, _, said = cluster.ubert(*command(place, folder, name, workers, steps=40), **joined(cluster))
            assert code == 0, said
    pull(root / "runs" / name, tmp_path / "pulled")
    assert losses(tmp_path / "pulled") == pytest.approx(losses(disk / "runs" / name), abs=1e-6)
    if workers > 2:
        assert [path.name for path in (tmp_path / "node" / "cache" / "ubert").glob("*.held")]
