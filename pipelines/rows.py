"""Records to rows of a shard: tokens, windows of long texts, gold cells; what is lost on the way is listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ubert.inference.windows import windows as cover
from ubert.model.batch import Ids, Region
from ubert.model.tokenizer import Encoding, Tokenizer
from ubert.objectives import Targets, objective
from ubert.schema.checks import covered
from ubert.schema.record import TASKS, Category, Record
from ubert.training.shards import PROMPT_WORDS, SHARD_SCHEMA

_NO_FITS = np.zeros(3, np.int32)  # exact, widened, narrowed
LONGEST_NOTE = 200  # characters of cut text that a row of lost.parquet shows

LOST_SCHEMA = pa.schema(
    [
        pa.field("record", pa.int32(), nullable=False),  # its place in its part
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("span", pa.int32()),  # index into the record's spans; none where text was cut
        pa.field("reason", pa.string(), nullable=False),
        pa.field("words", pa.string(), nullable=False),
    ]
)
_NUMBERED = SHARD_SCHEMA.set(  # until all prompts of a part are known
    SHARD_SCHEMA.get_field_index("prompt"), pa.field("prompt", pa.int32(), nullable=False)
)


class PromptWords(NamedTuple):
    """A prompt by its words: an instruction, and the name and the kind of each candidate category."""

    instruction: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]


class Window(NamedTuple):
    """Tokens [start, stop) of a text and the gold cells that lie in them, counted from `start`."""

    start: int
    stop: int
    gold_anchors: Ids
    gold_cells: Ids


class Note(NamedTuple):
    """A row of lost.parquet."""

    record: int
    record_id: str
    span: int | None
    reason: str
    words: str


def windows(targets: Targets, tokens: int, most: int, region: Region) -> list[Window]:
    """Cut a text into windows of at most `most` tokens that overlap by a quarter.

    A cell is in every window that holds it whole. A text that nothing is extracted from has one window, its
    beginning. A question's anchor, which says that there is no answer, is also gold in the windows of a text that
    lack the answer. A text without a token has no window.
    """
    if not tokens:
        return []
    if region == Region.ANCHOR:
        return [Window(0, min(tokens, most), targets.gold_anchors, targets.gold_cells)]
    cells = targets.gold_cells
    found = []
    for start, stop, *_ in cover(tokens, most, most // 4):
        inside = cells[(cells[:, 1] >= start) & (cells[:, 2] < stop)]
        anchors = targets.gold_anchors
        if region & Region.ANCHOR:
            anchors = np.union1d(anchors, np.setdiff1d(cells[:, 0], inside[:, 0])).astype(np.int32)
        found.append(Window(start, stop, anchors, inside - np.array([0, start, start], np.int32)))
    return found


class Rows:
    """Rows of records of one part, as they are added; prompts are numbered as they first appear."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.prompts: dict[PromptWords, int] = {}
        self._last: tuple[str, tuple[Category, ...], int] = ("", (), -1)
        self.notes: list[Note] = []

    def batch(self, records: Sequence[Record], places: Sequence[int]) -> pa.RecordBatch:
        """Tokenise records together and build their rows (`SHARD_SCHEMA`, but for `prompt`, a number yet).

        Args:
            places: of the records in their part.
        """
        texts = self.tokenizer.encode([record.text for record in records])
        pairs = self.tokenizer.encode([record.pair or "" for record in records])
        rows = []
        for record, place, text, pair in zip(records, places, texts, pairs, strict=True):
            number = self._prompt(record)
            pair_ids = pair.ids[: max(self.max_tokens // 2, self.max_tokens - len(text.ids))]
            found, fits = self._windows(record, place, text, pair, len(pair_ids))
            for window in found:
                ids = text.ids[window.start : window.stop]
                rows.append((record, place, number, ids, pair_ids, window, fits))
                fits = _NO_FITS  # are the record's, and counted once
        owners, at, numbers, text_ids, pair_ids_, cut, fit = zip(*rows, strict=True) if rows else ((),) * 7
        return pa.RecordBatch.from_arrays(
            [
                pa.array([record.record_id for record in owners], pa.string()),
                pa.array([record.corpus for record in owners], pa.string()).dictionary_encode(),
                _tasks(owners),
                pa.array(at, pa.int32()),
                pa.array(numbers, pa.int32()),
                lists(text_ids),
                lists(pair_ids_),
                pa.array([window.start for window in cut], pa.int32()),
                lists([window.gold_anchors for window in cut]),
                lists([window.gold_cells for window in cut], width=3),
                pa.FixedSizeListArray.from_arrays(pa.array(np.array(fit, np.int32).ravel()), 3),
            ],
            schema=_NUMBERED,
        )

    def lost_spans(self) -> pa.RecordBatch:
        """What was lost so far (`LOST_SCHEMA`)."""
        columns = list(zip(*self.notes, strict=True)) or [()] * len(LOST_SCHEMA)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, LOST_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=LOST_SCHEMA)

    def with_prompts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of some batches, with the words of their prompts in the place of numbers (`SHARD_SCHEMA`)."""
        at = SHARD_SCHEMA.get_field_index("prompt")
        words = pa.array([words._asdict() for words in self.prompts], PROMPT_WORDS)
        prompt = pa.DictionaryArray.from_arrays(batch.column(at), words)
        columns = [*batch.columns[:at], prompt, *batch.columns[at + 1 :]]
        return pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)

    def _prompt(self, record: Record) -> int:
        instruction, categories, number = self._last
        if record.categories is categories and record.instruction == instruction and number >= 0:
            return number  # records of a corpus mostly share their categories, which can be many
        names = tuple(category.name for category in record.categories)
        words = PromptWords(record.instruction, names, tuple(category.kind for category in record.categories))
        number = self.prompts.setdefault(words, len(self.prompts))
        self._last = (record.instruction, record.categories, number)
        return number

    def _windows(
        self, record: Record, place: int, text: Encoding, pair: Encoding, kept_pair: int
    ) -> tuple[list[Window], Ids]:
        """The record's windows, and how many of its spans they keep, by fit; what is lost is noted here."""
        task = objective(record.task)
        targets = task.targets(record, text)
        tokens = len(text.ids) if record.categories else 0
        found = windows(targets, tokens, self.max_tokens - kept_pair, task.REGION)
        kept = np.zeros(len(targets.spans), np.bool_)
        for window in found:
            kept |= (targets.gold_cells[:, 1] >= window.start) & (targets.gold_cells[:, 2] < window.stop)
        lost = [*targets.lost, *(("truncated", span) for span in targets.spans[~kept].tolist())]
        for reason, span in lost:
            words = covered(record, record.spans[span])
            self.notes.append(Note(place, record.record_id, span, reason, words))
        for reason, words in _cuts(record, text, pair, found[-1].stop if found else None, kept_pair):
            self.notes.append(Note(place, record.record_id, None, reason, words[:LONGEST_NOTE]))
        return found, np.bincount(targets.fits[kept], minlength=len(_NO_FITS)).astype(np.int32)


def _cuts(
    record: Record, text: Encoding, pair: Encoding, text_end: int | None, pair_end: int
) -> Iterator[tuple[str, str]]:
    """What of the record's texts is in no row, and why."""
    if not record.categories:
        yield "no categories", record.text
    elif text_end is None:
        yield "no token in the text", record.text
    else:
        if text_end < len(text.ids):
            yield "text cut", record.text[int(text.starts[text_end]) :]
        if pair_end < len(pair.ids):
            yield "pair cut", (record.pair or "")[int(pair.starts[pair_end]) :]


def _tasks(records: Sequence[Record]) -> pa.DictionaryArray:
    """The same dictionary in every batch: that of all tasks."""
    indices = pa.array([TASKS.index(record.task) for record in records], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(TASKS, pa.string()))


def lists(rows: Sequence[Ids], width: int | None = None) -> pa.ListArray:
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    flat = np.concatenate([row.ravel() for row in rows]) if rows else np.empty(0, np.int32)
    values = pa.array(flat, pa.int32())
    if width:
        values = pa.FixedSizeListArray.from_arrays(values, width)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
