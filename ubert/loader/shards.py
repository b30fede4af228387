"""Read shards: tokenised texts in uncompressed Arrow files, which are memory-mapped and read without a copy.

shard-*.arrow      one part of a corpus: a row is a text, or a window of a long one. It has nothing that depends on
                   the mixture, so shard sets of several mixtures share it
draws.arrow        for each row of all shards, in order: its copies in this mixture, and the number of its prompt
prompts.arrow      each distinct prompt (an instruction and its candidate categories), by rows of categories.arrow
categories.arrow   each distinct instruction, category name and question, tokenised once, and its synonyms

Shapes: N rows of all shards, in order; P prompts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ubert.encoder.ragged import Ids, Longs, Ragged, joined, taken
from ubert.loader.files import Files, Folder
from ubert.schema.errors import UserError
from ubert.structure.batch import Example, regions

SCAN_AHEAD = 8  # shards to prefetch in a scan of all rows
PROMPTS_KEPT = 4096  # size of the cache of prompts
_IDS = pa.list_(pa.int32())
_WORD = pa.dictionary(pa.int32(), pa.string())

PROMPT_WORDS = pa.struct(
    [
        pa.field("instruction", pa.string(), nullable=False),
        pa.field("names", pa.list_(pa.string()), nullable=False),  # of the candidate categories
        pa.field("kinds", pa.list_(pa.string()), nullable=False),
    ]
)
SHARD_SCHEMA = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("corpus", _WORD, nullable=False),
        pa.field("task", _WORD, nullable=False),
        pa.field("record", pa.int32(), nullable=False),  # its index in the part
        pa.field("prompt", pa.dictionary(pa.int32(), PROMPT_WORDS), nullable=False),
        pa.field("text_ids", _IDS, nullable=False),
        pa.field("pair_ids", _IDS, nullable=False),
        pa.field("target_ids", _IDS, nullable=False),  # of the text to generate
        pa.field("window_start", pa.int32(), nullable=False),  # the row's first token, in its record's text
        pa.field("gold_anchors", _IDS, nullable=False),  # indices into the prompt's categories
        pa.field("gold_cells", pa.list_(pa.list_(pa.int32(), 3)), nullable=False),  # category, start, end token
        # counts of the record's exact, widened and narrowed spans, and links; on its first row only
        pa.field("kept", pa.list_(pa.int32(), 4), nullable=False),
    ]
)
PROMPT_SCHEMA = pa.schema(
    [pa.field("instruction", pa.int32(), nullable=False), pa.field("categories", _IDS, nullable=False)]
)
CATEGORY_SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # kind of the category, or `instruction`
        pa.field("ids", _IDS, nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),  # before it was cut to `ids`
        pa.field("others", _IDS, nullable=False),  # rows of its synonyms
    ]
)


Bytes = npt.NDArray[np.uint8]


def draws_schema(phases: int) -> pa.Schema:
    """Return the schema of `draws.arrow`, which has one record batch for each record batch of the shards."""
    return pa.schema(
        [
            # how often each phase of an epoch shows the row; a row with only zeros isn't drawn
            pa.field("copies", pa.list_(pa.int32(), phases), nullable=False),
            pa.field("prompt", pa.int32(), nullable=False),  # row of prompts.arrow
        ]
    )


@dataclass(slots=True, frozen=True)
class Lists:
    """A list column without a copy: list i is values[offsets[i] : offsets[i + 1]]."""

    offsets: Ids
    values: Ids
    ends: memoryview  # the offsets again, for fast access to single ones

    def __getitem__(self, i: int) -> Ids:
        return self.values[self.ends[i] : self.ends[i + 1]]

    def take(self, i_R: Longs) -> Ragged:
        start_R = self.offsets[i_R].astype(np.int64)
        return taken(self.values, start_R, self.offsets[i_R + 1] - start_R)

    def lengths(self, i_R: Longs) -> Ids:
        return np.asarray(self.offsets[i_R + 1] - self.offsets[i_R], np.int32)


class Prompt(NamedTuple):
    """A tokenised instruction with its candidate categories.

    `regions`: the regions of the categories' tables. `words`: the rows of the instruction and of the
    categories in `Shards.words`. `scale`: the categories are numbers on a scale.
    """

    instruction: Ids
    categories: list[Ids]
    regions: Ids
    words: list[int]
    scale: bool


@dataclass(slots=True, frozen=True)
class Columns:
    """Columns of one record batch of a shard, memory-mapped. Its R rows start at row `first` of all rows."""

    shard: int
    first: int
    record_id: tuple[Ids, Bytes]
    copies: Ids  # [R, phases]
    prompt: Ids
    task: Ids  # index into `tasks`
    tasks: list[str]
    corpus: Ids  # index into `corpora`
    corpora: list[str]
    text: Lists
    pair: Lists
    target: Lists
    anchors: Lists
    cells: Lists

    def __len__(self) -> int:
        return len(self.copies)

    def lengths(self, row_R: Longs) -> Ids:
        """Count the tokens of the text, the pair and the pair's [SEP], for these rows of the file."""
        pair_R = self.pair.lengths(row_R)
        return np.asarray(self.text.lengths(row_R) + pair_R + (pair_R > 0), np.int32)

    def gold(self, row_R: Longs) -> Ids:
        """Count the gold anchors and cells together, for these rows of the file."""
        return np.asarray(self.anchors.lengths(row_R) + self.cells.lengths(row_R), np.int32)


class Rows(NamedTuple):
    """Some rows, as columns [R]. `prompt`: prompt numbers. `behind`: tokens of (pair [SEP]) text [SEP]."""

    prompt: Ids
    behind: Ids
    text: Ragged
    pair: Ragged
    target: Ragged
    anchors: Ragged
    cells: Ragged


class Shards:
    """All rows of a shard set. A shard is opened when one of its rows is first read.

    `instruction_P` and `categories` give the rows of `words` that make up each prompt.
    """

    def __init__(self, source: Files) -> None:
        self.source, self.manifest = source, source.manifest
        manifest = self.manifest
        self._draws = _read(source.path(manifest.draws), draws_schema(manifest.phases))
        firsts = np.cumsum([0, *(len(batch) for batch in self._draws)]).tolist()
        self._firsts = np.array(firsts[:-1])
        self._rows = firsts[-1]
        ends = np.cumsum([file.rows for file in manifest.shards])
        # the shard of each record batch
        self._shard_B = np.searchsorted(ends, self._firsts, side="right")
        self._open: dict[int, Columns] = {}
        self._kept: set[int] | None = None  # numbers of shards that stay open; None: all
        self._opening = threading.Lock()
        [prompts] = _read(source.path(manifest.prompts), PROMPT_SCHEMA)
        self.instruction_P: Ids = prompts.column("instruction").to_numpy()
        self.categories = _lists(prompts.column("categories"))
        [words] = _read(source.path(manifest.categories), CATEGORY_SCHEMA)
        self.words, self._kinds = _lists(words.column("ids")), words.column("kind")
        self.others = _lists(words.column("others"))
        self.prompt = lru_cache(maxsize=PROMPTS_KEPT)(self._prompt)

    def __len__(self) -> int:
        return int(self._rows)

    @property
    def files(self) -> Iterator[Columns]:
        """All rows in order, with only a few shards open at a time."""
        shards = self.manifest.shards
        try:
            for batch, number in enumerate(self._shard_B.tolist()):
                if batch == 0 or number != self._shard_B[batch - 1]:
                    self.keep(range(number, number + SCAN_AHEAD))
                    self.source.ahead(islice(shards, number, number + SCAN_AHEAD))
                yield self._columns(batch)
        finally:
            self._kept = None

    def keep(self, numbers: Iterable[int]) -> None:
        """Close all shards but these. Only one of those that are opened later stays open at a time, and the cache
        may remove its file, because another worker may need the space for one of its own."""
        with self._opening:
            self._kept = set(numbers)
            self._close(self._kept)

    def _close(self, kept: set[int]) -> None:
        """Close all shards but these. Arrays of closed shards stay valid."""
        self._open = {batch: one for batch, one in self._open.items() if self._shard_B[batch] in kept}
        self._release(kept)

    def _release(self, kept: set[int]) -> None:
        """Let the cache remove the files of all shards but these."""
        shards = self.manifest.shards
        self.source.keep(shards[number] for number in kept if number < len(shards))

    def ahead(self, numbers: Iterable[int]) -> None:
        """Prefetch shards in the order in which their rows will be read."""
        self.source.ahead(self.manifest.shards[number] for number in numbers)

    def shards_of(self, row_R: Longs) -> Longs:
        """Return the numbers of the shards that hold these rows, each once."""
        return np.unique(self._shard_B[np.searchsorted(self._firsts, row_R, side="right") - 1])

    def _columns(self, batch: int) -> Columns:
        """Return a record batch. Its shard is opened if it isn't open."""
        if (found := self._open.get(batch)) is not None:
            return found
        number = int(self._shard_B[batch])
        with self._opening:
            kept = None if self._kept is None or number in self._kept else self._kept
            if kept is not None:
                self._close(kept)
            batches = _read(self.source.path(self.manifest.shards[number]), SHARD_SCHEMA)
            first = int(np.searchsorted(self._shard_B, number))
            for i, one in enumerate(batches, first):
                self._open[i] = _columns(one, self._draws[i], number, int(self._firsts[i]))
            if kept is not None:
                self._release(kept)
            return self._open[batch]

    def example(self, row: int) -> Example:
        """Return one row without a copy. Rows with the same prompt share its lists of categories."""
        shard, i = self.find(row)
        prompt = self.prompt(int(shard.prompt[i]))
        return Example(
            instruction=prompt.instruction,
            categories=prompt.categories,
            text=shard.text[i],
            pair=shard.pair[i],
            regions=prompt.regions,
            gold_anchors=shard.anchors[i],
            gold_cells=shard.cells[i],
        )

    def _batches(self, row_R: Longs) -> Iterator[tuple[Columns, Longs]]:
        """Yield the record batches of rows in ascending order, each with the indices of its rows."""
        batch_R = np.searchsorted(self._firsts, row_R, side="right") - 1
        starts = np.flatnonzero(np.diff(batch_R, prepend=-1)).tolist()
        for start, stop in pairwise([*starts, len(row_R)]):
            file = self._columns(int(batch_R[start]))
            yield file, row_R[start:stop] - file.first

    def rows(self, row_R: Longs) -> Rows:
        """Return several rows, in ascending order, without a copy."""
        parts = []
        for file, at in self._batches(row_R):
            lists = (file.text, file.pair, file.target, file.anchors, file.cells)
            parts.append(Rows(file.prompt[at], file.lengths(at) + 1, *(each.take(at) for each in lists)))
        if len(parts) == 1:
            return parts[0]
        prompt, behind, *columns = zip(*parts, strict=True)
        return Rows(np.concatenate(prompt), np.concatenate(behind), *map(joined, columns))

    @cached_property
    def asks_roles_P(self) -> npt.NDArray[np.bool_]:  # noqa: N802
        """Whether each prompt is a follow-up question, whose categories are the roles of an event."""
        start_P, stop_P = self.categories.offsets[:-1], self.categories.offsets[1:]
        some_P = np.flatnonzero(start_P < stop_P)
        roles_P = np.zeros(len(start_P), np.bool_)
        is_role = pc.equal(self._kinds, "role").to_numpy(zero_copy_only=False)
        roles_P[some_P] = is_role[self.categories.values[start_P[some_P]]]
        return roles_P

    def record_id(self, row: int) -> str:
        shard, i = self.find(row)
        offsets, data = shard.record_id
        return data[offsets[i] : offsets[i + 1]].tobytes().decode()

    def ids_and_tasks(self, row_R: Longs) -> tuple[pa.Array, npt.NDArray[np.str_]]:
        """Return the record ids and tasks of several rows, in ascending order."""
        ids, tasks = [], []
        for file, at in self._batches(row_R):
            every = pa.StringArray.from_buffers(len(file), *map(pa.py_buffer, file.record_id))
            ids.append(every.take(pa.array(at)))
            tasks.append(np.array(file.tasks, np.str_)[file.task[at]])
        return pa.concat_arrays(ids), np.concatenate(tasks)

    def _prompt(self, number: int) -> Prompt:
        words = self.categories[number].tolist()
        kinds = [self._kinds[i].as_py() for i in words]
        instruction = int(self.instruction_P[number])
        return Prompt(
            instruction=self.words[instruction],
            categories=[self.words[i] for i in words],
            regions=regions(kinds),
            words=[instruction, *words],
            scale="value" in kinds,
        )

    def find(self, row: int) -> tuple[Columns, int]:
        """Return the record batch that holds a row, and the row's index in it."""
        file = self._columns(int(np.searchsorted(self._firsts, row, side="right")) - 1)
        return file, row - file.first


def open_shards(files: Path | Files, verify: bool = True) -> Shards:
    """Open a shard set.

    Args:
        files: a folder, or a `Files` that brings the files to the disk.
        verify: read every file of a folder once and compare it with the manifest's checksum.

    Raises:
        UserError: the set was never finished, is of another version, or a file is missing or changed.
    """
    source = Folder(files, verify) if isinstance(files, Path) else files
    manifest = source.manifest
    if not sum(alignment.rows for alignment in manifest.alignment):
        raise UserError(f"{source}: no rows; give the mixture {manifest.mixture} more records, and shard it again")
    return Shards(source)


def _read(path: Path, schema: pa.Schema) -> list[pa.RecordBatch]:
    file = pa.ipc.open_file(pa.memory_map(str(path)))
    if not file.schema.equals(schema):
        raise UserError(f"{path}: not a shard file of this version; delete it and run `ubert shard` again")
    return [file.get_batch(i) for i in range(file.num_record_batches)]


def _columns(batch: pa.RecordBatch, draws: pa.RecordBatch, shard: int, first: int) -> Columns:
    _, offsets, data = batch.column("record_id").buffers()
    return Columns(
        shard=shard,
        first=first,
        record_id=(np.frombuffer(offsets, np.int32), np.frombuffer(data, np.uint8)),
        copies=draws.column("copies").flatten().to_numpy().reshape(len(draws), -1),
        prompt=draws.column("prompt").to_numpy(),
        task=batch.column("task").indices.to_numpy(),
        tasks=batch.column("task").dictionary.to_pylist(),
        corpus=batch.column("corpus").indices.to_numpy(),
        corpora=batch.column("corpus").dictionary.to_pylist(),
        text=_lists(batch.column("text_ids")),
        pair=_lists(batch.column("pair_ids")),
        target=_lists(batch.column("target_ids")),
        anchors=_lists(batch.column("gold_anchors")),
        cells=_lists(batch.column("gold_cells")),
    )


def _lists(column: pa.ListArray) -> Lists:
    values = column.values
    nested = pa.types.is_fixed_size_list(values.type)
    flat = values.values.to_numpy().reshape(-1, values.type.list_size) if nested else values.to_numpy()
    offsets = column.offsets.to_numpy()
    return Lists(offsets, flat, memoryview(offsets))
