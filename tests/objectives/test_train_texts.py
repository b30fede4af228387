"""Generation from a corpus to shards, batches, a trained model, and its texts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import handmade
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny_run import losses, make_encoder, make_recipe

import ubert
from pipelines.shards.rows import Rows
from ubert.encoder.attention import PADDING
from ubert.inference.generation.beam import Search
from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import Tokenizer, load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.record import Record
from ubert.training import loop
from ubert.unilm.cloze import ClozeBatch

WHO, WHERE = ("Ada", "Niels", "Lise", "Emmy", "Max", "Marie"), ("Paris", "Oslo")


def titled(number: int, filler: int = 0, *, pair: bool = False) -> Record:
    """Who goes where; the title is where, and how."""
    who, where = WHO[number % len(WHO)], WHERE[number % len(WHERE)]
    text = f"{who} went to {where} by train{' and slept' * filler}"
    one = handmade.record("titles", number, "seq2seq", text, (), pair="good opinion" if pair else None)
    one.target = f"{where} by train"
    return one


def plain(number: int) -> Record:
    return handmade.record("texts", number, "text", f"{WHO[number % 6]} slept and went by train to Oslo", ())


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slower with more, and on a busy machine by far."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder"), dropout=0.0, spread=0.1)


@pytest.fixture(scope="module")
def shards(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpora = {
        "titles": [titled(i, i % 3, pair=i % 5 == 0) for i in range(40)],
        "texts": [plain(i) for i in range(20)],
    }
    root = tmp_path_factory.mktemp("store")
    return handmade.make_shards(root, corpora, encoder=str(encoder), max_tokens=32, name="tiny")


def recipe_of(encoder: Path, **changed: Any):  # type: ignore[no-untyped-def]
    return make_recipe(encoder, **{"objectives": {"seq2seq": 0.5, "unilm": 0.5}} | changed)


def loader(encoder: Path, shards: Path, rank: int = 0, world: int = 1, **changed: Any) -> Loader:
    tokenizer = load_tokenizer(str(encoder))
    words = tokenizer.for_masking()
    recipe = recipe_of(encoder, **changed)
    return Loader(open_shards(shards), recipe, tokenizer.special, 64, rank, world, words=words)


def shown(tokenizer: Tokenizer, batch: ClozeBatch, row: int) -> str:
    """A sequence with nothing hidden."""
    ids = batch.ids_BL.flatten().clone()
    ids[batch.hidden_H] = batch.answer_H
    mine = ids.view_as(batch.ids_BL)[row][batch.rank_BL[row] != PADDING]
    return " ".join(tokenizer.tokens(mine.numpy().astype(np.int32)))


def batches(given: Loader, objective: str) -> Iterator[tuple[ClozeBatch, list[int]]]:
    for i in range(given.total_steps):
        step = given.step(i)
        if step.objective == objective:
            start = 0
            for batch in step.batches:
                assert isinstance(batch, ClozeBatch)
                yield batch, step.rows[start : start + len(batch.ids_BL)]
                start += len(batch.ids_BL)


def test_a_batch_is_instruction_pair_text_and_target(encoder: Path, shards: Path) -> None:
    tokenizer, found = load_tokenizer(str(encoder)), open_shards(shards)
    given = loader(encoder, shards)
    seen = set()
    for batch, rows in batches(given, "seq2seq"):
        assert batch.smoothing == 0.1
        for i, row in enumerate(rows):
            number = int(found.record_id(row).rsplit("/", 1)[1])
            record = titled(number, number % 3, pair=number % 5 == 0)
            middle = "good opinion [SEP] " if record.pair else ""
            text = shown(tokenizer, batch, i)
            assert text.startswith("[CLS] ") and text.endswith(
                f" [SEP] {middle}{record.text} [SEP] {record.target} [SEP]"
            )
            target = len(record.target.split()) + 1  # and the end
            ranks = batch.rank_BL[i][batch.rank_BL[i] != PADDING].tolist()
            assert ranks == [0] * (len(ranks) - target) + list(range(1, target + 1))
            seen.add(number)
    assert len(seen) > 20


def test_texts_are_read_under_all_four_masks(encoder: Path, shards: Path) -> None:
    given = loader(encoder, shards, steps=60)
    kinds = {int(kind) for batch, _ in batches(given, "unilm") for kind in batch.types_BL[batch.mask_BL].unique()}
    assert kinds == {0, 1, 2, 3, 4, 5}
    assert all(batch.smoothing == 0 for batch, _ in batches(given, "unilm"))


def test_what_is_hidden_is_the_same_for_any_number_of_workers_and_new_in_each_epoch(
    encoder: Path, shards: Path
) -> None:
    def hidden(given: list[Loader], step: int) -> dict[int, list[int]]:
        rows: dict[int, list[int]] = {}
        for one in given:
            made = one.step(step)
            numbers = iter(made.rows)
            for batch in made.batches:
                for i in range(len(batch.ids_BL)):
                    rows[next(numbers)] = batch.ids_BL[i][batch.mask_BL[i]].tolist()
        return rows

    alone, pair = [loader(encoder, shards)], [loader(encoder, shards, rank, 2) for rank in range(2)]
    assert all(hidden(alone, step) == hidden(pair, step) for step in range(6))
    epoch = alone[0].steps_per_epoch
    first = {row: ids for step in range(epoch) for row, ids in hidden(alone, step).items()}
    again = {row: ids for step in range(epoch, 2 * epoch) for row, ids in hidden(alone, step).items()}
    assert first.keys() & again.keys() and any(first[row] != again[row] for row in first.keys() & again.keys())


def test_batches_are_those_of_their_recipe_whatever_ran_before(encoder: Path, tmp_path: Path) -> None:
    """Pseudo masks make rows longer, and so are fewer in a batch, also where a run without them was first."""
    fresh, used = (
        handmade.make_shards(
            tmp_path / name, {"titles": [titled(i, i % 3) for i in range(40)]}, encoder=str(encoder)
        )
        for name in ("fresh", "used")
    )
    only = {"objectives": {"seq2seq": 1.0}, "packs_per_batch": 1}
    loader(encoder, used, **only)
    alone, after = (loader(encoder, shards, **only, pseudo_masks=True) for shards in (fresh, used))
    assert alone.steps_per_epoch == after.steps_per_epoch
    assert all(alone.step(i).rows == after.step(i).rows for i in range(alone.steps_per_epoch))


def rows_of(records: list[Record], encoder: Path, max_tokens: int) -> tuple[pa.RecordBatch, list[str]]:
    rows = Rows(load_tokenizer(str(encoder)), max_tokens)
    batch = rows.batch(records, range(len(records)))
    return batch, [note.reason for note in rows.notes]


def test_the_source_is_cut_and_the_target_never(encoder: Path) -> None:
    """A short target leaves as much of its source as a shorter one: or the place where it begins would tell where
    it ends."""
    records = [titled(0, filler=30) for _ in range(4)]
    for record, words in zip(records, (1, 3, 5, 7), strict=True):
        record.target = "slept " * words
    batch, reasons = rows_of(records, encoder, 20)
    assert [len(ids) for ids in batch["target_ids"].to_pylist()] == [1, 3, 5, 7]
    assert [len(ids) for ids in batch["text_ids"].to_pylist()] == [15, 15, 15, 13]
    assert reasons == ["text cut"] * 4


@pytest.mark.parametrize(
    ("pair", "start"), [("Oslo", 14), ("Paris", 0), ("good opinion", 0), ("good opinion " * 10, 0)]
)
def test_the_source_is_cut_around_its_pair(encoder: Path, pair: str, start: int) -> None:
    """What stands there first; where it has none of it, its beginning stays."""
    text = " ".join(["slept"] * 20 + ["went to Oslo by train"] + ["slept"] * 20)
    one = handmade.record("titles", 0, "seq2seq", text, (), pair=pair)
    one.target = "Oslo by train"
    batch, reasons = rows_of([one], encoder, 24)
    assert batch["window_start"].to_pylist() == [start]
    assert reasons.count("text cut") == (2 if start else 1)


def test_a_target_that_leaves_no_room_is_refused_and_counted(encoder: Path) -> None:
    record = titled(0)
    record.target = "slept " * 15
    batch, reasons = rows_of([record, titled(1)], encoder, 20)
    assert batch["record_id"].to_pylist() == ["titles/train/1"]
    assert reasons == ["no room beside the target"]


def test_a_short_text_has_room_beside_a_long_second_text(encoder: Path) -> None:
    one = handmade.record("titles", 0, "seq2seq", "Ada slept", (), pair="slept " * 30)
    one.target = "Oslo"
    batch, reasons = rows_of([one], encoder, 16)
    assert [len(ids) for ids in batch["text_ids"].to_pylist()] == [2]
    assert [len(ids) for ids in batch["pair_ids"].to_pylist()] == [10]
    assert reasons == ["pair cut"]


def test_a_target_without_a_token_is_in_no_row_and_counted(tmp_path: Path) -> None:
    """U+FFFD can be seen, but the tokenizer removes it. Tasks that have no target at all lose nothing by it."""
    records = [titled(i) for i in range(4)]
    records[1].target = "\ufffd"
    corpora = {"titles": records, "texts": [plain(0)], "people": [handmade.ner(0)]}
    directory = handmade.make_shards(tmp_path, corpora, max_tokens=32)
    shards = open_shards(directory)
    kept = {shards.record_id(row) for row in range(len(shards))}
    assert kept == {"titles/train/0", "titles/train/2", "titles/train/3", "texts/train/0", "people/train/0"}
    [listed] = pq.read_table(directory / "lost.parquet").to_pylist()
    assert (listed["record_id"], listed["of"], listed["reason"], listed["words"]) == (
        "titles/train/1",
        "text",
        "no token in the target",
        "\ufffd",
    )
    found = {of.corpus: (of.records, of.rows, of.cut) for of in shards.manifest.alignment}
    assert found == {"titles": (4, 3, 1), "texts": (1, 1, 0), "people": (1, 1, 0)}


@pytest.mark.parametrize("target", [None, " \n", "\u200b"])
def test_a_record_without_a_target_is_reported(encoder: Path, target: str | None) -> None:
    record = titled(3)
    record.target = target
    with pytest.raises(UserError, match="record titles/train/3 of task seq2seq has no target"):
        rows_of([record], encoder, 20)


def test_an_objective_without_records_and_records_without_an_objective_are_reported(
    encoder: Path, shards: Path
) -> None:
    with pytest.raises(UserError, match=r"records of task text, .* give spanbert or unilm a share"):
        loader(encoder, shards, objectives={"seq2seq": 1.0})
    with pytest.raises(UserError, match=r"records of task seq2seq, .* give seq2seq a share"):
        loader(encoder, shards, objectives={"unilm": 1.0})


TRAINED = {
    "steps": 240,
    "objectives": {"seq2seq": 0.9, "unilm": 0.1},
    "learning_rate": 2e-3,
    "head_learning_rate": 2e-3,
    "tokens_per_batch": 512,
    "checkpoint_every": 220,
}


@pytest.fixture(scope="module")
def run(encoder: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    loop.train(recipe_of(encoder, **TRAINED), shards=shards, run=folder, worker=loop.Worker(progress=False))
    return folder


def test_it_learns_to_write_titles(run: Path) -> None:
    predictor = ubert.load(run, precision="fp32")
    records = [titled(i, i % 3) for i in range(12)]
    found = predictor.generate(
        [record.text for record in records],
        instruction="the seq2seq of a text",
        search=Search(beams=3, longest=6),
    )
    right = sum(texts[0].text == record.target for texts, record in zip(found, records, strict=True))
    assert right >= 10, [texts[0].text for texts in found]
    evaluated = list(predictor.generate_records(records))
    assert [one.text for (one,) in evaluated] == [texts[0].text for texts in found]  # type: ignore[union-attr]


def test_a_run_that_died_resumes_as_if_it_hadn_t(run: Path, encoder: Path, shards: Path, tmp_path: Path) -> None:
    """As a process that died between two checkpoints has left it."""
    died = tmp_path / "died"
    shutil.copytree(run, died)
    (died / "manifest.json").unlink()
    shutil.rmtree(died / "checkpoints" / "step-000240")
    loop.train(recipe_of(encoder, **TRAINED), shards=shards, run=died, worker=loop.Worker(progress=False))
    assert losses(died) == losses(run)


def test_a_run_may_begin_with_what_another_has_learnt(
    run: Path, encoder: Path, shards: Path, tmp_path: Path
) -> None:
    checkpoint = sorted((run / "checkpoints").iterdir())[-1]
    loop.train(
        recipe_of(checkpoint, steps=2, learning_rate=1e-8, head_learning_rate=1e-8), shards=shards, run=tmp_path
    )
    texts = [titled(i).text for i in range(4)]
    one, other = (
        ubert.load(folder, precision="fp32").generate(texts, search=Search(2, 5)) for folder in (run, tmp_path)
    )
    assert [[p.text for p in found] for found in one] == [[p.text for p in found] for found in other]
