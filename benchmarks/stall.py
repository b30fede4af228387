"""Train from a throttled object store on loopback, and from a folder: losses, and the wait for shards.

The encoder has two small layers, so that a step is as short as it can be. Each number of workers trains once from
the store and once from a folder. Each worker has an empty cache of its own, and trains in blocks of shards. The
wait is that of rank 0 after the first step, as a share of its time.

    python benchmarks/stall.py [--workers 1 2 4] [--steps 60] [--latency 0.03] [--bandwidth 50e6] [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from fetching import THERE, make_shards
from measure import ENCODER, report
from throttled import serve
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines.shards.remote import RemoteShards
from pipelines.store.disk_cache import CACHE, DiskCache
from ubert.loader.loader import Loader, Step
from ubert.model.tokenizer import encoder_path
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.logs import log
from ubert.training.step import Worker

SHARDS, OF_SHARD, BLOCKS = 32, 125, 8


def make_encoder(folder: Path) -> Path:
    """Write a random BERT with two small layers, and a tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(encoder_path(ENCODER))
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return folder


def train(folder: Path, run: Path, steps: int, rank: int, world: int, remote: bool) -> None:
    """Train as one worker, and write the seconds that each step was waited for to `<run>/waits`."""
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{run}.rendezvous", rank=rank, world_size=world)
    recipe = Recipe(
        name=run.name,
        mixture="generated",
        encoder=str(folder / "encoder"),
        steps=steps,
        tokens_per_batch=2048,
        shuffle_blocks=BLOCKS,
        precision="fp32",
        checkpoint_every=10 * steps,
    )
    waits: list[float] = []

    class Timed(Loader):
        def iterate(self, start: int = 0) -> Iterator[Step]:
            """Measure the waits."""
            made = super().iterate(start)
            began = time.perf_counter()
            for step in made:
                waits.append(time.perf_counter() - began)
                yield step
                began = time.perf_counter()

    loop.Loader = Timed  # type: ignore[attr-defined]
    cache = DiskCache(folder / f"cache-{run.name}-{rank}", CACHE)
    shards = RemoteShards(THERE, cache) if remote else folder / "served" / THERE.key
    loop.train(recipe, shards=shards, run=run, worker=Worker(rank, world, progress=False))
    if rank == 0:
        (run / "waits").write_text("\n".join(map(str, waits)), encoding="utf-8")


def trained(folder: Path, steps: int, world: int, remote: bool) -> tuple[list[float], float]:
    """Return the losses, and the share of waiting after the first step."""
    run = folder / f"run-{world}-{'store' if remote else 'folder'}"
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=train, args=(folder, run, steps, rank, world, remote)) for rank in range(world)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    rows, _ = log.read(run)
    waits = [float(line) for line in (run / "waits").read_text(encoding="utf-8").splitlines()]
    return [row.loss for row in rows], sum(waits[1:]) / sum(row.seconds for row in rows[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--latency", type=float, default=0.03, help="seconds of a request")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="bytes per second")
    parser.add_argument("--quick", action="store_true", help="20 steps of one worker")
    asked = parser.parse_args()
    steps, counts = (20, [1]) if asked.quick else (asked.steps, asked.workers)
    with tempfile.TemporaryDirectory(prefix="ubert-") as name:
        folder = Path(name)
        make_shards(folder / "served", SHARDS * OF_SHARD, OF_SHARD)
        make_encoder(folder / "encoder")
        one, _ = trained(folder, steps, 1, remote=False)
        with serve(folder / "served", asked.latency, asked.bandwidth):
            for world in counts:
                losses, share = trained(folder, steps, world, remote=True)
                local = one if world == 1 else trained(folder, steps, world, remote=False)[0]
                report("stall", f"{world} workers: waiting after step one", share, None, "share", steps)
                case = f"{world} workers: difference from a folder"
                report("stall", case, difference(losses, local), None, "relative", steps)
                case = f"{world} workers: difference from one worker"
                report("stall", case, difference(losses, one), None, "relative", steps)


def difference(losses: list[float], others: list[float]) -> float:
    """Return the largest relative difference: the first losses of a random encoder are tens of thousands."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True))


if __name__ == "__main__":
    main()
