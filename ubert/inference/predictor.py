"""A checkpoint that classifies, tags, extracts and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log
from pathlib import Path

import numpy as np

from ubert.inference.scoring import score
from ubert.inference.windows import Window, whole, windows
from ubert.model.batch import Example, Region
from ubert.model.precision import runs_bf16
from ubert.model.tokenizer import Encoding, Tokenizer, load_tokenizer
from ubert.model.ubert import UbertModel
from ubert.objectives import Overlap, Prediction, objective
from ubert.schema.errors import UserError
from ubert.schema.recipe import Precision
from ubert.schema.record import Record

CHUNK = 512  # texts that are sorted by length together, and whose predictions are held back for that
BATCH_TOKENS = 8192  # padded tokens of one pass of the model
PROMPT_SHARE = 4  # a long list of categories takes at most this part of a sequence; the rest of them the next one
LEAST_TEXT = 16  # tokens of the text, and of the second text, that a sequence must have room for
NO_ANCHORS, NO_CELLS = np.empty(0, np.int32), np.empty((0, 3), np.int32)

INSTRUCTIONS = {
    "classification": "text classification",
    "multilabel": "multi-label classification",
    "pair": "relation between two texts",
    "ner": "named entity recognition",
    "qa": "question answering",
}
"""Natural-language task names where none is given; a corpus brings its own."""


@dataclass(slots=True, frozen=True)
class Query:
    """What is asked of one text. `categories`: names; the questions, for question answering."""

    task: str
    instruction: str
    text: str
    pair: str | None
    categories: tuple[str, ...]


class Predictor:
    """A model and its tokenizer. `ubert.load` makes one."""

    def __init__(self, model: UbertModel, tokenizer: Tokenizer, *, precision: Precision = "auto") -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.bf16 = runs_bf16(precision, next(model.parameters()).device)

    @classmethod
    def load(cls, directory: Path, *, precision: Precision = "auto") -> Predictor:
        """Read a checkpoint's directory.

        Raises:
            UserError: it is not a checkpoint, or is damaged.
        """
        return cls(UbertModel.load(directory), load_tokenizer(str(directory)), precision=precision)

    def predict(
        self,
        texts: Sequence[str],
        *,
        task: str,
        categories: Sequence[str],
        pairs: Sequence[str] | None = None,
        instruction: str | None = None,
        threshold: float = 0.5,
        nested: bool = False,
    ) -> list[list[Prediction]]:
        """Predict for each text, in the order of the texts.

        Args:
            task: classification, multilabel, pair, ner or qa.
            categories: candidate labels or entity types in natural words; the questions, for qa.
            pairs: the second text of each text.
            instruction: the task in natural words, best as in the corpus that the model learnt it from.
            threshold: probability from which a category or mention holds. For one of several categories
                (classification, pair) it has no effect; an answer must beat "no answer" by it.
            nested: mentions may overlap.

        Returns:
            For each text its labels or spans, with offsets in characters, and probabilities.

        Raises:
            UserError: a text is empty, there are no categories or one twice, the task is unknown, the number of
                pairs is wrong, or a category is too long.
        """
        _check(texts, task, categories, pairs, threshold)
        asked = instruction or INSTRUCTIONS.get(task, task)
        queries = [
            Query(task, asked, text, pairs[i] if pairs is not None else None, tuple(categories))
            for i, text in enumerate(texts)
        ]
        return list(self.answer(queries, threshold=threshold, overlap="nested" if nested else "flat"))

    def predict_records(
        self, records: Iterable[Record], *, threshold: float = 0.5, overlap: Overlap = "flat"
    ) -> Iterator[list[Prediction]]:
        """Predict for each record, by its own task, instruction and categories, in the order of the records."""
        queries = (
            Query(r.task, r.instruction, r.text, r.pair, tuple(category.name for category in r.categories))
            for r in records
        )
        return self.answer(queries, threshold=threshold, overlap=overlap)

    def answer(
        self, queries: Iterable[Query], *, threshold: float, overlap: Overlap
    ) -> Iterator[list[Prediction]]:
        """Answer queries in their order, reading at most `CHUNK` of them ahead."""
        remaining = iter(queries)
        while chunk := list(islice(remaining, CHUNK)):
            yield from self._answer(chunk, log(threshold / (1 - threshold)), overlap)

    def _answer(self, chunk: list[Query], threshold: float, overlap: Overlap) -> Iterator[list[Prediction]]:
        tasks = {query.task: objective(query.task) for query in chunk}
        encoded = self._encode(chunk)
        views = [self._views(query, encoded, tasks[query.task].REGION) for query in chunk]
        scored = iter(
            score(
                self.model,
                self.tokenizer.special,
                [example for of_query in views for _, example in of_query],
                threshold=threshold,
                batch_tokens=BATCH_TOKENS,
                bf16=self.bf16,
            )
        )
        for query, of_query in zip(chunk, views, strict=True):
            task = tasks[query.task]
            merged = whole([(window, next(scored)) for window, _ in of_query], task.REGION)
            text = encoded[query.text]
            yield list(
                task.decode(query.text, query.categories, text, merged, threshold=threshold, overlap=overlap)
            )

    def _encode(self, chunk: list[Query]) -> dict[str, Encoding]:
        """Every distinct string of a chunk, tokenised once."""
        distinct = {string: None for q in chunk for string in (q.text, q.pair or "", q.instruction, *q.categories)}
        return dict(zip(distinct, self.tokenizer.encode(list(distinct)), strict=True))

    def _views(self, query: Query, encoded: dict[str, Encoding], region: Region) -> list[tuple[Window, Example]]:
        """The text in one window, or in as many as it needs; a long second text too, each with each."""
        text, pair = encoded[query.text].ids, encoded[query.pair or ""].ids
        instruction = encoded[query.instruction].ids
        categories = [encoded[category].ids for category in query.categories]
        text_most, pair_most = self._room(
            query, len(text), len(pair), len(instruction), list(map(len, categories))
        )
        return [
            (
                at,
                Example(
                    instruction=instruction,
                    categories=categories,
                    text=text[at.start : at.stop],
                    pair=pair[beside.start : beside.stop],
                    region=region,
                    gold_anchors=NO_ANCHORS,
                    gold_cells=NO_CELLS,
                ),
            )
            for at in windows(len(text), text_most, text_most // 4)
            for beside in windows(len(pair), pair_most, pair_most // 4)
        ]

    def _room(
        self, query: Query, text: int, pair: int, instruction: int, categories: list[int]
    ) -> tuple[int, int]:
        """Most tokens of a window of the text, and of the second text; both whole where they fit."""
        room = self.model.most_tokens - instruction - 4 - (pair > 0)
        markers = [size + 1 for size in categories]
        room -= max(min(sum(markers), room // PROMPT_SHARE), *markers, 0)
        if room < 2 * LEAST_TEXT:
            longest = max((query.instruction, *query.categories), key=len)
            raise UserError(
                f"{_short(longest)} leaves no room for the text in a sequence of {self.model.most_tokens} tokens; "
                "say it shorter"
            )
        room = min(room, self.model.shape.max_tokens)  # as long as the model has seen in training
        pair_most = max(room // 2, room - text)
        return room - min(pair, pair_most), pair_most


def _check(
    texts: Sequence[str], task: str, categories: Sequence[str], pairs: Sequence[str] | None, threshold: float
) -> None:
    """Raise `UserError` for whatever is wrong with the arguments of `predict`."""
    objective(task)
    for name, given in (("texts", texts), ("categories", categories), ("pairs", pairs)):
        if isinstance(given, str):
            raise UserError(f"{name} is one string ({_short(given)}); expected a list of strings")
    if not categories:
        raise UserError(f"no categories; task {task} needs at least one, such as --categories person,place")
    for i, category in enumerate(categories):
        if not category.strip():
            raise UserError(f"category {i + 1} is empty; give it a name in natural words")
        if category in categories[:i]:
            raise UserError(f"category {category!r} is given twice; give each once")
    for i, text in enumerate(texts):
        if not text.strip():
            raise UserError(f"text {i + 1} of {len(texts)} is empty; leave it out")
    if task == "pair" and pairs is None:
        raise UserError("task pair needs a second text for each text; give them as `pair` (pairs=[...])")
    if pairs is not None and len(pairs) != len(texts):
        raise UserError(f"{len(pairs)} second texts for {len(texts)} texts; give one for each")
    if not 0 < threshold < 1:
        raise UserError(f"threshold is {threshold}, expected a probability between 0 and 1")


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")
