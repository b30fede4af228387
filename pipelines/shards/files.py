"""Write the files of a mixture's shards: copies, prompts and categories. `unit.py` writes the shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.shards.rows import LOST_SCHEMA, lists
from pipelines.shards.unit import Unit, checksum, listed, summed
from pipelines.store.storage import StorePath, explained, parquet
from pipelines.store.store import atomic, on_this_disk
from ubert.encoder.ragged import Ids
from ubert.inference.questions import INSTRUCTIONS
from ubert.loader.shards import CATEGORY_SCHEMA, PROMPT_SCHEMA, draws_schema
from ubert.model.tokenizer import Tokenizer
from ubert.schema.manifest import Alignment, ShardFile
from ubert.schema.record import Task

CATEGORY_TOKENS = 64  # limit of a category name, question or instruction; longer ones are cut and counted
COUNTED = ("records", "rows", "tokens", "cut", "spans", "exact", "widened", "narrowed", "links")


Paraphrases = Mapping[str, Sequence[str]]
"""Paraphrases of category names and instructions, by name."""


@dataclass(slots=True)
class Numbers:
    """Ids of words and prompts, in order of their first use.

    A word is a text with its kind. A prompt is the id of an instruction and the ids of its categories. `others`
    has the ids of each word's paraphrases. `instructions` has those of each task.
    """

    words: dict[tuple[str, str], int] = field(default_factory=dict)
    prompts: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    others: dict[int, dict[int, None]] = field(default_factory=dict)
    instructions: dict[Task, set[str]] = field(default_factory=dict)

    def of(self, prompts: pa.StructArray, task: Task) -> npt.NDArray[np.int32]:
        """Return the ids of a part's prompts (`PROMPT_WORDS`). The task's general instruction becomes a paraphrase
        of each instruction. A follow-up question about an event names its type after the instruction."""
        columns = [column.to_pylist() for column in prompts.flatten()]
        found = np.array([self._number(*row) for row in zip(*columns, strict=True)], np.int32)
        instructions, _, kinds = columns
        first = {asked for asked, of in zip(instructions, kinds, strict=True) if "role" not in of}
        self.instructions.setdefault(task, set()).update(first)
        for asked in dict.fromkeys(instructions):
            own = max(filter(asked.startswith, first), key=len)
            self._also((asked, "instruction"), [INSTRUCTIONS.get(task, own) + asked.removeprefix(own)])
        return found

    def rephrase(self, paraphrases: Paraphrases) -> None:
        """Add the paraphrases of all words so far."""
        for word in [*self.words]:
            self._also(word, paraphrases.get(word[0], ()))

    def _also(self, word: tuple[str, str], others: Sequence[str]) -> None:
        text, kind = word
        added = (self.words.setdefault((other, kind), len(self.words)) for other in others if other != text)
        self.others.setdefault(self.words[word], {}).update(dict.fromkeys(added))

    def _number(self, instruction: str, names: list[str], kinds: list[str]) -> int:
        first, *rest = [
            self.words.setdefault(word, len(self.words))
            for word in [(instruction, "instruction"), *zip(names, kinds, strict=True)]
        ]
        return self.prompts.setdefault((first, tuple(rest)), len(self.prompts))


def write(
    units: Sequence[Unit], tokenizer: Tokenizer, directory: StorePath, paraphrases: Paraphrases
) -> dict[str, Any]:
    """Write the mixture's files over finished units: draws, prompts, categories and `lost.parquet`. Return their
    fields of the manifest.

    Raises:
        UserError: the store can't be written.
    """
    numbers = Numbers()
    alignment: dict[str, list[Alignment]] = {}
    shards = []
    with atomic(directory / "draws.arrow") as path, atomic(directory / "lost.parquet") as lost_path:
        with (
            pa.ipc.new_file(str(path), draws_schema(units[0].copies_RF.shape[1])) as draws,
            pq.ParquetWriter(lost_path, LOST_SCHEMA, compression="zstd") as losses,
        ):
            for unit in units:
                lost = _lost_by_drawn(unit)
                losses.write_table(lost)
                with on_this_disk(unit.summary) as summary:
                    summarised = pa.ipc.open_file(pa.memory_map(str(summary)))
                    alignment.setdefault(unit.corpus, []).append(_aligned(unit, summarised, lost, numbers, draws))
                    shards.append(listed(unit, summarised))
        drawn = described(path, "draws.arrow")
    numbers.rephrase(paraphrases)
    categories = _categories(numbers, tokenizer)
    return {
        "shards": shards,
        "draws": drawn,
        "categories": _write(categories, directory / "categories.arrow"),
        "prompts": _write(_prompts(numbers), directory / "prompts.arrow"),
        "instructions": {task: one for task, (one, *more) in numbers.instructions.items() if not more},
        "cut_categories": int((categories.column("tokens").to_numpy() > CATEGORY_TOKENS).sum()),
        "alignment": [_total(parts) for parts in alignment.values()],
    }


def described(path: Path, name: str) -> ShardFile:
    """Return the manifest's entry for an Arrow file of that name."""
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    tokens = len(pc.list_flatten(table["ids"])) if "ids" in table.column_names else 0
    return ShardFile(path=name, rows=len(table), tokens=tokens, blake3=checksum(path))


def _lost_by_drawn(unit: Unit) -> pa.Table:
    with explained(unit.lost):
        lost = parquet([unit.lost], LOST_SCHEMA).to_table()
    return lost.filter(pa.array(unit.drawn[lost.column("record").to_numpy()]))


def _aligned(
    unit: Unit,
    summary: pa.ipc.RecordBatchFileReader,
    lost: pa.Table,
    numbers: Numbers,
    draws: pa.RecordBatchWriter,
) -> Alignment:
    """Write the draws of a unit. Return how the annotations of its drawn records align with tokens."""
    kept, rows, tokens = np.zeros(4, np.int64), 0, 0
    number_P: Ids | None = None
    for i in range(summary.num_record_batches):
        batch = summary.get_batch(i)
        copies_RF = unit.copies_RF[batch.column("record").to_numpy()]
        prompt = batch.column("prompt")
        if number_P is None:  # the dictionary is the same in all batches
            number_P = numbers.of(prompt.dictionary, batch.column("task")[0].as_py())
        schema = draws_schema(copies_RF.shape[1])
        copies = pa.FixedSizeListArray.from_arrays(pa.array(copies_RF.ravel()), type=schema.field("copies").type)
        columns = [copies, pa.array(number_P[prompt.indices.to_numpy()])]
        draws.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        drawn = batch.filter(pa.array(copies_RF.any(axis=1)))
        kept += drawn.column("kept").flatten().to_numpy().reshape(-1, 4).sum(axis=0)
        rows, tokens = rows + len(drawn), tokens + summed(drawn)
    of, reason = (lost.column(name).to_pylist() for name in ("of", "reason"))
    reasons, of_links = (
        Counter(why for what, why in zip(of, reason, strict=True) if what == wanted) for wanted in ("span", "link")
    )
    exact, widened, narrowed, links = kept.tolist()
    return Alignment(
        corpus=unit.corpus,
        records=int(unit.drawn.sum()),
        rows=rows,
        tokens=tokens,
        cut=len(lost.filter(pc.equal(lost.column("of"), "text")).column("record").unique()),
        spans=exact + widened + narrowed + reasons.total(),
        exact=exact,
        widened=widened,
        narrowed=narrowed,
        lost=dict(reasons),
        links=links + of_links.total(),
        lost_links=dict(of_links),
    )


def _total(parts: Sequence[Alignment]) -> Alignment:
    """Sum the alignments of one corpus."""
    sums: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in COUNTED}
    for name in ("lost", "lost_links"):
        reasons = sum((Counter(getattr(part, name)) for part in parts), Counter[str]())
        sums[name] = dict(sorted(reasons.items()))
    return Alignment(corpus=parts[0].corpus, **sums)


def _categories(numbers: Numbers, tokenizer: Tokenizer) -> pa.RecordBatch:
    encoded = tokenizer.encode([text for text, _ in numbers.words])
    ids = [
        tokenizer.instruction(text) if kind == "instruction" else encoding.ids
        for (text, kind), encoding in zip(numbers.words, encoded, strict=True)
    ]
    columns = [
        pa.array([text for text, _ in numbers.words], pa.string()),
        pa.array([kind for _, kind in numbers.words], pa.string()),
        lists([of_word[:CATEGORY_TOKENS] for of_word in ids]),
        pa.array([len(of_word) for of_word in ids], pa.int32()),
        lists([np.array([*numbers.others.get(i, ())], np.int32) for i in range(len(ids))]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CATEGORY_SCHEMA)


def _prompts(numbers: Numbers) -> pa.RecordBatch:
    instructions = pa.array([instruction for instruction, _ in numbers.prompts], pa.int32())
    categories = lists([np.array(categories, np.int32) for _, categories in numbers.prompts])
    return pa.RecordBatch.from_arrays([instructions, categories], schema=PROMPT_SCHEMA)


def _write(batch: pa.RecordBatch, path: StorePath) -> ShardFile:
    """Write one batch, uncompressed, as one file."""
    with atomic(path) as temporary:
        with pa.ipc.new_file(str(temporary), batch.schema) as file:
            file.write_batch(batch)
        return described(temporary, path.name)
