"""Read training texts from an object store: our shards against mosaicml-streaming.

Both sides read the same rows, tokens of a text and its gold cells, from shards of the same size on one throttled
server on loopback. Theirs is a shuffled `StreamingDataset` in a `DataLoader` that pads 64 texts. Ours makes whole
batches, with prompts and targets; "8 blocks" is `shuffle_blocks: 8`. Each measurement has a process of its own.
Cold means with an empty cache. A jump opens everything and makes one batch in the middle of the epoch. With
`--jumps`, only jumps are measured, and shards have 50,000 rows; theirs has the same 20 again under other names.

mosaicml-streaming is not a dependency of the project:

    pip install --no-deps --target DIR mosaicml-streaming Brotli catalogue cramjam python-snappy zstd
    PYTHONPATH=DIR python benchmarks/streamed.py [--rows 100000] [--latency 0.03] [--bandwidth 50e6] [--quick]
    PYTHONPATH=DIR python benchmarks/streamed.py --jumps --rows 100000000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from batches_large import SPECIAL
from blake3 import blake3
from fetching import THERE, make_shards
from measure import report
from throttled import Throttled, serve
from torch.utils.data import DataLoader

from pipelines.shards.remote import RemoteShards
from pipelines.store.disk_cache import CACHE, DiskCache
from ubert.loader.loader import Loader
from ubert.loader.shards import Shards, open_shards
from ubert.schema.specs.recipe import Recipe

OF_SHARD, LARGE = 2_500, 50_000  # rows of a shard: 1 MB, 17 MB
WRITTEN = 20  # shards of theirs with --jumps; beyond these, files are repeated
BATCH = 64
BLOCKS = {"ours": 1, "ours, 8 blocks": 8, "ours, 200 blocks": 200}
EPOCHS = ("ours", "ours, 8 blocks"), ("cold epoch", "warm epoch", "warm jump", "cold jump")
JUMPS = ("ours", "ours, 200 blocks"), ("cold jump", "warm jump")


class Cost(NamedTuple):
    """The cost of one process without its imports. `mib` is by how much its peak memory grew, with mapped shards.
    `requests` and `sent` bytes are the server's."""

    seconds: float
    cpu_seconds: float
    mib: float
    texts: int
    requests: int
    sent: int


def loader_on(shards: Shards, blocks: int) -> Loader:
    given: dict[str, Any] = {"epochs": 1, "tokens_per_batch": 8192, "shuffle_blocks": blocks}
    return Loader(shards, Recipe(name="streamed", mixture="generated", **given), SPECIAL, 512)


def ours(cache: Path, jump: bool, blocks: int) -> int:
    """Return the number of texts that were read."""
    loader = loader_on(open_shards(RemoteShards(THERE, DiskCache(cache, CACHE))), blocks)
    steps = loader.iterate(loader.total_steps // 2 if jump else 0)
    return sum(len(step.rows) for step in islice(steps, 1 if jump else None))


def theirs(cache: Path, jump: bool) -> int:
    """Return the number of texts that were read."""
    dataset = streaming().StreamingDataset(
        remote=f"s3://{THERE.parent.key}/theirs", local=str(cache), shuffle=True, batch_size=BATCH
    )
    if jump:
        seed, middle = dataset.shuffle_seed, dataset.size // 2 // BATCH * BATCH
        nodes = {"num_canonical_nodes": 1, "initial_physical_nodes": 1}
        dataset.load_state_dict({"epoch": 0, "sample_in_epoch": middle, "shuffle_seed": seed, **nodes})
    batches = DataLoader(dataset, batch_size=BATCH, collate_fn=padded)
    return sum(len(ids) for ids, _, _ in islice(batches, 1 if jump else None))


def streaming() -> Any:
    """Import their package without its datasets of pictures, which need torchvision."""
    sys.modules["streaming.vision"] = ModuleType("streaming.vision")
    return import_module("streaming")


def padded(samples: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Return the tokens, the mask and the cells of a batch."""
    ids = [torch.from_numpy(sample["ids"]) for sample in samples]
    ids_BL = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    length_B = torch.tensor([len(one) for one in ids])
    mask_BL = torch.arange(ids_BL.shape[1]) < length_B[:, None]
    return ids_BL, mask_BL, [torch.from_numpy(sample["cells"]) for sample in samples]


def write_orders(directory: Path, sides: Sequence[str]) -> None:
    """Write the orders of our shards as the first run on them does, but without a cache that holds them again."""
    for side in sides:
        loader_on(open_shards(directory, verify=False), BLOCKS[side])
    for rows in directory.glob("order-*-rows.npy"):
        files = rows.with_name(rows.name.replace("-rows", "-sizes")), rows
        hashes = {file.name: blake3(file.read_bytes()).hexdigest() for file in files}
        rows.with_name(f"{rows.name}.json").write_text(json.dumps(hashes), encoding="utf-8")


def write_theirs(directory: Path, shards: Path, most: int) -> None:
    """Write the rows of our first shards, at most `most`, in their format. Repeat these files for the others."""
    columns = {"ids": "ndarray:int32", "cells": "ndarray:int32"}
    size = next(shards.glob("shard-*")).stat().st_size
    files = [*open_shards(shards, verify=False).files]
    with streaming().MDSWriter(out=str(directory), columns=columns, size_limit=size) as writer:
        for file in files[:most]:
            for i in range(len(file)):
                writer.write({"ids": file.text[i].copy(), "cells": file.cells[i].ravel().copy()})
    index = json.loads((directory / "index.json").read_text(encoding="utf-8"))
    written = [*index["shards"]]
    for copy in range(1, -(-len(files) // most)):
        for shard in written:
            name = f"{copy}-{shard['raw_data']['basename']}"
            os.link(directory / shard["raw_data"]["basename"], directory / name)
            index["shards"].append({**shard, "raw_data": {**shard["raw_data"], "basename": name}})
    (directory / "index.json").write_text(json.dumps(index), encoding="utf-8")


def measured(store: Throttled, side: str, phase: str, cache: Path) -> Cost:
    before, sent = len(store.requests), store.sent
    command = [sys.executable, __file__, "--side", side, phase, str(cache)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, cpu_seconds, mib, texts = json.loads(done.stdout.splitlines()[-1])
    return Cost(seconds, cpu_seconds, mib, texts, len(store.requests) - before, store.sent - sent)


def run_side(side: str, phase: str, cache: Path) -> None:
    """Do one measurement in this process, and print it."""
    jump = phase.endswith("jump")
    work: Callable[[], int] = (
        partial(theirs, cache, jump) if side == "theirs" else partial(ours, cache, jump, BLOCKS[side])
    )
    before = _peak()
    began, cpu_began = time.perf_counter(), time.process_time()
    texts = work()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps([seconds, cpu_seconds, _peak() - before, texts]))


def _peak() -> float:
    """Return the peak resident memory of this process in MiB. That of `getrusage` includes its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def compare(store: Throttled, folder: Path, sides: Sequence[str], phases: Sequence[str]) -> None:
    cold = 0
    for phase in phases:
        costs = {}
        cold += phase.startswith("cold")
        for side in (*sides, "theirs"):
            costs[side] = measured(store, side, phase, folder / f"{side} {cold}")
        for side in sides:
            one, other = costs[side], costs["theirs"]
            if phase.endswith("epoch"):
                speeds = one.texts / one.seconds, other.texts / other.seconds
                report("streamed", f"{side}: {phase}", *speeds, "texts/s", 1, more=True)
                by_cpu = one.texts / one.cpu_seconds, other.texts / other.cpu_seconds
                report("streamed", f"{side}: {phase}, CPU", *by_cpu, "texts/s", 1, more=True)
            else:
                report("streamed", f"{side}: {phase}", one.seconds, other.seconds, "s", 1)
                report("streamed", f"{side}: {phase}, CPU", one.cpu_seconds, other.cpu_seconds, "s", 1)
            report("streamed", f"{side}: {phase}, requests", one.requests, max(1, other.requests), "", 1)
            report("streamed", f"{side}: {phase}, sent", one.sent / 1e6, max(1, other.sent) / 1e6, "MB", 1)
            report("streamed", f"{side}: {phase}, memory", one.mib, other.mib, "MiB", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--latency", type=float, default=0.03, help="seconds of a request")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="bytes per second")
    parser.add_argument("--jumps", action="store_true", help="measure jumps in shards of 50,000 rows")
    parser.add_argument("--quick", action="store_true", help="8 shards")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        side, phase, cache = asked.side
        run_side(side, phase, Path(cache))
        return
    of_shard, (sides, phases) = (LARGE, JUMPS) if asked.jumps else (OF_SHARD, EPOCHS)
    rows = 8 * of_shard if asked.quick else asked.rows // of_shard * of_shard
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
        directory = make_shards(Path(folder) / "served", rows, of_shard)
        write_orders(directory, sides)
        write_theirs(directory.parent / "theirs", directory, WRITTEN if asked.jumps else rows)
        with serve(Path(folder) / "served", asked.latency, asked.bandwidth) as store:
            compare(store, Path(folder), sides, phases)


if __name__ == "__main__":
    main()
