"""A checkpoint that classifies, tags, extracts and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import log
from pathlib import Path

import numpy as np

from ubert.inference.candidates import NOTHING, Events, Relations, candidates
from ubert.inference.scoring import score
from ubert.inference.windows import Window, around, whole, windows
from ubert.model.batch import Example, regions
from ubert.model.precision import runs_bf16
from ubert.model.tokenizer import Encoding, Tokenizer, load_tokenizer
from ubert.model.ubert import UbertModel
from ubert.objectives import Decode, Overlap, Prediction, Query, objective
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
    "choice": "multiple choice",
    "regression": "a number of a text",
    "ner": "named entity recognition",
    "relation": "relation extraction",
    "event": "event extraction",
    "coref": "coreference resolution",
    "qa": "question answering",
}
"""Natural-language task names where none is given; a corpus brings its own."""


class Predictor:
    """A model and its tokenizer. `ubert.load` makes one."""

    def __init__(self, model: UbertModel, tokenizer: Tokenizer, *, precision: Precision = "auto") -> None:
        self.model = model.eval()  # type: ignore[no-untyped-call]
        self.tokenizer = tokenizer
        self.bf16 = runs_bf16(precision, next(model.parameters()).device)

    @classmethod
    def load(cls, directory: Path, *, precision: Precision = "auto") -> Predictor:
        """Read a checkpoint's directory.

        Raises:
            UserError: it is not a checkpoint, or is damaged.
        """
        model = UbertModel.load(directory)
        model.merge_adapters()
        return cls(model, load_tokenizer(str(directory)), precision=precision)

    def predict(
        self,
        texts: Sequence[str],
        *,
        task: str,
        categories: Sequence[str] = (),
        relations: Relations = NOTHING,
        events: Events = NOTHING,
        pairs: Sequence[str] | None = None,
        instruction: str | None = None,
        threshold: float = 0.5,
        nested: bool = False,
    ) -> list[list[Prediction]]:
        """Predict for each text, in the order of the texts.

        Args:
            task: classification, multilabel, pair, choice, regression, ner, relation, event, coref or qa.
            categories: candidate labels or entity types in natural words; the questions, for qa; the numbers of
                the scale that was learnt, for regression.
            relations: for relation: name -> the entity types of its head and tail, None for any.
            events: for event: type -> its roles.
            pairs: the second text of each text.
            instruction: the task in natural words, best as in the corpus that the model learnt it from.
            threshold: probability from which a category, mention or link holds. For one of several categories
                (classification, pair, choice) and for a number it has no effect; an answer must beat "no answer"
                by it.
            nested: mentions may overlap (those of coreference always may).

        Returns:
            For each text its typed predictions (`ubert.objectives`), with offsets in characters.

        Raises:
            UserError: a text is empty, there are no categories or one twice, the task is unknown, the number of
                pairs is wrong, or a category is too long.
        """
        _check(texts, task, categories, pairs, threshold)
        asked = instruction or INSTRUCTIONS.get(task, task)
        wanted = candidates(task, categories, relations, events)
        queries = [
            objective(task).query(task, asked, text, pairs[i] if pairs is not None else None, wanted)
            for i, text in enumerate(texts)
        ]
        return list(self.answer(queries, threshold=threshold, overlap="nested" if nested else "flat"))

    def predict_records(
        self, records: Iterable[Record], *, threshold: float = 0.5, overlap: Overlap = "flat"
    ) -> Iterator[list[Prediction]]:
        """Predict for each record, by its own task, instruction and categories, in the order of the records."""
        queries = (objective(r.task).query(r.task, r.instruction, r.text, r.pair, r.categories) for r in records)
        return self.answer(queries, threshold=threshold, overlap=overlap)

    def answer(
        self, queries: Iterable[Query], *, threshold: float, overlap: Overlap
    ) -> Iterator[list[Prediction]]:
        """Answer queries in their order, reading at most `CHUNK` of them ahead."""
        remaining = iter(queries)
        while chunk := list(islice(remaining, CHUNK)):
            yield from map(list, self._answer(chunk, log(threshold / (1 - threshold)), overlap))

    def _answer(self, chunk: list[Query], threshold: float, overlap: Overlap) -> Iterator[Sequence[Prediction]]:
        tasks = [objective(query.task) for query in chunk]
        encoded = self._encode(chunk)
        first = [(query, task.decode) for query, task in zip(chunk, tasks, strict=True)]
        found = list(self._decoded(first, encoded, threshold, overlap))
        asked = [
            task.second.ask(query, encoded[query.text], predictions) if task.second else []
            for query, task, predictions in zip(chunk, tasks, found, strict=True)
        ]
        encoded |= self._encode([query for queries in asked for query in queries])
        second = [
            (query, task.second.decode)
            for task, queries in zip(tasks, asked, strict=True)
            if task.second
            for query in queries
        ]
        answers = self._decoded(second, encoded, threshold, overlap)
        for query, task, predictions, queries in zip(chunk, tasks, found, asked, strict=True):
            if task.second:
                yield task.second.join(query, predictions, [next(answers) for _ in queries])
            else:
                yield predictions

    def _decoded(
        self,
        asked: Sequence[tuple[Query, Decode]],
        encoded: Mapping[str, Encoding],
        threshold: float,
        overlap: Overlap,
    ) -> Iterator[Sequence[Prediction]]:
        """Answers to one pass of questions, in order."""
        views = [self._views(query, encoded) for query, _ in asked]
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
        for (query, decode), of_query in zip(asked, views, strict=True):
            merged = whole([(window, next(scored)) for window, _ in of_query], query.region)
            yield decode(query, encoded[query.text], merged, threshold=threshold, overlap=overlap)

    def _encode(self, chunk: list[Query]) -> dict[str, Encoding]:
        """Every distinct string of a chunk, tokenised once."""
        names = {category.name for query in chunk for category in query.categories}
        strings = (string for q in chunk for string in (q.text, q.pair or ""))
        distinct = dict.fromkeys((*strings, *sorted(names)))
        return dict(zip(distinct, self.tokenizer.encode(list(distinct)), strict=True))

    def _views(self, query: Query, encoded: Mapping[str, Encoding]) -> list[tuple[Window, Example]]:
        """The text in one window, or in as many as it needs; a long second text too, each with each."""
        text, pair = encoded[query.text].ids, encoded[query.pair or ""].ids
        instruction = self.tokenizer.instruction(query.instruction)
        categories = [encoded[category.name].ids for category in query.categories]
        of_tables = regions(category.kind for category in query.categories)
        text_most, pair_most = self._room(
            query, len(text), len(pair), len(instruction), list(map(len, categories))
        )
        cover = (
            windows(len(text), text_most, text_most // 4)
            if query.around is None
            else [around(len(text), text_most, query.around)]
        )
        return [
            (
                at,
                Example(
                    instruction=instruction,
                    categories=categories,
                    text=text[at.start : at.stop],
                    pair=pair[beside.start : beside.stop],
                    regions=of_tables,
                    gold_anchors=NO_ANCHORS,
                    gold_cells=NO_CELLS,
                ),
            )
            for at in cover
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
            longest = max((query.instruction, *(category.name for category in query.categories)), key=len)
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
