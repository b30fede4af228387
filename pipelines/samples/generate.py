"""Write all sample datasets, each in a folder of its own and in a format of published datasets."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.samples import deals, entailment, entities, questions, reviews, topics, useless, writers
from pipelines.samples.noise import with_noise
from pipelines.samples.scene import Scene
from ubert.schema.errors import UserError
from ubert.schema.record import SPLITS, Split


class Dataset(NamedTuple):
    """The functions that make a dataset's records, and that write them."""

    writer: Callable[[Split], Callable[[Scene], Any]]
    format: writers.Format


DATASETS = {
    "sample_reviews": Dataset(reviews.writer, writers.jsonl),
    "sample_topics": Dataset(topics.writer, writers.comma_separated(topics.COLUMNS)),
    "sample_entailment": Dataset(entailment.writer, writers.tab_separated(entailment.COLUMNS)),
    "sample_entities": Dataset(entities.writer, writers.conll),
    "sample_deals": Dataset(deals.writer, writers.brat),
    "sample_questions": Dataset(questions.writer, writers.squad),
}
USELESS = {"sample_useless": Dataset(useless.writer, writers.comma_separated(useless.COLUMNS))}


def generate(
    records: int, seed: int, out: Path, *, noise: float = 0.0, with_useless: bool = False
) -> dict[str, int]:
    """Write `records` records of each dataset under `out`. Return the number of records by file (or by folder of
    documents).

    Args:
        noise: the share of training records that get an annotation error, in datasets that have only labels or
            mentions. `truth.jsonl` in the dataset's folder has the correct annotation of each changed record.
        with_useless: also write a dataset from which nothing can be learnt.

    Raises:
        UserError: `records` is too small, a dataset's folder exists already, or `out` cannot be written.
    """
    return dict(generate_files(records, seed, out, noise=noise, with_useless=with_useless))


def generate_files(
    records: int, seed: int, out: Path, *, noise: float = 0.0, with_useless: bool = False
) -> Iterator[tuple[str, int]]:
    """Like `generate`, but yield each file when it is written, for a progress bar."""
    sizes = split_sizes(records)
    datasets = DATASETS | (USELESS if with_useless else {})
    for name in datasets:
        if (out / name).exists():
            raise UserError(f"{out / name} already exists; remove it or choose another folder")
    try:
        for name, dataset in datasets.items():
            # A folder is renamed to its final name when all its files are written.
            partial = out / f".{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for split in SPLITS:
                stream = stream_of(name, split, seed)
                if noise and split == "train":
                    stream = with_noise(stream, name, seed, noise, partial)
                with closing(stream):  # closes the file of correct annotations
                    for file, size in dataset.format(stream, sizes[split], partial, split):
                        yield f"{name}/{file}", size
            partial.rename(out / name)
    except OSError as error:
        raise UserError(
            f"cannot write samples to {out}: {error.strerror or error}; choose another --out"
        ) from None


def stream_of(name: str, split: Split, seed: int) -> Generator[Any, None, None]:
    """Yield a dataset's records without end. Record i depends only on (seed, dataset, split, i)."""
    write = (DATASETS | USELESS)[name].writer(split)
    return (write(Scene(seed, name, split, i)) for i in count())


def split_sizes(records: int) -> dict[Split, int]:
    """Return a tenth of the records, at least one, for validation and for test each, and the rest for training.

    Raises:
        UserError: there are not enough records for three splits.
    """
    if records < len(SPLITS):
        raise UserError(f"got {records} records, expected at least {len(SPLITS)}: one for each split")
    tenth = max(1, records // 10)
    return {"train": records - 2 * tenth, "validation": tenth, "test": tenth}
