"""Training in blocks of shards from an object store, under Ray, with a cache that is smaller than the shards."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import yaml
from handmade import ner, sentiment, shard_members, write_mixture
from object_store import ObjectStore
from tiny_run import losses, make_encoder, make_recipe
from waiting import wait_for

from pipelines.mixtures.mix import mix
from pipelines.shards.remote import RemoteShards
from pipelines.specs import mixture
from pipelines.store.disk_cache import CACHE, DiskCache
from pipelines.store.storage import ObjectPath, StorePath
from pipelines.training.pretrain import pretrain
from pipelines.training.remote_run import pull
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.checkpoints.checkpoint import STATE

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

CORPORA = {"people": [ner(i, i % 5) for i in range(1150)], "reviews": [sentiment(i) for i in range(20)]}
AWAY = 60.0  # seconds


def make_shards(root: StorePath, specs: Path, recipe: Recipe) -> StorePath:
    """Shards of a mixture of both corpora: twelve of one, and a small one that each block needs."""
    write_mixture(root, "unused", CORPORA)
    mix(mixture("tiny", specs), root=root, encoder=recipe.encoder)
    made: StorePath = shard_members(root, "tiny", recipe.encoder, recipe.max_tokens)
    return made


def trained(recipe: Recipe, root: ObjectPath, specs: Path, cache: int, workers: int) -> None:
    pretrain(recipe, root=root, specs=specs, cache=cache, workers=workers)


def found(root: ObjectPath, recipe: Recipe, folder: Path) -> list[float]:
    pull(root / "runs" / recipe.name, folder / recipe.name)
    return losses(folder / recipe.name)


def test_blocks_train_as_from_a_folder_cold_warm_and_resumed(
    remote: ObjectPath, object_store: ObjectStore, tmp_path: Path
) -> None:
    """The first run needs shards while the store answers 503 for a minute. The second one has two workers, is
    stopped, and continues."""
    (tmp_path / "specs/mixtures").mkdir(parents=True)
    drawn = {"name": "tiny", "duplicates": "keep", "sources": [{"corpus": name} for name in CORPORA]}
    (tmp_path / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(drawn), encoding="utf-8")
    encoder = make_encoder(tmp_path / "encoder", dropout=0.0)
    cold = make_recipe(encoder, name="cold", shuffle_blocks=6, steps=200, checkpoint_every=40)
    here, there = (
        make_shards(tmp_path / "disk", tmp_path / "specs", cold),
        make_shards(remote, tmp_path / "specs", cold),
    )
    loop.train(cold, shards=here, run=tmp_path / "run")
    expected = losses(tmp_path / "run")

    files = RemoteShards(there, DiskCache(tmp_path / "cache", CACHE))
    bound = files._needed(cold, cold.shuffle_blocks)
    assert bound < 0.8 * files._needed(cold, 1)
    fetched, until = [], list[float]()

    def away(method: str, path: str) -> str | None:
        if method == "GET" and "/shard-" in path:
            fetched.append(path)
        if not until and len(fetched) > len(files.manifest.shards) + 6:  # the order needs each shard once
            until.append(time.monotonic() + AWAY)
        return "503" if until and time.monotonic() < until[0] else None

    with object_store.failing(away):
        trained(cold, remote, tmp_path / "specs", bound, workers=1)
    assert until and time.monotonic() > until[0]
    assert found(remote, cold, tmp_path / "pulled") == pytest.approx(expected, abs=1e-6)

    warm = cold.model_copy(update={"name": "warm"})
    run = remote / "runs/warm"

    def stop() -> None:
        wait_for(lambda: (run / "checkpoints/step-000040" / STATE).exists())
        object_store.put((run / "stop").key, b"")

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="the same command continues from there"):
        trained(warm, remote, tmp_path / "specs", bound, workers=2)
    trained(warm, remote, tmp_path / "specs", bound, workers=2)
    assert found(remote, warm, tmp_path / "pulled") == pytest.approx(expected, abs=1e-5)
