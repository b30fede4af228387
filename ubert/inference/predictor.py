"""`Predictor`: run a checkpoint on texts, for every task."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from math import log
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ubert.encoder.precision import runs_bf16
from ubert.inference.candidates import NOTHING, Events, Names, Relations, short
from ubert.inference.generation.beam import Search
from ubert.inference.generation.generate import Asked, generate
from ubert.inference.limits import bounded
from ubert.inference.names import name_encoder
from ubert.inference.pointing import point
from ubert.inference.questions import INSTRUCTIONS, check_texts, check_threshold, listed, questions
from ubert.inference.rescoring import score_in_stages
from ubert.inference.results import Result, Results
from ubert.inference.scoring import MOST_CELLS, score
from ubert.inference.thresholds import read_thresholds
from ubert.inference.windows import Window, cover, pair_room, whole
from ubert.model.tokenizer import Encoding, Tokenizer, load_tokenizer
from ubert.model.ubert import UbertModel
from ubert.objectives import Overlaps, Prediction, Query, Scored, WrittenPrediction, objective
from ubert.objectives.spexbert import decoder
from ubert.schema.errors import UserError
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Precision
from ubert.structure.batch import Example, Region, regions

CHUNK = 512  # texts that are read ahead and sorted by length together
BATCH_TOKENS, GPU_BATCH_TOKENS = 2048, 8192  # padded tokens of a forward pass; a CPU is faster within its caches
PROMPT_SHARE = 4  # categories take at most 1/4 of a sequence; the others go into further sequences
LEAST_TEXT = 16  # minimum tokens of the text, and of the second text, in a sequence
NO_THRESHOLDS: Mapping[str, float] = MappingProxyType({})
NOT_TOKENISED: Mapping[str, Encoding] = MappingProxyType({})
DEFAULT_SEARCH = Search()
NO_ANCHORS, NO_CELLS = np.empty(0, np.int32), np.empty((0, 3), np.int32)

logger = logging.getLogger(__name__)


class Predictor:
    """A model and its tokenizer, loaded by `ubert.load`.

    Attributes:
        thresholds: task -> threshold that was fitted on a corpus.
        instructions: task -> default instruction: the one of all its training records, else a general one.
        batch_tokens: padded tokens of one forward pass.
        left_out: counts of mentions and tables that exceeded a limit since loading (see `ubert.inference.limits`).
            A warning is logged, too.
    """

    def __init__(
        self,
        model: UbertModel,
        tokenizer: Tokenizer,
        *,
        thresholds: Mapping[str, float] = NO_THRESHOLDS,
        precision: Precision = "auto",
    ) -> None:
        self.model = model.eval()  # type: ignore[no-untyped-call]
        self.tokenizer = tokenizer
        self.thresholds = thresholds
        self.instructions = {**INSTRUCTIONS, **(model.config.instructions or {})}
        self.left_out: Counter[str] = Counter()
        self._instruction = lru_cache(tokenizer.instruction)  # all texts of a call share one
        self._name = name_encoder(tokenizer)
        device = next(model.parameters()).device
        self.bf16 = runs_bf16(precision, device)
        self.batch_tokens = BATCH_TOKENS if device.type == "cpu" else GPU_BATCH_TOKENS
        self._phrases = tokenizer.for_pointing() if model.shape.points else None

    @classmethod
    def load(cls, directory: Path, *, precision: Precision = "auto") -> Predictor:
        """Load a checkpoint from its directory.

        Raises:
            UserError: the directory is not a checkpoint or is damaged, or there is no such precision.
        """
        model, tokenizer = UbertModel.load(directory), load_tokenizer(str(directory))
        model.without_adapters()
        fitted = {task: fit.threshold for task, fit in read_thresholds(directory).items()}
        return cls(model, tokenizer, thresholds=fitted, precision=precision)

    def predict(
        self,
        texts: Sequence[str],
        *,
        task: str,
        categories: Names = (),
        relations: Relations = NOTHING,
        events: Events = NOTHING,
        pairs: Sequence[str] | None = None,
        instruction: str | None = None,
        threshold: float | None = None,
        overlap: Overlaps = "highest",
        discontinuous: bool = False,
    ) -> Results:
        """Predict for each text, in order.

        Args:
            task: classification, multilabel, pair, choice, regression, ner, relation, event, coref or qa.
            categories: candidate labels or entity types in natural words. For qa: the questions. For regression:
                the numbers of the scale that the model was trained on. They may also be a list for each text,
                except for relation.
            relations: for relation: name -> the entity types of its head and tail, None for any.
            events: for event: type -> its roles.
            pairs: the second text of each text, for pair, choice, classification, multilabel and regression.
            instruction: the task in natural words, best as in the training corpus; default: see `instructions`.
            threshold: minimum probability of a category, mention or link. None: the threshold that was fitted for
                the task and saved in the checkpoint, else 0.5. It has no effect on regression and on tasks with
                exactly one category (classification, pair, choice). For qa, the logit of an answer must exceed
                that of "no answer" by more than the threshold's logit.
            overlap: when two mentions overlap, keep the one with the `highest` score, the `longest`, or both
                (`nested`). One policy for all categories, or a mapping by name. Mentions of coreference are always
                nested.
            discontinuous: for ner: mentions may have several fragments, as in the training corpus.

        Returns:
            The typed predictions of each text (`ubert.objectives`), with offsets in characters. `to_dataframe`
            makes a table of the results, `to_dict` a dictionary of one result, and notebooks draw both.

        Raises:
            UserError: the task is unknown, a text is empty, a string is not UTF-8, there are no categories, a
                category is given twice, has no token or is too long, the number of pairs or of lists of categories
                is wrong, or an overlap policy names an unknown category.
        """
        queries = questions(
            texts,
            task=task,
            categories=categories,
            relations=relations,
            events=events,
            pairs=pairs,
            instruction=instruction,
            threshold=threshold,
            overlap=overlap,
            discontinuous=discontinuous,
            instructions=self.instructions,
        )
        answers = self.answer(queries, self.thresholds_of(threshold), overlap)
        return Results(
            Result(found, query.text, query.pair) for query, (found,) in zip(queries, answers, strict=True)
        )

    def generate(
        self,
        texts: Sequence[str],
        *,
        pairs: Sequence[str] | None = None,
        instruction: str | None = None,
        search: Search = DEFAULT_SEARCH,
    ) -> list[list[WrittenPrediction]]:
        """Generate texts from texts.

        Args:
            pairs: the second text of each text.
            instruction: what to write, best as in the training corpus; default: see `instructions`.
            search: settings of the beam search.

        Returns:
            The generated texts of each text, best first, at most one per beam.

        Raises:
            UserError: the checkpoint doesn't generate, a text is empty or not UTF-8, the number of pairs is wrong,
                there are more beams than tokens in the vocabulary, or source and target don't fit together.
        """
        texts, pairs = listed("texts", texts), None if pairs is None else listed("pairs", pairs)
        check_texts(texts, pairs, instruction)
        asked = instruction or self.instructions["seq2seq"]
        given = [Asked(text, pairs[i] if pairs is not None else None, asked) for i, text in enumerate(texts)]
        return generate(self.model, self.tokenizer, given, search, bf16=self.bf16)

    def generate_records(
        self, records: Iterable[Record], *, search: Search | None = None
    ) -> Iterator[list[Prediction]]:
        """Generate the best text of each record by its own instruction, in order. Without `search`, a text has at
        most a quarter of the encoder's maximum length."""
        how = search or Search(longest=min(DEFAULT_SEARCH.longest, self.model.most_tokens // 4))
        remaining = iter(records)
        while chunk := list(islice(remaining, CHUNK)):
            asked = [Asked(record.text, record.pair, record.instruction) for record in chunk]
            for texts in generate(self.model, self.tokenizer, asked, how, bf16=self.bf16):
                yield list(texts[:1])

    def predict_records(
        self, records: Iterable[Record], *, threshold: float | None = None, overlap: Overlaps = "highest"
    ) -> Iterator[list[Prediction]]:
        """Predict for each record by its own task, instruction and categories, in order."""
        for (found,) in self.answer(map(query_of, records), self.thresholds_of(threshold), overlap):
            yield found

    def answer(
        self, queries: Iterable[Query], thresholds: Callable[[str], Sequence[float]], overlap: Overlaps
    ) -> Iterator[list[list[Prediction]]]:
        """Answer queries in order, reading at most `CHUNK` of them ahead.

        Args:
            thresholds: maps a task to the probabilities to decode it at. The texts are scored only once.

        Yields:
            The predictions of a query at each threshold.
        """
        remaining = iter(queries)
        while chunk := list(islice(remaining, CHUNK)):
            before = self.left_out.copy()
            logits = [[log(p / (1 - p)) for p in thresholds(query.task)] for query in chunk]
            yield from self._answer(chunk, logits, overlap)
            if more := self.left_out - before:
                counts = ", ".join(f"{count:,} {what}" for what, count in more.items())
                logger.warning(
                    "left out of %d texts: %s; raise the threshold, or train longer", len(chunk), counts
                )

    def probabilities(self, queries: Iterable[Query]) -> Iterator[list[float]]:
        """Compute the probability of each label of each query, given that exactly one of them holds.

        Args:
            queries: of a task that chooses one of its categories.
        """
        remaining = iter(queries)
        while chunk := list(islice(remaining, CHUNK)):
            for scored in self._scored(chunk, self._encode(chunk), 0.0):
                odds = np.exp(scored.anchor.astype(np.float64) - scored.anchor.max())
                yield (odds / odds.sum()).tolist()

    def thresholds_of(self, given: float | None) -> Callable[[str], Sequence[float]]:
        """Return the thresholds for `answer`: the given one, else the fitted one of a task, else 0.5.

        Raises:
            UserError: the given one is not between 0 and 1.
        """
        check_threshold(given)
        return lambda task: [self.thresholds.get(task, 0.5) if given is None else given]

    def _answer(
        self, chunk: list[Query], logits: list[list[float]], overlap: Overlaps
    ) -> Iterator[list[list[Prediction]]]:
        decode = {
            task: objective(task).decode if self._phrases is None else decoder(task)
            for task in {query.task for query in chunk}
        }
        encoded = self._encode(chunk)
        scored = self._scored(chunk, encoded, min(map(min, logits)))
        found, followups = [], []
        for query, thresholds, scores in zip(chunk, logits, scored, strict=True):
            task, encoding = objective(query.task), encoded[query.text]
            decoded = [
                decode[query.task](query, encoding, scores, threshold=threshold, overlap=overlap)
                for threshold in thresholds
            ]
            found.append(decoded)
            followups.append([task.second.ask(query, encoding, each) if task.second else [] for each in decoded])
        distinct = list(dict.fromkeys(query for of_query in followups for each in of_query for query in each))
        encoded = self._encode(distinct, encoded)
        answers = dict(zip(distinct, self._scored(distinct, encoded, min(map(min, logits))), strict=True))
        for query, thresholds, decoded, of_query in zip(chunk, logits, found, followups, strict=True):
            second = objective(query.task).second
            if second is None:
                yield [list(each) for each in decoded]
                continue
            yield [
                second.join(
                    query,
                    first,
                    [
                        second.decode(one, encoded[one.text], answers[one], threshold=threshold, overlap=overlap)
                        for one in questions
                    ],
                )
                for threshold, first, questions in zip(thresholds, decoded, of_query, strict=True)
            ]

    def _scored(self, queries: Sequence[Query], encoded: Mapping[str, Encoding], threshold: float) -> list[Scored]:
        """Score the whole text of each query, in order."""
        score = partial(self._in_pieces, encoded=encoded, threshold=threshold)
        if self._phrases is not None:  # a pointer's scores are comparable across pieces
            return score(queries)
        shape = self.model.shape
        return score_in_stages(queries, 1 if shape.layout == "stacked" else shape.categories_per_piece, score)

    def _in_pieces(
        self, queries: Sequence[Query], encoded: Mapping[str, Encoding], threshold: float
    ) -> list[Scored]:
        views = [self._views(query, encoded) for query in queries]
        owned = [(at.first - at.start, at.last - at.start) for of_query in views for at, _ in of_query]
        remaining = iter(self._score([example for of_query in views for _, example in of_query], threshold, owned))
        found = []
        for query, of_query in zip(queries, views, strict=True):
            parts = [(window, next(remaining)) for window, _ in of_query]
            merged = whole(parts, query.region, best=self._phrases is not None)
            kept, beyond = bounded(query, len(encoded[query.text].ids), merged)
            self.left_out["mentions"] += beyond
            found.append(kept)
        return found

    def first_window(self, query: Query, threshold: float) -> tuple[Encoding, Scored]:
        """Return the tokens of the first window of a query's text, and its scores above a threshold (a logit).
        Labels and values are scored in the whole text."""
        encoded = self._encode([query])
        (window, example), *_ = self._views(query, encoded)
        encoding = Encoding(*(column[window.start : window.stop] for column in encoded[query.text]))
        if query.region == Region.ANCHOR:
            [scored] = self._scored([query], encoded, threshold)
        else:
            [scored] = self._score([example], threshold)
        return encoding, scored

    def _score(
        self, examples: Sequence[Example], threshold: float, owned: Sequence[tuple[int, int]] | None = None
    ) -> list[Scored]:
        """Score examples by the model's head: its structure table or its pointer."""
        model, special = self.model, self.tokenizer.special
        if self._phrases is not None:
            return point(model, special, self._phrases, examples, batch_tokens=self.batch_tokens, bf16=self.bf16)
        scored, full = score(
            model,
            special,
            examples,
            threshold=threshold,
            owned=owned,
            batch_tokens=self.batch_tokens,
            bf16=self.bf16,
        )
        self.left_out[f"tables beyond {MOST_CELLS:,} cells"] += full
        return scored

    def _encode(
        self, queries: Sequence[Query], known: Mapping[str, Encoding] = NOT_TOKENISED
    ) -> dict[str, Encoding]:
        """Tokenise every distinct string of queries once, except those that are `known`. Return all of them."""
        strings = dict.fromkeys(string for q in queries for string in (q.text, q.pair or ""))
        names = {category.name for query in queries for category in query.categories}
        texts = [string for string in strings if string not in known]
        of_texts = zip(texts, self.tokenizer.encode(texts), strict=True)
        return {**known, **{name: self._name(name) for name in names}, **dict(of_texts)}

    def _views(self, query: Query, encoded: Mapping[str, Encoding]) -> list[tuple[Window, Example]]:
        """Cover the text and the second text by windows, and make an example of each pair of windows."""
        text, pair = encoded[query.text].ids, encoded[query.pair or ""].ids
        instruction = self._instruction(query.instruction)
        categories = [encoded[category.name].ids for category in query.categories]
        of_tables = regions(category.kind for category in query.categories)
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
                    regions=of_tables,
                    gold_anchors=NO_ANCHORS,
                    gold_cells=NO_CELLS,
                ),
            )
            for at in cover(len(text), text_most, query.around)
            for beside in cover(len(pair), pair_most)
        ]

    def _room(
        self, query: Query, text: int, pair: int, instruction: int, categories: list[int]
    ) -> tuple[int, int]:
        """Return the maximum tokens of a window of the text, and of the second text."""
        room = self.model.most_tokens - instruction - 4 - (pair > 0)
        room -= len(self._phrases.no_answer) if self._phrases is not None else 0
        markers = [size + 1 for size in categories]
        room -= max(min(sum(markers), room // PROMPT_SHARE), *markers, 0)
        if room < 2 * LEAST_TEXT:
            longest = max((query.instruction, *(category.name for category in query.categories)), key=len)
            raise UserError(
                f"{short(longest)} leaves no room for the text {short(query.text)} in a sequence of "
                f"{self.model.most_tokens} tokens; shorten it"
            )
        room = min(room, self.model.shape.max_tokens)  # the training length
        pair_most = pair_room(text, room)
        return max(1, room - min(pair, pair_most)), pair_most  # a text without tokens leaves the pair all room


def query_of(record: Record) -> Query:
    """Make the first query about a record's text."""
    task = objective(record.task)
    return task.query(record.task, record.instruction, record.text, record.pair, record.categories)
