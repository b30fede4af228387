"""How well `ubert suspects` finds the wrong labels of a real dataset, knowref.

Each row has a sentence and two names. The label is the name with the number `correct_candidate_idx`. It is wrong
if `correct_candidate` is the other name. Models start from MiniLM: universal-small was trained on knowref.

    python benchmarks/wrong_answers.py [--data ../shared/data] [--seeds 0 1 2] [--folds 5] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measure import report
from suspects import by_folds, records_of

from pipelines.suspects.start import DEFAULT
from ubert.schema.specs.dataset import DatasetSpec

SPEC = {
    "name": "knowref",
    "description": "Sentences with a pronoun in brackets, and two names.",
    "task": "choice",
    "language": "en",
    "licence": "CC-BY-SA-3.0",
    "instruction": "who the pronoun in brackets stands for",
    "format": "json",
    "files": [{"split": "train", "path": "knowref_test.json"}],
    "map": {
        "text": "sentence_with_pronoun",
        "candidates": {"0": "candidate0.0", "1": "candidate1.0"},
        "label": "correct_candidate_idx",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("UBERT_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="the mirror")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, 2 folds of few steps")
    given = parser.parse_args()
    length: dict[str, int | None] = {}
    if given.quick:
        given.seeds, given.folds, length = [0], 2, {"epochs": None, "steps": 4}
    torch.set_num_threads(1)
    records = records_of(DatasetSpec.model_validate(SPEC), given.data)
    rows = json.loads((given.data / "knowref/knowref_test.json").read_text(encoding="utf-8"))
    wrong = {
        record.record_id
        for record, row in zip(records, rows, strict=True)
        if [record.categories[record.labels[0]].name] != row["correct_candidate"]
    }
    for seed in given.seeds:
        recipe = DEFAULT.model_copy(update={"seed": seed, **length})
        with TemporaryDirectory() as folder:
            order = by_folds(records, recipe, given.folds, Path(folder))
        flagged = {record_id for record_id, is_flagged in order.items() if is_flagged}
        for case, found in (("as many as are wrong", set(list(order)[: len(wrong)])), ("flagged", flagged)):
            for side, of in (("precision", len(found)), ("recall", len(wrong))):
                name = f"knowref, seed {seed}, {len(wrong)} of {len(records)} wrong, {len(found)} {case}, {side}"
                ours, random = len(found & wrong) / max(of, 1), len(wrong) / len(records)
                theirs = random if side == "precision" else len(found) / len(records)
                report("wrong_answers", name, round(ours, 3), round(theirs, 3), side, 1, more=True)


if __name__ == "__main__":
    main()
