"""A proxy run: a short training on one mixture, and the validation loss of each corpus after it.

Runs are plain Ray tasks, and their results are files of the store. Ray Tune has schedulers and search algorithms,
which trials that are drawn independently and all run to their end don't use; it keeps results in a folder of one
experiment. Here `affinity`, `tune` and a later `tune` with more trials share what is finished.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.mixtures.mix import mix
from pipelines.models.evaluate import read_records
from pipelines.progress import progress
from pipelines.shards.shard import shard_here
from pipelines.store.storage import Place
from pipelines.store.store import Store, atomic, now
from pipelines.tasks import completed
from pipelines.training.short_run import shards_of, train, use_threads_of_task
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.mixture import Mixture
from ubert.schema.recipe import Recipe


class Proxy(NamedTuple):
    """What one run trains on, and how. `origin`: the fingerprint of the mixture that the user named, which stands
    for all data that a draw depends on; `weights`: the hash of those that the run begins with; `measured`: corpora
    with their versions, of whose validation splits the first `limit` records by sampling key are measured."""

    mixture: Mixture
    origin: str
    recipe: Recipe
    weights: str
    measured: tuple[tuple[str, str], ...]
    limit: int

    @property
    def key(self) -> str:
        """By which its result is found again."""
        settings = self.recipe.model_dump(mode="json", exclude={"name", "description", "mixture"})
        return fingerprint(
            self.mixture.meaning, self.origin, settings, self.weights, sorted(self.measured), self.limit
        )


class Finished(NamedTuple):
    """Validation losses by corpus of the runs that finished, by key, and why each of the others died."""

    losses: dict[str, dict[str, float]]
    died: dict[str, str]


def run_all(proxies: Sequence[Proxy], root: Place, address: str | None, label: str) -> Finished:
    """Run as Ray tasks what the store has no result of.

    Raises:
        UserError: every run died; why the first did.
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
        raise UserError(f"all {len(died)} runs died; the first one: {next(iter(died.values()))}")
    losses = {key: _read(store, proxy)["losses"] for key, proxy in wanted.items() if key not in died}
    return Finished(losses, died)


def place_of(store: Store, proxy: Proxy) -> Place:
    """The file of a run's result."""
    return store.root / "proxies" / f"{proxy.key}.json"


def run(proxy: Proxy, root: Place) -> dict[str, Any]:
    """Train and measure, unless that was done before; the result is in the store when this returns.

    Raises:
        UserError: the mixture can't be drawn, or training fails.
    """
    import ubert

    use_threads_of_task()
    store = Store(root)
    if place_of(store, proxy).exists():
        return _read(store, proxy)
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
    with atomic(place_of(store, proxy)) as path:
        path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    return result


def _loss(model: Any, proxy: Proxy, corpus: str, store: Store, folder: Path) -> float:
    """The validation loss of one corpus."""
    from ubert.model.tokenizer import load_tokenizer
    from ubert.training.validation import validation_loss

    records = list(read_records(*store.current("corpora", corpus), "validation", proxy.limit))
    shards = shards_of(records, proxy.recipe.encoder, folder, proxy.recipe.max_tokens)
    return validation_loss(model, load_tokenizer(proxy.recipe.encoder), proxy.recipe, shards)


def _read(store: Store, proxy: Proxy) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(place_of(store, proxy).read_text(encoding="utf-8"))
    return found


def explained(died: Mapping[str, str]) -> str:
    """How many runs died, and why."""
    reasons: Iterable[str] = dict.fromkeys(died.values())
    return f"{len(died)} run{'s' * (len(died) > 1)} died: {'; '.join(reasons)}"
