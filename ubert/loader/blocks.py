"""Blocks of shards, which an epoch goes through one after another, so that a machine needs few shards at a time.

Block b of n has every n-th shard from b on, so a corpus of many shards is in each block. The smallest corpora,
which together have at most as many tokens as a block, are shared: each block has a part of their rows, and their
shards are needed all the time. Without that, a corpus of one shard would be in one block alone.

Blocks depend on the shards and on their number, but not on the seed. Each epoch goes through them in a new order.

Shapes: S shards, R rows of a shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ubert.encoder.ragged import Longs
from ubert.schema.manifest import ShardManifest

_SHARED = -1


class Blocks:
    """The blocks of a shard set. `count` is less than `wanted` if there are fewer shards that are not shared."""

    def __init__(self, manifest: ShardManifest, wanted: int) -> None:
        corpus_S = [file.path.removeprefix("shard-").rpartition("-")[0] for file in manifest.shards]
        shared = _smallest(manifest, corpus_S, wanted) if wanted > 1 else set()
        own = np.flatnonzero([corpus not in shared for corpus in corpus_S])
        self.count = max(1, min(wanted, len(own)))
        self._block_S = np.full(len(corpus_S), _SHARED)
        self._block_S[own] = np.arange(len(own)) % self.count

    def shards(self, block: int) -> list[int]:
        """Return the numbers of the shards that a block needs."""
        return np.flatnonzero((self._block_S == block) | (self._block_S == _SHARED)).tolist()

    def own(self, block: int) -> list[int]:
        """Return the numbers of the shards that no other block needs."""
        return np.flatnonzero(self._block_S == block).tolist()

    def copies(self, shard: int, row_R: Longs, copies_R: Longs) -> Iterator[tuple[int, Longs]]:
        """Yield each block that shows rows of a shard, and how many of their copies it shows."""
        if (only := int(self._block_S[shard])) != _SHARED:
            yield only, copies_R
            return
        for block in range(self.count):
            yield block, self._dealt(row_R, copies_R, block)

    def before(self, shard: int, row: int, copies: int, block: int) -> int:
        """Return how many copies of a row the blocks before `block` show."""
        if self._block_S[shard] != _SHARED:
            return 0
        return sum(int(self._dealt(row, copies, earlier)) for earlier in range(block))

    def _dealt(self, row_R: Longs | int, copies_R: Longs | int, block: int) -> Longs:
        """Return the copies of shared rows in a block. Copy j of row i is in block (i + j) mod `count`."""
        return np.asarray((copies_R + self.count - 1 - (block - row_R) % self.count) // self.count)


def _smallest(manifest: ShardManifest, corpus_S: list[str], blocks: int) -> set[str]:
    """Return the smallest corpora that together have at most the share of one block."""
    tokens = Counter[str]()
    for corpus, file in zip(corpus_S, manifest.shards, strict=True):
        tokens[corpus] += file.tokens
    ordered = sorted(tokens, key=lambda corpus: (tokens[corpus], corpus))
    ends = np.cumsum([tokens[corpus] for corpus in ordered])
    return set(ordered[: int((ends * blocks <= ends[-1]).sum())])
