"""Generate shards of any number of rows, and resume at a random step of an epoch of them in one process.

One shard of 100,000 rows of about 60 tokens is written, and hard-linked as often as needed. Texts are therefore
read from the page cache. The benchmark measures what grows with the number of rows: the manifest, the draws, the
order, and the plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from ubert.loader.loader import Loader
from ubert.loader.shards import (
    CATEGORY_SCHEMA,
    PROMPT_SCHEMA,
    PROMPT_WORDS,
    SHARD_SCHEMA,
    draws_schema,
    open_shards,
)
from ubert.schema.manifest import MANIFEST, Alignment, ShardFile, ShardManifest
from ubert.schema.record import TASKS
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Special

ROWS = 100_000  # rows of a shard
SPECIAL = Special(cls=101, sep=102, pad=0, marker=1, types=True)
MIB = 1 << 20
HERE = Path(__file__)


def generate(directory: Path, rows: int, of_shard: int = ROWS) -> None:
    """Write shards of `rows` rows with ten categories each, `of_shard` in a shard."""
    random = np.random.default_rng(0)
    length_R = np.clip(random.normal(60, 15, of_shard), 8, 200).astype(np.int64)
    words = pa.array([{"instruction": "i", "names": ["c"] * 10, "kinds": ["entity"] * 10}], PROMPT_WORDS)
    zero_R = pa.array(np.zeros(of_shard, np.int32))
    cells = pa.FixedSizeListArray.from_arrays(pa.array(np.tile([1, 2, 3], of_shard).astype(np.int32)), 3)
    width = SHARD_SCHEMA.types[-1].list_size  # alignment counts of a record
    columns = [
        pa.array([f"generated/train/{i}" for i in range(of_shard)]),
        pa.DictionaryArray.from_arrays(zero_R, pa.array(["generated"])),
        pa.DictionaryArray.from_arrays(pa.array(np.full(of_shard, TASKS.index("ner"), np.int32)), pa.array(TASKS)),
        pa.array(np.arange(of_shard, dtype=np.int32)),
        pa.DictionaryArray.from_arrays(zero_R, words),
        _lists(length_R, random.integers(1_000, 20_000, int(length_R.sum()))),
        _lists(np.zeros(of_shard, np.int64), np.empty(0)),
        _lists(np.zeros(of_shard, np.int64), np.empty(0)),
        zero_R,
        _lists(np.zeros(of_shard, np.int64), np.empty(0)),
        pa.ListArray.from_arrays(pa.array(np.arange(of_shard + 1, dtype=np.int32)), cells),
        pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(width * of_shard, np.int32)), width),
    ]
    count = rows // of_shard
    names = [f"shard-{i:05}.arrow" for i in range(count)]
    _write(directory / names[0], [pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)])
    for name in names[1:]:
        os.link(directory / names[0], directory / name)
    once = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(of_shard, np.int32)), type=pa.list_(pa.int32(), 1))
    draws = pa.RecordBatch.from_arrays([once, zero_R], schema=draws_schema(1))
    _write(directory / "draws.arrow", [draws] * count)
    prompt = [pa.array([0], pa.int32()), _lists(np.array([10]), np.arange(1, 11))]
    _write(directory / "prompts.arrow", [pa.RecordBatch.from_arrays(prompt, schema=PROMPT_SCHEMA)])
    word = [
        pa.array(["w"] * 11),
        pa.array(["entity"] * 11),
        _lists(np.full(11, 2), np.arange(22)),
        zero_R.slice(0, 11),
        _lists(np.zeros(11, np.int64), np.empty(0)),
    ]
    _write(directory / "categories.arrow", [pa.RecordBatch.from_arrays(word, schema=CATEGORY_SCHEMA)])
    tokens = int(length_R.sum())
    manifest = ShardManifest(
        name="generated",
        fingerprint="0123456789abcdef",
        created="",
        mixture="generated",
        mixture_fingerprint="",
        encoder="",
        tokenizer="",
        max_tokens=256,
        phases=1,
        shards=[ShardFile(path=name, rows=of_shard, tokens=tokens, blake3="") for name in names],
        draws=ShardFile(path="draws.arrow", rows=rows, tokens=0, blake3=""),
        categories=ShardFile(path="categories.arrow", rows=11, tokens=22, blake3=""),
        prompts=ShardFile(path="prompts.arrow", rows=1, tokens=0, blake3=""),
        cut_categories=0,
        alignment=[_alignment(rows, tokens * count)],
    )
    (directory / MANIFEST).write_text(manifest.model_dump_json())


def _alignment(rows: int, tokens: int) -> Alignment:
    counts = {"records": rows, "rows": rows, "tokens": tokens, "spans": rows, "exact": rows}
    return Alignment(corpus="generated", **counts, cut=0, widened=0, narrowed=0, lost={}, links=0, lost_links={})


def _lists(length_R: npt.NDArray[Any], values: npt.NDArray[Any]) -> pa.ListArray:
    offsets = np.append(0, np.cumsum(length_R)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.astype(np.int32)))


def _write(path: Path, batches: list[pa.RecordBatch]) -> None:
    with pa.ipc.new_file(str(path), batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)


def ours(directory: Path) -> None:
    """Open the shards and build one random step; make the order first if it is missing."""
    recipe = Recipe(name="generated", mixture="generated", epochs=1, tokens_per_batch=8192)
    loader = Loader(open_shards(directory, verify=False), recipe, SPECIAL, 512)
    loader.step(int(np.random.default_rng(time.time_ns()).integers(loader.total_steps)))


def theirs(rows: int, batch_size: int = 64) -> None:
    """Resume a shuffled epoch as a map-style `DataLoader` does: draw the order, and skip to the middle."""
    import itertools

    from torch.utils.data import BatchSampler, RandomSampler

    sampler = BatchSampler(RandomSampler(range(rows)), batch_size, drop_last=False)
    next(itertools.islice(sampler, len(sampler) // 2, None))


def measured(side: str, argument: Path | int) -> tuple[float, float]:
    """Run one side in a fresh process; return its seconds and its peak memory growth in MiB, without imports.

    The memory is the process's own, with the mapped files that only it uses.
    """
    command = [sys.executable, str(HERE), side, str(argument)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, grown = json.loads(done.stdout)
    return seconds, grown


def cost_of(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of `work`, and by how many MiB the memory of this process grew at most."""
    own, done = psutil.Process(), threading.Event()
    taken = [own.memory_full_info().uss]

    def watch() -> None:
        while not done.wait(0.05):
            taken.append(own.memory_full_info().uss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    taken.append(own.memory_full_info().uss)
    done.set()
    watcher.join()
    return seconds, (max(taken) - taken[0]) / MIB


def main() -> None:
    """Run one side in this process, and print its seconds and MiB."""
    side, argument = sys.argv[1:]
    work = partial(ours, Path(argument)) if side == "ours" else partial(theirs, int(argument))
    print(json.dumps(cost_of(work)))


if __name__ == "__main__":
    main()
