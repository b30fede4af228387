"""Near duplicates among generated records: `pipelines.audit.duplicates` against rensa's own deduplicator.

The records are sentences of 20 to 60 words, drawn by Zipf's law from 50,000 words, in two corpora. One in a
hundred is a planted near duplicate: a copy of another record with 3 % of the words (at least one) replaced,
dropped or added (similarity above 0.8). Another one in a hundred is a negative: a copy with a tenth of the words
and one more replaced (similarity below 0.8). The ground truth is therefore known.

Theirs is what a user of rensa would write. `datasets` reads the same files, and one `RMinHashDeduplicator` with
128 permutations and LSH takes the same shingles of all texts, one after another. It reports which records are
duplicates. Ours also reports of which record, verifies every pair, and finds leaks and contradictions. Each side
runs in its own process. Memory is the sum of the resident sets of that process and its children, so shared pages
count more than once.

    python benchmarks/duplicates.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq
from made_corpus import publish
from measure import measured, report

from pipelines.audit.duplicates import duplicates
from pipelines.audit.shingles import jaccard, shingles
from pipelines.store.storage import on_disk
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.arrow import records_to_batch
from ubert.schema.manifest import fingerprint
from ubert.schema.record import RECORD_SCHEMA, Category, Record, Source

NEAR = 0.8
CORPORA = ("first", "second")
PART = 25_000  # records per file
WORDS = [f"w{number:x}" for number in range(50_000)]
WEIGHTS = list(accumulate(1 / (rank + 10) for rank in range(len(WORDS))))
CATEGORIES = (Category("even", "label"), Category("odd", "label"))


def make_store(root: Path, size: int) -> set[frozenset[str]]:
    """Write both corpora, deterministically for a size; return the planted pairs."""
    draw = random.Random(size)
    planted: set[frozenset[str]] = set()
    made = {corpus: Parts(root, corpus, size) for corpus in CORPORA}
    for start in range(0, size, 100):
        texts = [draw.choices(WORDS, cum_weights=WEIGHTS, k=draw.randint(20, 60)) for _ in range(100)]
        texts[1] = edited(texts[0], max(1, round(0.03 * len(texts[0]))), draw, "replace drop add")
        texts[3] = edited(texts[2], len(texts[2]) // 10 + 1, draw, "replace")
        near = jaccard(shingles(" ".join(texts[0]), None), shingles(" ".join(texts[1]), None))
        alike = jaccard(shingles(" ".join(texts[2]), None), shingles(" ".join(texts[3]), None))
        assert alike < NEAR <= near, (alike, near)
        # A copy is far from its original, in the same or in the other corpus at random.
        ids = [made[draw.choice(CORPORA)].add(start + place, " ".join(words)) for place, words in enumerate(texts)]
        planted.add(frozenset(ids[:2]))
    for parts in made.values():
        parts.publish()
    return planted


class Parts:
    """Writer of the files of one corpus."""

    def __init__(self, root: Path, corpus: str, size: int) -> None:
        self.store, self.corpus, self.mark = Store(root), corpus, fingerprint(corpus, size)
        self.directory = on_disk(self.store.directory("corpora", corpus, self.mark))
        self.directory.mkdir(parents=True)
        self.names: list[str] = []
        self.records: list[Record] = []
        self.size = 0

    def add(self, number: int, text: str) -> str:
        """Add a record and return its id."""
        record = Record(
            record_id=f"{self.corpus}/train/{number * 7919 % 10_000_019}",  # ids are not in the order of the file
            corpus=self.corpus,
            split="train",
            language="en",
            task="classification",
            instruction="parity",
            text=text,
            source=Source("made", number + 1, "00"),
            categories=CATEGORIES,
            labels=[0],
        )
        self.records.append(record)
        self.size += 1
        if len(self.records) == PART:
            self.write()
        return record.record_id

    def write(self) -> None:
        self.names.append(f"part-{len(self.names)}.parquet")
        with pq.ParquetWriter(self.directory / self.names[-1], RECORD_SCHEMA, compression="zstd") as file:
            file.write_batch(records_to_batch(self.records))
        self.records = []

    def publish(self) -> None:
        if self.records:
            self.write()
        publish(self.store, self.corpus, self.mark, "classification", {"train": self.size}, self.names)


def edited(words: list[str], edits: int, draw: random.Random, kinds: str) -> list[str]:
    """Replace, drop or add words at `edits` distinct positions."""
    changed = list(words)
    for place in sorted(draw.sample(range(len(words)), edits), reverse=True):
        new = draw.choice(WORDS)
        match draw.choice(kinds.split()):
            case "replace":
                changed[place] = new
            case "drop":
                del changed[place]
            case "add":
                changed.insert(place, new)
    return changed


def ours(root: Path) -> set[str]:
    """Return the ids of the near duplicates."""
    duplicates(root=root, near=NEAR)
    return set(sql(root, "SELECT record_id FROM duplicates WHERE kind = 'near'").column(0).to_pylist())


def theirs(root: Path) -> set[str]:
    """Return the ids of the records that the deduplicator reports as already seen."""
    import datasets
    from rensa import RMinHash, RMinHashDeduplicator

    datasets.disable_progress_bars()
    files = sorted(str(path) for path in (root / "corpora").glob("*/*/part-*.parquet"))
    rows = datasets.load_dataset("parquet", data_files=files, split="train", columns=["record_id", "text"])
    # 16 bands of 8 rows: the usual setting for a threshold of 0.8.
    seen = RMinHashDeduplicator(NEAR, 128, True, 16, 42)
    found = set()
    for row in rows:
        signature = RMinHash(128, 42)
        signature.update(list(shingles(row["text"], None)))
        if not seen.add(row["record_id"], signature):
            found.add(row["record_id"])
    return found


def scores(found: set[str], planted: set[frozenset[str]]) -> dict[str, float]:
    """Compute recall and precision.

    Recall is the share of planted pairs with a record that was found. Precision is the share of found records that
    belong to such a pair; each pair counts once.
    """
    hit = sum(bool(pair & found) for pair in planted)
    return {"recall": hit / len(planted), "precision": hit / max(1, len(found))}


def show(case: str, ours: float, theirs: float, unit: str, n: int, *, more: bool = False) -> None:
    report("duplicates", case, ours, theirs, unit, n, more=more, digits=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="50,000 records: ends within a minute")
    arguments = parser.parse_args()
    size = 50_000 if arguments.quick else arguments.records // 100 * 100
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:
        os.environ |= {"HF_HOME": folder, "HF_DATASETS_OFFLINE": "1"}
        root = Path(folder) / "store"
        planted = make_store(root, size)
        ours_cost, ours_found = measured(ours, root)
        theirs_cost, theirs_found = measured(theirs, root)
        show("time", ours_cost.seconds, theirs_cost.seconds, "s", size)
        show("time of all processors", ours_cost.cpu_seconds, theirs_cost.cpu_seconds, "s", size)
        show("peak memory", ours_cost.peak, theirs_cost.peak, "MiB", size)
        ours_scores, theirs_scores = scores(ours_found, planted), scores(theirs_found, planted)
        for name in ours_scores:
            show(name, ours_scores[name], theirs_scores[name], "share", size, more=True)


if __name__ == "__main__":
    main()
