"""Convert records to rows of a shard: tokens, windows of long texts, and gold cells. Losses are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ubert.encoder.ragged import Ids
from ubert.inference.windows import around, blocks, pair_room, source_window, target_room
from ubert.inference.windows import windows as cover
from ubert.loader.shards import PROMPT_WORDS, SHARD_SCHEMA
from ubert.model.tokenizer import Encoding, Fit, Tokenizer
from ubert.objectives import Query, Targets, objective, passes
from ubert.schema.checks import covered
from ubert.schema.record import TASKS, Category, Record
from ubert.structure.batch import Region

_NONE_KEPT = np.zeros(4, np.int32)  # spans: exact, widened, narrowed; links
LEAST_TEXT = 8  # least tokens of a source text for generation
LONGEST_NOTE = 200  # characters of lost text that a row of lost.parquet shows

LOST_SCHEMA = pa.schema(
    [
        pa.field("record", pa.int32(), nullable=False),  # its index in its part
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("span", pa.int32()),  # index into the record's spans (of a link: its head); null for cut text
        pa.field("of", pa.string(), nullable=False),  # text, span or link
        pa.field("reason", pa.string(), nullable=False),
        pa.field("words", pa.string(), nullable=False),
    ]
)
_NUMBERED = SHARD_SCHEMA.set(  # prompts are ids until all prompts of a part are known
    SHARD_SCHEMA.get_field_index("prompt"), pa.field("prompt", pa.int32(), nullable=False)
)


class PromptWords(NamedTuple):
    """The text of a prompt: an instruction, and the name and the kind of each candidate category."""

    instruction: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]


class Window(NamedTuple):
    """Tokens [start, stop) of a text, and the gold cells inside them, relative to `start`."""

    start: int
    stop: int
    gold_anchors: Ids
    gold_cells: Ids


class View(NamedTuple):
    """One query of a record: its pair and the tokens that are kept of the pair, the target to generate, and the
    windows of the text."""

    query: Query
    targets: Targets
    pair: Encoding
    kept_pair: Ids
    target: Ids
    windows: list[Window]

    def held(self) -> npt.NDArray[np.bool_]:
        """Return a mask [w, g]: whether window w holds gold cell g."""
        cells = self.targets.gold_cells
        none = np.zeros((0, len(cells)), np.bool_)
        return np.concatenate([none, *(_inside(cells, w.start, w.stop)[None] for w in self.windows)])


class Note(NamedTuple):
    """A row of lost.parquet."""

    record: int
    record_id: str
    span: int | None
    of: str
    reason: str
    words: str


def windows(targets: Targets, tokens: int, most: int, query: Query) -> list[Window]:
    """Cut a text into windows of at most `most` tokens that overlap by a quarter.

    - Every window that contains a cell completely has the cell.
    - A text to classify has one window, its beginning. A query about a position has the window around it.
    - An anchor that means "no answer" is also gold in the windows that lack the answer.
    - A text without tokens has no window. A text without categories is cut into blocks.
    """
    if not tokens:
        return []
    if query.region == Region.ANCHOR:
        return [Window(0, min(tokens, most), targets.gold_anchors, targets.gold_cells)]
    cells = targets.gold_cells
    found = []
    if not query.categories:
        views = blocks(tokens, most)
    else:
        views = [around(tokens, most, query.around)] if query.around else cover(tokens, most, most // 4)
    for start, stop, *_ in views:
        inside = cells[_inside(cells, start, stop)]
        anchors = targets.gold_anchors
        if query.region & Region.ANCHOR:
            anchors = np.union1d(anchors, np.setdiff1d(cells[:, 0], inside[:, 0])).astype(np.int32)
        found.append(Window(start, stop, anchors, inside - np.array([0, start, start], np.int32)))
    return found


def _inside(cells: Ids, start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the cells inside a window. The start of a link's cell may come after its end."""
    places = cells[:, 1:]
    return np.asarray(((places >= start) & (places < stop)).all(axis=1))


class Rows:
    """Builds the rows of one part. Prompts get ids in order of their first use."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.prompts: dict[PromptWords, int] = {}
        self._last: tuple[str, tuple[Category, ...], int] = ("", (), -1)
        self.notes: list[Note] = []

    def batch(self, records: Sequence[Record], places: Sequence[int]) -> pa.RecordBatch:
        """Tokenise records together and build their rows (`SHARD_SCHEMA`, except that `prompt` is an id).

        Args:
            places: indices of the records in their part.
        """
        texts = self.tokenizer.encode([record.text for record in records])
        queries = [passes(record, text) for record, text in zip(records, texts, strict=True)]
        pairs = iter(self.tokenizer.encode([query.pair or "" for of_record in queries for query, _ in of_record]))
        written = self.tokenizer.encode([record.target or "" for record in records])
        rows = []
        for record, place, text, target, of_record in zip(records, places, texts, written, queries, strict=True):
            views = [self._view(query, targets, text, next(pairs), target.ids) for query, targets in of_record]
            kept = self._kept(record, place, text, views)
            for view in views:
                number = self._prompt(view.query)
                for window in view.windows:
                    ids = text.ids[window.start : window.stop]
                    rows.append((record, place, number, ids, view.kept_pair, view.target, window, kept))
                    kept = _NONE_KEPT  # only the first row has the record's counts
        columns = zip(*rows, strict=True) if rows else ((),) * 8
        owners, at, numbers, text_ids, pair_ids, target_ids, cut, of_records = columns
        return pa.RecordBatch.from_arrays(
            [
                pa.array([record.record_id for record in owners], pa.string()),
                pa.array([record.corpus for record in owners], pa.string()).dictionary_encode(),
                _tasks(owners),
                pa.array(at, pa.int32()),
                pa.array(numbers, pa.int32()),
                lists(text_ids),
                lists(pair_ids),
                lists(target_ids),
                pa.array([window.start for window in cut], pa.int32()),
                lists([window.gold_anchors for window in cut]),
                lists([window.gold_cells for window in cut], width=3),
                pa.FixedSizeListArray.from_arrays(pa.array(np.array(of_records, np.int32).ravel()), 4),
            ],
            schema=_NUMBERED,
        )

    def lost_spans(self) -> pa.RecordBatch:
        """Return the losses so far (`LOST_SCHEMA`)."""
        columns = list(zip(*self.notes, strict=True)) or [()] * len(LOST_SCHEMA)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, LOST_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=LOST_SCHEMA)

    def with_prompts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Replace the ids of prompts by their text (`SHARD_SCHEMA`)."""
        at = SHARD_SCHEMA.get_field_index("prompt")
        words = pa.array([words._asdict() for words in self.prompts], PROMPT_WORDS)
        prompt = pa.DictionaryArray.from_arrays(batch.column(at), words)
        columns = [*batch.columns[:at], prompt, *batch.columns[at + 1 :]]
        return pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)

    def _prompt(self, query: Query) -> int:
        instruction, categories, number = self._last
        if query.categories is categories and query.instruction == instruction and number >= 0:
            return number  # records of a corpus mostly share their categories, which can be many
        names = tuple(category.name for category in query.categories)
        words = PromptWords(query.instruction, names, tuple(category.kind for category in query.categories))
        number = self.prompts.setdefault(words, len(self.prompts))
        self._last = (query.instruction, query.categories, number)
        return number

    def _view(self, query: Query, targets: Targets, text: Encoding, pair: Encoding, target: Ids) -> View:
        """Build the windows of one query. A target is never cut, and its tokens are reserved first. A short target
        reserves as many as others, because otherwise the end of the source would reveal the target's length."""
        task = objective(query.task)
        most = self.max_tokens - (max(len(target), target_room(self.max_tokens)) if len(target) else 0)
        kept_pair = pair.ids[: pair_room(len(text.ids), most)]
        tokens = len(text.ids) if query.categories or task.blocks or task.generates else 0
        room = most - len(kept_pair)
        if not task.generates:
            found = windows(targets, tokens, room, query)
        elif not tokens or not len(target) or room < min(LEAST_TEXT, tokens):
            found = []
        else:
            start, stop, *_ = source_window(text.ids, pair.ids, room)
            found = [Window(start, stop, targets.gold_anchors, targets.gold_cells)]
        return View(query, targets, pair, kept_pair, target, found)

    def _kept(self, record: Record, place: int, text: Encoding, views: Sequence[View]) -> Ids:
        """Count the spans that a record's rows keep, by fit, and the links. Add a note for each loss."""
        fits: dict[int, int] = {}
        lost: dict[int, str] = {}
        links = 0
        for view in views:
            held, targets = view.held(), view.targets
            some = held.any(axis=0)
            fits.update(zip(targets.spans[some].tolist(), targets.fits[some].tolist(), strict=True))
            lost.update((span, reason) for reason, span in targets.lost)
            for head, tail, cells in targets.links:
                if any((held[:, first] & held[:, last]).any() for first, last in cells):
                    links += 1
                else:
                    ends = " ... ".join(covered(record, record.spans[i]) for i in (head, tail))
                    reason = "in no one window" if cells else "an end is lost"
                    self.notes.append(Note(place, record.record_id, head, "link", reason, ends[:LONGEST_NOTE]))
        for i, span in enumerate(record.spans):
            if i not in fits:
                reason = lost.get(i, "truncated")
                self.notes.append(Note(place, record.record_id, i, "span", reason, covered(record, span)))
        for reason, words in _cuts(record, text, views[0]):
            self.notes.append(Note(place, record.record_id, None, "text", reason, words[:LONGEST_NOTE]))
        counts = Counter(fit for i, fit in fits.items() if i >= 0)
        return np.array([*(counts[fit] for fit in (Fit.EXACT, Fit.WIDENED, Fit.NARROWED)), links], np.int32)


def _cuts(record: Record, text: Encoding, first: View) -> Iterator[tuple[str, str]]:
    """Yield the reason and the text for each piece of the record that is in no row."""
    task = objective(record.task)
    if not (first.query.categories or task.blocks or task.generates):
        yield "no categories", record.text
    elif not first.windows and len(text.ids) and len(first.target):
        yield "no room beside the target", record.text
    elif not first.windows and len(text.ids) and task.generates:
        yield "no token in the target", record.target or ""
    elif not first.windows:
        yield "no token in the text", record.text
    else:
        text_start, text_end, pair_end = first.windows[0].start, first.windows[-1].stop, len(first.kept_pair)
        if text_start > 0:
            yield "text cut", record.text[: int(text.starts[text_start])]
        if text_end < len(text.ids):
            yield "text cut", record.text[int(text.starts[text_end]) :]
        if pair_end < len(first.pair.ids):
            yield "pair cut", (record.pair or "")[int(first.pair.starts[pair_end]) :]


def _tasks(records: Sequence[Record]) -> pa.DictionaryArray:
    """Encode tasks with the dictionary of all tasks, so that every batch has the same one."""
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
