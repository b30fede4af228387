"""The cost of `dynamics: true` per training step.

Ours runs steps that record the loss of each text, and writes a part after all of them; theirs runs the same steps
without. Both train MiniLM on the same reviews, once for classification and once for tagging, with alternating
steps. Times are processor seconds on one thread. Ours is theirs plus the median overhead of a step.

    python benchmarks/dynamics.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measure import ENCODER, report

from pipelines.samples.generate import stream_of
from pipelines.samples.reviews import LABELS
from pipelines.training.short_run import shards_of
from ubert.schema.record import Category, Record, Source, Span
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.step import Training, Worker, run_step


def records(count: int) -> list[Record]:
    """Make reviews to classify, and as many to tag, in which the word before each comma is a mention."""
    made = []
    for i, review in enumerate(islice(stream_of("sample_reviews", "train", 0), count)):
        at = [place for place, letter in enumerate(review["text"]) if letter == ","]
        spans = [Span(review["text"].rfind(" ", 0, end) + 1, end, 0) for end in at]
        common = {"corpus": "reviews", "split": "train", "language": "en", "text": review["text"]}
        source = Source("made", i + 1, "00")
        names = tuple(Category(name, "label") for name in LABELS)
        label = [LABELS.index(review["label"])]
        made.append(
            Record(f"a/{i}", task="classification", instruction="sentiment", source=source, categories=names,
                   labels=label, **common)
        )  # fmt: skip
        kinds = (Category("word before a comma", "entity"), Category("place", "entity"))
        made.append(
            Record(f"b/{i}", task="ner", instruction="mentions", source=source, categories=kinds, spans=spans,
                   **common)
        )  # fmt: skip
    return made


def training(shards: Path, run: Path, *, kept: bool) -> Training:
    """Prepare a run up to its first step."""
    recipe = Recipe(name="one", mixture="probe", encoder=ENCODER, steps=10_000, dynamics=kept)
    return loop.set_up(recipe, shards, run, Worker(progress=False), resume=False)


def step(of: Training, index: int) -> float:
    """Take a step, with its recording if any; return its seconds."""
    made = of.loader.step(index)
    began = time.process_time()
    taken = run_step(of, index, made)
    taken.numbers(of.recipe, of.worker.device)
    if of.passes:
        of.passes.add(index + 1, made, taken.tables)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="twelve steps of each")
    steps = 12 if parser.parse_args().quick else 100
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        shards = shards_of(records(1000), ENCODER, Path(folder) / "shards")
        sides = [training(shards, Path(folder) / str(kept), kept=kept) for kept in (True, False)]
        both = [
            [step(of, i) for of in (sides if i % 2 else sides[::-1])][:: 1 if i % 2 else -1] for i in range(steps)
        ]
        passes = sides[0].passes
        assert passes is not None
        began = time.process_time()
        passes.write()
        writing = (time.process_time() - began) / steps  # `checkpoint_every` is 500 by default
        for of in sides:
            of.writer.close()
    more = statistics.median(one - other for one, other in both[2:]) + writing
    theirs = statistics.median(other for _, other in both[2:])
    report("dynamics", "a step", theirs + more, theirs, "CPU s", steps - 2)


if __name__ == "__main__":
    main()
