"""Pages of `ubert browse` over a corpus of a million records, against the same rows by SQL alone.

Ours is a request to the app, timed to the last byte of its page. Theirs reads the rows of the same page by
`SELECT * FROM records ... LIMIT 21 OFFSET n`, and renders nothing. The corpus has ten parts with row groups of
10,000 records, as ingest writes them. A text has 24 words, and a record three mentions. The search term occurs in
one record, at 95 % of the corpus.

Expected: the first, the middle and the last page take the same time, a few hundredths of a second, because each
reads one row group. SQL reads all columns up to the page, so later pages are slower. A search reads only the texts
up to its last match, which takes most of a second on one core. No page takes a second on an idle machine.

Processor seconds are the sum over all threads. On a busy machine they are more reliable than the clock.

    python benchmarks/browse.py [--quick] [--records 1000000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from made_corpus import publish
from measure import report
from starlette.testclient import TestClient

from pipelines.browse.routes import RECORDS, browser
from pipelines.serving.app import create_app
from pipelines.serving.wire import Limits
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.arrow import records_to_batch
from ubert.schema.manifest import FILES
from ubert.schema.record import FILE_SCHEMA, RECORD_SCHEMA, Category, Record, Source, Span

NAME, NEEDLE = "million", "needle"
PARTS, GROUP = 10, 10_000
PAUSE = 5  # seconds between two cases
WORDS = [f"w{i:04}" for i in range(5_000)]
CATEGORIES = tuple(Category(name, "entity") for name in ("person", "place", "organisation", "date"))


def write(root: Path, size: int) -> None:
    """Write the corpus; nine tenths of it are training records."""
    rng, trained, mark = random.Random(0), size * 9 // 10, "0" * 16
    parts = [f"part-{i}.parquet" for i in range(PARTS)]
    folder = root / "corpora" / NAME / mark
    folder.mkdir(parents=True)

    def record(i: int) -> Record:
        words = [NEEDLE if i == size * 95 // 100 else rng.choice(WORDS), *rng.choices(WORDS, k=23)]
        return Record(
            record_id=f"{NAME}/records.jsonl:{i}",
            corpus=NAME,
            split="train" if i < trained else "test",
            language="en",
            task="ner",
            instruction="named entities",
            text=" ".join(words),
            source=Source("records.jsonl", i + 1, "00"),
            categories=CATEGORIES,
            spans=[Span(6 * k, 6 * k + 5, k) for k in range(3)],
        )

    for i, part in enumerate(parts):
        with pq.ParquetWriter(folder / part, RECORD_SCHEMA, compression="zstd") as file:
            for first in range(i * size // PARTS, (i + 1) * size // PARTS, GROUP):
                last = min(first + GROUP, (i + 1) * size // PARTS)
                file.write_batch(records_to_batch([record(n) for n in range(first, last)]))
    pq.write_table(FILE_SCHEMA.empty_table(), folder / FILES)
    publish(Store(root), NAME, mark, "ner", {"train": trained, "test": size - trained}, parts)


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return wall-clock seconds and processor seconds."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50,000 records: within a minute")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("-n", type=int, default=5, help="runs of each side")
    given = parser.parse_args()
    size, n = (50_000, 3) if given.quick else (given.records, given.n)
    pages = size // RECORDS
    cases = {
        "first page": ("", "true", 0),
        "middle page": (f"?page={pages // 2}", "true", pages // 2),
        "last page": (f"?page={pages}", "true", pages - 1),
        "last page of a split": (f"?split=test&page={pages // 10}", "split = 'test'", pages // 10 - 1),
        "text": (f"?text={NEEDLE.upper()}", f"contains(lower(text), '{NEEDLE}')", 0),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, size)
        app = create_app(None, limits=Limits(), browser=browser(root, "127.0.0.1"))
        with TestClient(app, base_url="http://127.0.0.1") as client:
            for case, (query, condition, page) in cases.items():
                statement = f"SELECT * FROM records WHERE corpus = '{NAME}' AND {condition}"
                statement += f" LIMIT {RECORDS + 1} OFFSET {page * RECORDS}"

                def ours(query: str = query) -> None:
                    assert client.get(f"/browse/corpora/{NAME}{query}").status_code == 200

                def theirs(statement: str = statement) -> None:
                    sql(root, statement, [NAME])

                # Not interleaved: Arrow's threads still read ahead for a while after SQL has all of its rows.
                times = [[timed(work) for _ in range(n + 1)][1:] for work in (ours, theirs)]
                time.sleep(PAUSE)
                for unit, clock in (("s", 0), ("processor s", 1)):
                    a, b = (statistics.median(run[clock] for run in side) for side in times)
                    report("browse", case, round(a, 3), round(b, 3), unit, n)


if __name__ == "__main__":
    main()
