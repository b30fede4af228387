"""Texts that a checkpoint generates (ours), against words copied from their sources (theirs).

Theirs copies the source sentence with the record's second text, such as an answer, or else the first sentence.
It copies the whole sentence, or its first 8 to 20 words. For each metric, the best of these variants counts.

    python benchmarks/copying.py questions --corpus squad2_questions --split validation --limit 300 --root store
        [--beams 1]
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from learning_heads import summarised
from measure import ROOT, report

import ubert
from pipelines.models.evaluate import read_records
from pipelines.models.find import find_checkpoint
from pipelines.store.storage import store_path
from pipelines.store.store import Store
from ubert.evaluation import metric
from ubert.inference.generation.beam import Search
from ubert.objectives import WrittenPrediction
from ubert.schema.record import Record

WORDS = (8, 10, 12, 15, 20)  # numbers of copied words
_END = re.compile(r"(?<=[.!?])\s+")


def sentence(record: Record) -> str:
    """Return the first sentence that contains the record's second text, else the first sentence."""
    sentences = _END.split(record.text.strip())
    return next((each for each in sentences if record.pair and record.pair in each), sentences[0])


def copied(words: int | None, record: Record) -> str:
    """Copy the first `words` words of the sentence, or all for None."""
    return " ".join(sentence(record).split()[:words])


def metrics_of(records: list[Record], texts: list[str]) -> dict[str, float]:
    return summarised(records, [[WrittenPrediction(text, 0.0)] for text in texts], metric(records[0].task))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a checkpoint's or run's folder, or a run of the store")
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=300, help="number of records, the first by sampling key")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--quick", action="store_true", help="20 records")
    parser.add_argument("--root", type=store_path, default=ROOT)
    given = parser.parse_args()
    limit = 20 if given.quick else given.limit
    directory, manifest = Store(given.root).current("corpora", given.corpus)
    records = list(read_records(directory, manifest, given.split, limit))
    predictor = ubert.load(find_checkpoint(given.checkpoint, given.root))
    theirs = [metrics_of(records, [copied(words, record) for record in records]) for words in (*WORDS, None)]
    for beams in given.beams:
        texts = [found[0].text for found in predictor.generate_records(records, search=Search(beams))]  # type: ignore[union-attr]
        ours = metrics_of(records, texts)
        for name, value in ours.items():
            best = max(copy[name] for copy in theirs)
            case = f"{given.corpus}/{given.split}, {beams} beams, {name}"
            report("copying", case, value, best, name, len(records), more=True)


if __name__ == "__main__":
    main()
