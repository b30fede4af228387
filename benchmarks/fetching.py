"""Wait for shards of a throttled object store on loopback, and compare with the simulation of `simulate.py`.

A step is a pause. The order and the prompts are written before; each case has an empty cache. Ours is the
measurement, theirs the median of simulations.

    python benchmarks/fetching.py [--shards 40] [--steps 60] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from batches_large import SPECIAL, generate
from blake3 import blake3
from measure import report
from simulate import Given, simulate
from throttled import Throttled, serve

from pipelines.shards.remote import RemoteShards
from pipelines.store.disk_cache import CACHE, DiskCache
from pipelines.store.storage import ObjectPath
from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.schema.manifest import MANIFEST, ShardFile, ShardManifest, read_manifest
from ubert.schema.specs.recipe import Recipe

OF_SHARD = 1_250  # rows, half a MB
STEP = 0.5  # seconds
SEEDS = 9
CASES = ((0.03, 2.5e6), (0.3, 2.5e6), (0.3, 10e6))  # latency and bandwidth
RECIPE = Recipe(name="fetching", mixture="generated", epochs=1, tokens_per_batch=512, packs_per_batch=1)
THERE = ObjectPath("bucket/shards")


class Waited(NamedTuple):
    """Seconds before the first step and after it, and the mean number of rows of a step."""

    first: float
    after: float
    rows: float


def make_shards(buckets: Path, rows: int, of_shard: int) -> Path:
    """Write shards of `rows` rows at `THERE`, each a file of its own, and complete the hashes of the manifest."""
    directory = buckets / THERE.key
    directory.mkdir(parents=True)
    generate(directory, rows, of_shard)
    manifest = read_manifest(ShardManifest, directory)
    batches = pa.ipc.open_file((directory / manifest.shards[0].path).read_bytes())
    for number, file in enumerate(manifest.shards):
        (directory / file.path).unlink()
        schema = batches.schema.with_metadata({"number": str(number)})
        with pa.ipc.new_file(str(directory / file.path), schema) as written:
            written.write_batch(batches.get_batch(0).replace_schema_metadata(schema.metadata))

    def hashed(file: ShardFile) -> ShardFile:
        return file.model_copy(update={"blake3": blake3((directory / file.path).read_bytes()).hexdigest()})

    beside = {name: hashed(getattr(manifest, name)) for name in ("draws", "prompts", "categories")}
    whole = manifest.model_copy(update={"shards": [*map(hashed, manifest.shards)], **beside})
    (directory / MANIFEST).write_text(whole.model_dump_json(), encoding="utf-8")
    return directory


def loader_on(cache: Path) -> Loader:
    return Loader(open_shards(RemoteShards(THERE, DiskCache(cache, CACHE))), RECIPE, SPECIAL, 512)


def waited(cache: Path, steps: int) -> Waited:
    """Train with pauses as steps."""
    waits, rows = [], []
    training = loader_on(cache).iterate()
    began = time.monotonic()
    for step in islice(training, steps):
        waits.append(time.monotonic() - began)
        rows.append(len(step.rows))
        time.sleep(STEP)
        began = time.monotonic()
    return Waited(waits[0], sum(waits[1:]), statistics.mean(rows))


def compare(store: Throttled, latency: float, bandwidth: float, shards: int, steps: int) -> None:
    store.latency, store.bandwidth = latency, bandwidth
    with tempfile.TemporaryDirectory(prefix="ubert-") as cache:
        found = waited(Path(cache), steps)
    size = statistics.mean(path.stat().st_size for path in (store.folder / THERE.key).glob("shard-*"))
    given = Given(1, shards * size, size, 1e12, bandwidth, latency, round(found.rows), STEP, steps)
    simulated = [simulate(given, seed=seed)[:2] for seed in range(SEEDS)]
    first, stall = (statistics.median(times) for times in zip(*simulated, strict=True))
    where = f"{1000 * latency:.0f} ms, {bandwidth / 1e6:g} MB/s"
    report("fetching", f"{where}: before the first step", found.first, first, "s", 1)
    report("fetching", f"{where}: after it", found.after, stall, "s", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="10 steps")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
        make_shards(Path(folder), asked.shards * OF_SHARD, OF_SHARD)
        with serve(Path(folder), 0.0, 1e12) as store:
            loader_on(Path(folder) / "cache")  # writes the order
            for latency, bandwidth in CASES:
                compare(store, latency, bandwidth, asked.shards, 10 if asked.quick else asked.steps)


if __name__ == "__main__":
    main()
