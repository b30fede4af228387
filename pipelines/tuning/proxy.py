"""Proxy runs: train briefly on one mixture, and measure the validation loss of each corpus.

Runs are plain Ray tasks, and their results are files of the store. So `affinity`, `tune` and a later `tune` with
more trials share finished runs. Ray Tune would keep results in the folder of one experiment. Its schedulers and
search algorithms are not needed, because trials are drawn independently and all run to their end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.mixtures.mix import mix
from pipelines.models.evaluate import read_records
from pipelines.progress import progress
from pipelines.ray_tasks import completed
from pipelines.shards.shard import shard_here
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, now, read_json, write_json
from pipelines.training.short_run import shards_of, train, use_threads_of_task
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe


class Proxy(NamedTuple):
    """The mixture and settings of one run.

    `origin` is the fingerprint of the user's mixture, which covers all data that a draw depends on. `weights` is
    the hash of the initial weights. `measured` lists corpora with their versions; the first `limit` records of
    their validation splits by sampling key are evaluated.
    """

    mixture: Mixture
    origin: str
    recipe: Recipe
    weights: str
    measured: tuple[tuple[str, str], ...]
    limit: int

    @property
    def key(self) -> str:
        """Return the fingerprint by which the result is found again."""
        settings = self.recipe.model_dump(mode="json", exclude={"name", "description", "mixture"})
        return fingerprint(
            self.mixture.meaning, self.origin, settings, self.weights, sorted(self.measured), self.limit
        )


class Finished(NamedTuple):
    """Validation losses by corpus of finished runs, and error messages of failed runs, both by key."""

    losses: dict[str, dict[str, float]]
    died: dict[str, str]


def run_all(proxies: Sequence[Proxy], root: StorePath, address: str | None, label: str) -> Finished:
    """Run those proxies as Ray tasks whose results the store lacks, and return all results.

    Raises:
        UserError: every run failed; the message has the first error.
    """
    store = Store(root.absolute())
    wanted = {proxy.key: proxy for proxy in proxies}
    left = [proxy for proxy in wanted.values() if not place_of(store, proxy).exists()]
    died = {}
    jobs = [(proxy, store.root) for proxy in left]
    for index, outcome in progress(completed(run, jobs, address), len(jobs), label):
        if isinstance(outcome, UserError):
            died[left[index].key] = str(outcome)
    if died and len(died) == len(wanted):
        raise UserError(f"all {len(died)} runs failed; the first one: {next(iter(died.values()))}")
    losses = {key: read_json(place_of(store, proxy))["losses"] for key, proxy in wanted.items() if key not in died}
    return Finished(losses, died)


def place_of(store: Store, proxy: Proxy) -> StorePath:
    return store.root / "proxies" / f"{proxy.key}.json"


def run(proxy: Proxy, root: StorePath) -> dict[str, Any]:
    """Train and evaluate, unless the store has the result already. Write the result to the store.

    Raises:
        UserError: the mixture can't be drawn, or training fails.
    """
    import ubert

    use_threads_of_task()
    store = Store(root)
    if place_of(store, proxy).exists():
        return read_json(place_of(store, proxy))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ubert-proxy-") as name:
        folder, recipe = Path(name), proxy.recipe
        drawn = mix(proxy.mixture, root=root, into=folder)
        shards = shard_here(
            drawn.name, encoder=recipe.encoder, max_tokens=recipe.max_tokens, root=root, into=folder
        )
        predictor = ubert.load(train(recipe, shards, folder))
        losses = {
            corpus: _loss(predictor.model, proxy, corpus, store, folder / "validation" / corpus)
            for corpus, _ in proxy.measured
        }
    result = {
        "mixture": proxy.mixture.name,
        "draws": {f"{source.corpus}/{source.split}": source.draws for source in drawn.sources},
        "steps": recipe.steps,
        "seed": recipe.seed,
        "losses": losses,
        "seconds": round(time.perf_counter() - began, 1),
        "created": now(),
    }
    write_json(place_of(store, proxy), result)
    return result


def _loss(model: Any, proxy: Proxy, corpus: str, store: Store, folder: Path) -> float:
    from ubert.model.tokenizer import load_tokenizer
    from ubert.training.validation import validation_loss

    records = list(read_records(*store.current("corpora", corpus), "validation", proxy.limit))
    shards = shards_of(records, proxy.recipe.encoder, folder, proxy.recipe.max_tokens)
    return validation_loss(model, load_tokenizer(proxy.recipe.encoder), proxy.recipe, shards)


def explained(died: Mapping[str, str]) -> str:
    """Describe how many runs failed, and why."""
    reasons: Iterable[str] = dict.fromkeys(died.values())
    return f"{len(died)} run{'s' * (len(died) > 1)} failed: {'; '.join(reasons)}"
