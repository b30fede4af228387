"""`ubert pretrain` on a machine that has nothing of a run goes on where another machine was stopped."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from handmade import shard_members, write_mixture
from tiny_run import losses, make_corpora, make_encoder, make_recipe

from pipelines import pretrain as job
from pipelines.disk_cache import CACHE
from pipelines.driven_run import DrivenRun
from pipelines.mix import mix
from pipelines.place import ObjectPath, Place
from pipelines.specs import mixture
from pipelines.train_worker import work_on
from ubert.schema.errors import UserError
from ubert.training.step import ALONE


class GoneError(Exception):
    """The machine is."""


def pretrain(root: Place, home: Path, patch: pytest.MonkeyPatch, steps: int = 8, cache: int = CACHE) -> Path:
    """On a machine with an empty disk at `home`, with a worker in this process, until it is gone after a step."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        patch.setenv(name, str(home / name))
    left = iter(range(steps - 1))

    def fit(work: dict[str, Any], driven: DrivenRun, *others: object) -> bool:
        work_on(work, ALONE, leaving=lambda: next(left, None) is None)
        if steps < 8:
            raise GoneError
        return False

    patch.setattr(job.attempt, "fit", fit)
    patch.setattr(job, "session", lambda *given, **named: nullcontext())
    patch.setattr(job.room, "kind", lambda: "CPU")
    for name in ("there", "found"):
        patch.setattr(job.room, name, lambda *given: 1)
    recipe = make_recipe(home.parent / "encoder")
    return job.pretrain(recipe, root=root, specs=home.parent / "specs", cache=cache)


def test_losses_are_those_of_a_folder(remote: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = str(make_encoder(tmp_path / "encoder"))
    (tmp_path / "specs/mixtures").mkdir(parents=True)
    drawn = {"name": "tiny", "sources": [{"corpus": name} for name in make_corpora()]}
    (tmp_path / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(drawn), encoding="utf-8")
    disk = tmp_path / "disk"
    for root in (remote, disk):
        write_mixture(root, "unused", make_corpora())
        mix(mixture("tiny", tmp_path / "specs"), root=root, encoder=encoder)
        shard_members(root, "tiny", encoder, 32)
    with pytest.raises(UserError, match=r"--cache 1,000 bytes: the shards of tiny have [\d,]+"):
        pretrain(remote, tmp_path / "small", monkeypatch, cache=1000)
    with pytest.raises(GoneError):
        pretrain(remote, tmp_path / "one", monkeypatch, steps=5)
    last = pretrain(remote, tmp_path / "other", monkeypatch)
    assert last.is_relative_to(tmp_path / "other") and last.name == "step-000008"
    pretrain(disk, tmp_path / "none", monkeypatch)
    assert losses(last.parents[1]) == losses(disk / "runs/tiny")
