"""Held-out corpora after a few examples: universal-small against what others do with plain MiniLM.

Each side gets the same drawn records (`pipelines/probe/shots.py`). Ours is fine-tuned by the settings of `ubert
probe`. Theirs start from MiniLM, because pretrained weights of gliner are not available offline. They train for at
most as many processor seconds as ours. All are measured on the first records of the test split by sampling key.
Mentions are compared with `gliner` and the token classifier of `transformers`, labels with `setfit` and a logistic
regression on sentence embeddings, or without examples with the similarity of embeddings. First
`pip install gliner==0.2.29 setfit==1.2.0`.

    python benchmarks/few_shot.py [wnut17 restaurant8k mams_absa] [--shots 50] [--seeds 0 1 2] [--limit 300]
        [--root store] [--quick]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import learning_heads
import torch
from learning import show
from learning_mentions import Train, in_parts
from measure import ROOT

from pipelines.models.evaluate import read_records
from pipelines.probe.cell import Cell, training_records, tuned
from pipelines.probe.probe import MINILM, splits, start
from pipelines.store.store import Store
from ubert.evaluation import MAIN, metric
from ubert.objectives import Prediction
from ubert.schema.record import Record


def sides(task: str, shots: int) -> dict[str, Train]:
    """Return the training functions to compare with for a task."""
    if task == "ner" and shots:
        import learning_gliner

        return {"gliner": in_parts(learning_gliner.train), "head": in_parts(learning_heads.train)}
    if task == "classification":
        import learning_embeddings

        if shots:
            return {"setfit": learning_embeddings.setfit, "regression": learning_embeddings.regression}
        return {"similarity": learning_embeddings.similarity}
    sys.exit(f"nothing to compare with for {task} after {shots} examples; give corpora of mentions or labels")


def compare(corpus: str, shots: int, seed: int, limit: int, store: Store) -> None:
    """Train all sides on one draw of the examples, and print a line for each."""
    directory, manifest = store.current("corpora", corpus)
    ours = start("universal-small", store)
    cell = Cell(*ours, corpus, manifest.fingerprint, *splits(manifest), shots, seed, limit)
    tested = list(read_records(directory, manifest, cell.test, limit))
    task = tested[0].task
    against = sides(task, shots)
    trained = training_records(cell, store)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        predictor, done = tuned(cell, store, Path(folder))
        seconds = time.process_time() - began
        reached = _score(tested, predictor.predict_records(tested))
    case = f"{corpus}/{cell.test}, {shots} shots ({done['records']} records), seed {seed}, {seconds:.0f} s"
    for side, train in against.items():
        predict = train(trained, MINILM, seconds, seed)
        show(f"{case}, {side}", reached, _score(tested, predict(tested)), MAIN[task], len(tested))


def _score(records: Sequence[Record], predictions: Iterable[list[Prediction]]) -> float:
    task = records[0].task
    return learning_heads.summarised(records, predictions, metric(task))[MAIN[task]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", default=["wnut17", "restaurant8k", "mams_absa"])
    parser.add_argument("--shots", type=int, default=50, help="records of each category")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--limit", type=int, default=300, help="records to measure")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--quick", action="store_true", help="one corpus and seed, 5 shots, 50 records")
    given = parser.parse_args()
    if given.quick:
        given.corpora, given.shots, given.seeds, given.limit = given.corpora[:1], 5, given.seeds[:1], 50
    torch.set_num_threads(1)
    for corpus in given.corpora:
        for seed in given.seeds:
            compare(corpus, given.shots, seed, given.limit, Store(given.root.absolute()))


if __name__ == "__main__":
    main()
