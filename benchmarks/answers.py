"""When should a question be answered? `qa_f1` of a checkpoint by four rules, against "no answer" to each question.

An answer must beat "no answer" by more than a threshold. *Own* is the checkpoint's. *Fitted* is the best of one
half of the records, for the other half. *Likely itself* is the own one, and the answer's score must be above 0.5,
too. *Best span* answers each question that has an answer.

    python benchmarks/answers.py universal-small [--corpus squad2_cs224n] [--limit 1000] [--root store] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from measure import ROOT, report

import ubert
from pipelines.models.evaluate import read_records
from pipelines.models.find import find_checkpoint
from pipelines.store.storage import store_path
from pipelines.store.store import Store
from ubert.evaluation import qa
from ubert.inference.predictor import Predictor, query_of
from ubert.inference.thresholds import GRID
from ubert.objectives import Prediction, SpanPrediction
from ubert.schema.record import Record

ANY = 1e-9  # a threshold that each answer is above, but for a few


def f1(record: Record, predictions: Sequence[Prediction]) -> float:
    """Return the mean F1 of a record's questions."""
    return qa.summarise(qa.count(record, predictions))["qa_f1"]


def compare(case: str, predictor: Predictor, records: Sequence[Record]) -> None:
    """Score the records once, decode them at each threshold, and print a line for each rule."""
    own = predictor.thresholds.get("qa", 0.5)
    tried = (*GRID, own, ANY)
    decoded = list(predictor.answer(map(query_of, records), lambda _: tried, "highest"))
    scores = [
        [f1(record, found) for found in of_record] for record, of_record in zip(records, decoded, strict=True)
    ]
    none = [f1(record, []) for record in records]
    likely = [
        f1(record, [one for one in of_record[-2] if isinstance(one, SpanPrediction) and one.score > 0.5])
        for record, of_record in zip(records, decoded, strict=True)
    ]
    everyone = range(len(records))

    def show(rule: str, ours: Sequence[float], rows: Sequence[int]) -> None:
        mean, others = fmean(ours[row] for row in rows), fmean(none[row] for row in rows)
        report("answers", f"{case}, {rule}", mean, others, "qa_f1", len(rows), more=True, digits=3)

    show(f"own threshold ({own})", [row[-2] for row in scores], everyone)
    show(f"own threshold ({own}), likely itself", likely, everyone)
    for fitted, rows in ((everyone[::2], everyone[1::2]), (everyone[1::2], everyone[::2])):
        best = max(range(len(GRID)), key=lambda at: fmean(scores[row][at] for row in fitted))
        show(f"fitted on the other half ({GRID[best]})", [row[best] for row in scores], rows)
    answered = [row for row, record in enumerate(records) if record.spans]
    show("best span where there is an answer", [row[-1] for row in scores], answered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "checkpoint", type=Path, help="a checkpoint's or run's folder, a run of the store, or a model"
    )
    parser.add_argument("--corpus", default="squad2_cs224n")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--limit", type=int, default=1000, help="number of records, the first by sampling key")
    parser.add_argument("--quick", action="store_true", help="50 records")
    parser.add_argument("--root", type=store_path, default=ROOT)
    given = parser.parse_args()
    directory, manifest = Store(given.root).current("corpora", given.corpus)
    records = list(read_records(directory, manifest, given.split, 50 if given.quick else given.limit))
    predictor = ubert.load(find_checkpoint(given.checkpoint, given.root))
    compare(f"{given.checkpoint}, {given.corpus}/{given.split}", predictor, records)


if __name__ == "__main__":
    main()
