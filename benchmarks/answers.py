"""When should a question be answered? `qa_f1` of a checkpoint by several rules.

An answer must beat "no answer" by more than a threshold. *Own* is the checkpoint's. *Fitted* is the best of one
half of the records, for the other half. *Likely itself* is the own one, and the answer's score must be above 0.5,
too. These are compared with "no answer" to each question. Where each question has an answer, low thresholds are
compared with the own one: 0.01, and one by which all are answered.

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

LOW, ANY = 0.01, 1e-9


def f1(record: Record, predictions: Sequence[Prediction]) -> float:
    """Return the mean F1 of a record's questions."""
    return qa.summarise(qa.count(record, predictions))["qa_f1"]


def likely_itself(answers: Sequence[Prediction]) -> list[Prediction]:
    """Return the answers with a score above 0.5."""
    return [answer for answer in answers if isinstance(answer, SpanPrediction) and answer.score > 0.5]


def compare(case: str, predictor: Predictor, records: Sequence[Record]) -> None:
    """Score the records once, decode them at each threshold, and print a line for each rule."""
    (threshold,) = predictor.thresholds_of(None)("qa")
    decoded = list(predictor.answer(map(query_of, records), lambda _: (*GRID, threshold, LOW, ANY), "highest"))
    asked = list(zip(records, decoded, strict=True))
    scores = [[f1(record, found) for found in each] for record, each in asked]
    own, low, best_span = ([row[at] for row in scores] for at in (-3, -2, -1))
    none = [f1(record, []) for record in records]
    likely = [f1(record, likely_itself(each[-3])) for record, each in asked]
    rows = range(len(records))

    def show(rule: str, ours: Sequence[float], theirs: Sequence[float], counted: Sequence[int]) -> None:
        mean, other = (fmean(side[row] for row in counted) for side in (ours, theirs))
        report("answers", f"{case}, {rule}", mean, other, "qa_f1", len(counted), more=True, digits=3)

    show(f"own threshold ({threshold})", own, none, rows)
    show(f"own threshold ({threshold}), likely itself", likely, none, rows)
    for half, other in ((rows[::2], rows[1::2]), (rows[1::2], rows[::2])):
        best = max(range(len(GRID)), key=lambda at: fmean(scores[row][at] for row in half))
        show(f"fitted on the other half ({GRID[best]})", [row[best] for row in scores], none, other)
    answered = [row for row in rows if records[row].spans]
    show(f"questions with an answer, threshold {LOW}", low, own, answered)
    show("questions with an answer, best span", best_span, own, answered)


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
