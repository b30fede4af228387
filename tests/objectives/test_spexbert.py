"""SpEx-BERT: sequences, loss, and the decoding of start and end logits."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import handmade
import numpy as np
import numpy.typing as npt
import pytest
import torch
from handmade import PEOPLE, PLACES, ner, record
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError
from tiny_run import losses, make_encoder, make_recipe
from torch import Tensor

from pipelines.models.evaluate import evaluate
from ubert.encoder.ragged import Ids
from ubert.evaluation import metric
from ubert.evaluation.counts import Counts
from ubert.inference import pointing
from ubert.inference.pointing import best
from ubert.inference.predictor import Predictor
from ubert.inference.questions import questions
from ubert.inference.windows import Window, whole
from ubert.loader.loader import Loader, Step
from ubert.loader.shards import open_shards
from ubert.model.onnx import export
from ubert.model.tokenizer import Encoding, load_tokenizer
from ubert.model.ubert import UbertModel
from ubert.objectives import Cells, Query, Scored, ValuePrediction
from ubert.objectives.spexbert import DECODE
from ubert.schema.errors import UserError
from ubert.schema.record import Category, Record, Span
from ubert.schema.specs.recipe import LossScale, Recipe
from ubert.spexbert.pointer import NOWHERE, Phrases, Pointer, PointerBatch, loss, padded, sequences
from ubert.structure.batch import Example, Special, regions
from ubert.training import loop, nan_guard
from ubert.training.step import accumulate

SPECIAL = Special(cls=1, sep=2, pad=0, marker=3, types=True)
PHRASES = Phrases(between=9, no_answer=np.array([7, 8], np.int32))
QUIET = loop.Worker(progress=False)
SPEX = {"objectives": {"spexbert": 1.0}}


def ids(*values: int) -> Ids:
    return np.array(values, np.int32)


def example(
    *categories: Ids, pair: Ids | None = None, kind: str = "label", anchors: Ids | None = None, cells: object = ()
) -> Example:
    """Make an example of the instruction 20 and the text 30 31 32 33."""
    return Example(
        instruction=ids(20),
        categories=categories,
        text=ids(30, 31, 32, 33),
        pair=ids() if pair is None else pair,
        regions=regions([kind] * len(categories)),  # type: ignore[list-item]
        gold_anchors=ids() if anchors is None else anchors,
        gold_cells=np.array(cells, np.int32).reshape(-1, 3),
    )


def asked(of: Example, *, most_categories: int = 9, most_tokens: int = 64) -> list[tuple[list[int], object]]:
    """Ids of each sequence, and what else it says."""
    found = sequences(
        of,
        np.arange(len(of.categories), dtype=np.int32),
        PHRASES,
        SPECIAL,
        most_categories=most_categories,
        most_tokens=most_tokens,
    )
    return [
        (one.ids.tolist(), (one.source, one.choices.tolist(), one.categories.tolist(), one.text, one.gold))
        for one in found
    ]


def test_choices_are_the_source_and_the_text_is_beside_it() -> None:
    """Table 1, single sentences: [CLS] positive, negative [SEP] sentiment [SEP] text [SEP]."""
    [(sequence, said)] = asked(example(ids(40, 41), ids(50), anchors=ids(1)))
    assert sequence == [1, 40, 41, 9, 50, 2, 20, 2, 30, 31, 32, 33, 2]
    assert said == (4, [[1, 2], [4, 4]], [0, 1], 0, (4, 4))


def test_of_two_texts_the_first_is_in_the_source() -> None:
    """Table 1, sentence pairs: [CLS] text entailment, contradiction [SEP] t [SEP] pair [SEP]."""
    [(sequence, said)] = asked(example(ids(40, 41), ids(50), pair=ids(60, 61), anchors=ids(0)))
    assert sequence == [1, 30, 31, 32, 33, 40, 41, 9, 50, 2, 20, 2, 60, 61, 2]
    assert said == (8, [[5, 6], [8, 8]], [0, 1], 0, (5, 6))


def test_each_question_has_the_text_as_its_source() -> None:
    """The first answer is gold. Without one, it is "unanswerable"; if the answers are lost, nothing is gold."""
    of = example(ids(40, 41), ids(50), ids(51), kind="question", anchors=ids(1), cells=[[0, 1, 2], [0, 3, 3]])
    answered, unanswered, lost = asked(of)
    assert answered == ([1, 30, 31, 32, 33, 7, 8, 2, 20, 2, 40, 41, 2], (6, [[5, 6]], [0], 4, (2, 3)))
    assert unanswered == ([1, 30, 31, 32, 33, 7, 8, 2, 20, 2, 50, 2], (6, [[5, 6]], [1], 4, (5, 6)))
    assert lost[1] == (6, [[5, 6]], [2], 4, (NOWHERE, NOWHERE))


def test_choices_that_do_not_fit_are_asked_in_several_sequences() -> None:
    of = example(ids(40, 41), ids(50), ids(51), anchors=ids(2))
    assert [said for _, said in asked(of, most_categories=2)] == [
        (4, [[1, 2], [4, 4]], [0, 1], 0, (NOWHERE, NOWHERE)),
        (1, [[1, 1]], [2], 0, (1, 1)),
    ]
    long = asked(of, most_tokens=14)
    assert all(len(sequence) <= 14 for sequence, _ in long) and len(long) == 2
    with pytest.raises(ValueError, match=r"a category of 2 tokens doesn't fit into a sequence with its text"):
        asked(of, most_tokens=10)


@pytest.mark.parametrize("pair", [None, ids(60, 61)])
def test_a_sequence_of_choices_is_as_long_as_it_may_be(pair: Ids | None) -> None:
    of = example(ids(40, 41), ids(50), ids(51), pair=pair)
    [(whole, _)] = asked(of)
    for most in range(12 + len(of.pair), 24):
        lengths = [len(sequence) for sequence, _ in asked(of, most_tokens=most)]
        assert max(lengths) <= most
        assert len(lengths) == 1 or most <= len(whole)


def batch(*items: Example) -> PointerBatch:
    every = [
        one
        for item in items
        for one in sequences(
            item, ids(*range(len(item.categories))), PHRASES, SPECIAL, most_categories=9, most_tokens=64
        )
    ]
    return padded(every, SPECIAL, len(every))


def test_a_batch_is_padded_and_knows_segments_and_gold() -> None:
    made = batch(
        example(ids(40, 41), ids(50), anchors=ids(1)), example(ids(50), kind="question", cells=[[0, 1, 2]])
    )
    assert made.ids_BL.tolist() == [
        [1, 40, 41, 9, 50, 2, 20, 2, 30, 31, 32, 33, 2],
        [1, 30, 31, 32, 33, 7, 8, 2, 20, 2, 50, 2, 0],
    ]
    assert made.types_BL.tolist() == [[0] * 6 + [1] * 7, [0] * 8 + [1] * 4 + [0]]
    assert made.mask_BL.sum(dim=1).tolist() == [13, 12] and (made.tokens, made.examples) == (25, 2)
    assert made.source_B.tolist() == [4, 6] and made.gold_B2.tolist() == [[4, 4], [2, 3]] and made.counts == (2,)


def dense(hidden_BLD: Tensor, weight_2D: Tensor, made: PointerBatch, scale: LossScale) -> Tensor:
    """Equations 5 and 6 as they are written, one sequence after the other."""
    total = hidden_BLD.new_zeros(())
    for b, (m, gold) in enumerate(zip(made.source_B.tolist(), made.gold_B2.tolist(), strict=True)):
        source_mD = hidden_BLD[b, 1 : 1 + m]
        for vector_D, place in zip(weight_2D, gold, strict=True):
            if place != NOWHERE:
                p_m = torch.softmax(source_mD @ vector_D, dim=0)
                total = total - p_m[place - 1].log() / (math.log(m) if scale == "log" else 1)
    return total


@pytest.mark.parametrize("scale", ["sum", "log"])
def test_loss_and_gradients_are_those_of_the_paper(scale: LossScale) -> None:
    made = batch(
        example(ids(40, 41), ids(50), anchors=ids(1)),
        example(ids(50), ids(51), kind="question", cells=[[0, 1, 2]]),
        example(ids(40), ids(41), pair=ids(60, 61), anchors=ids(0)),
    )
    generator = torch.Generator().manual_seed(0)
    head = Pointer(16).double()
    hidden = torch.randn(*made.ids_BL.shape, 16, dtype=torch.float64, generator=generator).requires_grad_()
    found: list[tuple[Tensor, ...]] = []
    for value in (loss(head(hidden, made.source_B), made, scale), dense(hidden, head.ends.weight, made, scale)):
        found.append((value, *torch.autograd.grad(value, (hidden, head.ends.weight))))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=1e-13)
    assert not found[0][1][:, 0].any()  # [CLS] is no part of the source


def test_scaled_by_the_log_of_their_choices_all_losses_begin_alike() -> None:
    short, long = (
        batch(of)
        for of in (example(ids(40), ids(41), anchors=ids(0)), example(ids(50), kind="question", anchors=ids(0)))
    )
    for made in (short, long):
        logits = Pointer(4).requires_grad_(False)(torch.zeros(*made.ids_BL.shape, 4), made.source_B)
        assert float(loss(logits, made, "log")) == pytest.approx(2.0)
        assert float(loss(logits, made)) == pytest.approx(2 * math.log(int(made.source_B[0])))


def test_the_only_token_of_a_source_costs_nothing() -> None:
    made = batch(example(ids(40), anchors=ids(0)))
    logits = Pointer(4)(torch.randn(*made.ids_BL.shape, 4), made.source_B)
    assert int(made.source_B[0]) == 1 and loss(logits, made, "log").item() == 0.0


@given(
    st.integers(1, 9).flatmap(lambda n: st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=n))
)
def test_the_best_span_is_the_best_of_all(pairs: list[tuple[int, int]]) -> None:
    logits: npt.NDArray[np.float32] = np.array(pairs, np.float32)
    first, last, score = best(logits)
    n = len(pairs)
    assert 0 <= first <= last < n and score == logits[first, 0] + logits[last, 1]
    assert score == max(logits[a, 0] + logits[b, 1] for a in range(n) for b in range(a, n))


def query(task: str, text: str, *names: str, kind: str = "label") -> Query:
    return Query(task, "t", text, None, tuple(Category(name, kind) for name in names))  # type: ignore[arg-type]


TOKENS = Encoding(ids(1, 1, 1), ids(0, 2, 4), ids(1, 3, 5))  # of "a b c"
NO_CELLS = Cells(ids(), ids(), ids(), np.empty(0, np.float32))


def test_choices_and_buckets_are_decoded_to_the_best_one() -> None:
    scored = Scored(np.array([0.0, math.log(3), -50.0], np.float32), NO_CELLS)
    [label] = DECODE["classification"](
        query("classification", "a b c", "x", "y", "z"), TOKENS, scored, threshold=0.0, overlap="highest"
    )
    assert (label.category, label.score) == ("y", pytest.approx(0.75))  # type: ignore[union-attr]
    [value] = DECODE["regression"](
        query("regression", "a b c", "0.5", "2", "5"), TOKENS, scored, threshold=0.0, overlap="highest"
    )
    assert value == ValuePrediction(2.0)


@pytest.mark.parametrize(("nothing", "threshold", "found"), [(1.0, 0.0, ["b c"]), (1.0, 1.5, []), (2.5, 0.0, [])])
def test_an_answer_has_to_beat_unanswerable(nothing: float, threshold: float, found: list[str]) -> None:
    scored = Scored(np.array([nothing], np.float32), Cells(ids(0), ids(1), ids(2), np.array([2.0], np.float32)))
    answers = DECODE["qa"](
        query("qa", "a b c", "what?", kind="question"), TOKENS, scored, threshold=threshold, overlap="highest"
    )
    assert [answer.text for answer in answers] == found  # type: ignore[union-attr]


def test_of_several_windows_the_best_span_is_the_answer() -> None:
    """The windows have tokens 0 to 3 and 2 to 5. "unanswerable" has its lowest score of both."""
    encoding = Encoding(ids(*range(6)), ids(0, 2, 4, 6, 8, 10), ids(1, 3, 5, 7, 9, 11))
    parts = [
        (Window(0, 4, 0, 3), Scored(floats(3.0), Cells(ids(0), ids(1), ids(1), floats(2.0)))),
        (Window(2, 6, 3, 6), Scored(floats(1.0), Cells(ids(0), ids(2), ids(3), floats(5.0)))),
    ]
    asked = query("qa", "a b c d e f", "what?", kind="question")
    [answer] = DECODE["qa"](asked, encoding, whole(parts, asked.region), threshold=0.0, overlap="highest")
    assert (answer.text, answer.start) == ("e f", 8)  # type: ignore[union-attr]
    assert answer.score == pytest.approx(1 / (1 + math.exp(-4)))  # type: ignore[union-attr]


def test_each_question_has_the_best_of_its_own_spans() -> None:
    """Compared with its own "unanswerable"; the surer answer is first."""
    category, start, score = ids(0, 0, 1, 1), ids(1, 2, 1, 0), floats(2.0, 5.0, 1.0, 4.0)
    asked = query("qa", "a b c", "what?", "who?", kind="question")
    scored = Scored(floats(4.5, 0.0), Cells(category, start, start, score))
    answers = DECODE["qa"](asked, TOKENS, scored, threshold=0.0, overlap="highest")
    assert [(answer.category, answer.text, answer.score) for answer in answers] == [  # type: ignore[union-attr]
        ("who?", "a", pytest.approx(1 / (1 + math.exp(-4)))),
        ("what?", "c", pytest.approx(1 / (1 + math.exp(-0.5)))),
    ]


def floats(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


# ---- a tiny world


def corpora() -> dict[str, list[Record]]:
    """Each task that it can do, with answers that a text tells."""

    def made(task: str, i: int, text: str, names: list[str], **more: object) -> Record:
        return record(f"spex_{task}", i, task, text, names, **more)  # type: ignore[arg-type]

    found: dict[str, list[Record]] = {}
    for i in range(24):
        person, place, other = PEOPLE[i % 6].split()[0], PLACES[i % 2], PLACES[(i + 1) % 2]
        text = f"{person} went to {place} by train ."
        at = text.index(place)
        for task, one in {
            "classification": made("classification", i, text, PLACES[:2], labels=[i % 2]),
            "choice": made(
                "choice", i, text, [place, other] if i % 3 else [other, place], labels=[0 if i % 3 else 1]
            ),
            "pair": made(
                "pair",
                i,
                text,
                ["good", "indeed"],
                pair=f"to {PLACES[i // 2 % 2]}",
                labels=[i // 2 % 2],
            ),
            "qa": made(
                "qa",
                i,
                text,
                ["place" if i % 3 else "firm"],
                spans=[Span(at, at + len(place), 0)] if i % 3 else [],
            ),
        }.items():
            found.setdefault(f"spex_{task}", []).append(one)
        number = made("regression", i, text, [])
        number.categories, number.value = tuple(Category(name, "value") for name in "0123"), [0.2, 2.9][i % 2]
        found.setdefault("spex_regression", []).append(number)
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def encoder(root: Path) -> Path:
    return make_encoder(root / "encoder", dropout=0.0, spread=0.2)


@pytest.fixture(scope="module")
def shards(root: Path, encoder: Path) -> Path:
    return handmade.make_shards(root, corpora(), encoder=str(encoder), max_tokens=32, name="tiny")


@pytest.fixture(scope="module")
def trained(root: Path, encoder: Path, shards: Path) -> Path:
    chosen = make_recipe(
        encoder, **SPEX, steps=200, learning_rate=2e-3, checkpoint_every=500, tokens_per_batch=1024
    )
    return loop.train(chosen, shards=shards, run=root / "runs/spex", worker=QUIET)


def test_it_learns_every_task_and_evaluates_as_any_checkpoint_does(root: Path, trained: Path) -> None:
    every = losses(root / "runs/spex")
    assert np.mean(every[-10:]) < 0.1 * np.mean(every[:3])
    measured = {
        task: evaluate(trained, corpus=f"spex_{task}", split="train", root=root)["metrics"] for task in DECODE
    }
    assert {task: measured[task]["accuracy"] for task in ("classification", "pair", "choice")} == pytest.approx(
        {"classification": 1.0, "pair": 1.0, "choice": 1.0}, abs=0.1
    )
    assert measured["regression"]["rmse"] == pytest.approx(math.sqrt((0.2**2 + 0.1**2) / 2), abs=0.1)
    assert measured["qa"]["exact_match"] > 0.9


def test_perfect_logits_decode_to_the_records(root: Path, shards: Path, trained: Path) -> None:
    """Round trip: a sequence that a record is asked with is one that it is trained with, and its gold is read back
    as the record's answer."""
    predictor, opened = Predictor.load(trained), open_shards(shards)
    tokenizer = predictor.tokenizer
    gold = {
        tuple(one.ids.tolist()): one.gold
        for example in map(opened.example, range(len(opened)))
        for one in sequences(
            example,
            np.arange(len(example.categories), dtype=np.int32),
            tokenizer.for_pointing(),
            tokenizer.special,
            most_categories=64,
            most_tokens=64,
        )
    }

    def perfect(batch: PointerBatch) -> Tensor:
        logits = torch.full((*batch.ids_BL.shape, 2), -9.0)
        for sequence, mask, of_sequence in zip(batch.ids_BL, batch.mask_BL, logits, strict=True):
            start, end = gold[tuple(sequence[mask].tolist())]
            of_sequence[start, 0] = of_sequence[end, 1] = 9.0
        return logits

    predictor.model.pointed = perfect  # type: ignore[method-assign]
    for records in corpora().values():
        counts: Counts = Counter()
        for one, predictions in zip(records, predictor.predict_records(records), strict=True):
            counts.update(metric(one.task).count(one, predictions))
        found = metric(records[0].task).summarise(counts)
        nearest = math.sqrt((0.2**2 + 0.1**2) / 2)  # to the buckets of 0.2 and 2.9
        assert found.get("rmse", nearest) == pytest.approx(nearest)
        assert {found.get(name, 1.0) for name in ("accuracy", "exact_match", "qa_f1")} == {1.0}


def loader(shards: Path, recipe: Recipe, rank: int = 0, world: int = 1) -> Loader:
    tokenizer = load_tokenizer(recipe.encoder)
    phrases = tokenizer.for_pointing()
    return Loader(open_shards(shards), recipe, tokenizer.special, 64, rank, world, phrases=phrases)


@pytest.mark.parametrize("world", [2, 3])
def test_every_world_sees_the_same_sequences(shards: Path, encoder: Path, world: int) -> None:
    chosen = make_recipe(encoder, **SPEX)
    alone, ranks = loader(shards, chosen), [loader(shards, chosen, rank, world) for rank in range(world)]
    for i in range(5):
        step, parts = alone.step(i), [rank.step(i) for rank in ranks]
        assert seen([step]) == seen(parts)
        assert sum(batch.counts[0] for part in parts for batch in part.batches) == len(seen([step]))  # type: ignore[union-attr]


def seen(steps: list[Step]) -> list[tuple[object, ...]]:
    """Each sequence of some steps as the model sees it, with its gold."""
    found = []
    for batch in (batch for step in steps for batch in step.batches):
        assert isinstance(batch, PointerBatch)
        for row, mask, gold in zip(batch.ids_BL, batch.mask_BL, batch.gold_B2, strict=True):
            found.append((tuple(row[mask].tolist()), tuple(gold.tolist())))
    return sorted(found)


@pytest.mark.parametrize("questions", [0, 1, 3])
def test_a_budget_has_room_for_the_longest_sequence_and_no_more_than_a_token_to_spare(
    root: Path, encoder: Path, questions: int
) -> None:
    """The sequences are choices, or a text with so many questions, each in a sequence of its own."""
    corpus = [asking(i, questions) for i in range(5)] if questions else corpora()["spex_classification"]
    folder = handmade.make_shards(
        root, {corpus[0].corpus: corpus}, encoder=str(encoder), max_tokens=32, name=f"budget-{questions}"
    )
    with pytest.raises(UserError) as error:
        loader(folder, make_recipe(encoder, **SPEX, tokens_per_batch=1))
    said = re.findall(r"takes up to (\d+) \((\d+) sequences of (\d+) tokens\)", str(error.value))
    [(cost, sequences, length)] = [[int(number) for number in found] for found in said]
    budgets = {"tokens_per_batch": 8 * cost, "packs_per_batch": 1, "tokens_per_step": cost}
    train = loader(folder, make_recipe(encoder, **SPEX, **budgets))
    batches = [batch for i in range(train.steps_per_epoch) for batch in train.step(i).batches]
    longest = max(batch.ids_BL.shape[1] for batch in batches)
    assert sequences == max(questions, 1) and longest <= length
    assert questions > 1 or longest >= length - 1
    assert max(batch.ids_BL.numel() for batch in batches) <= cost


def test_questions_whose_answer_is_lost_are_left_out_unless_a_text_has_no_other(root: Path, encoder: Path) -> None:
    """A space is no token."""
    text, place, space = "Ada went to Paris", Span(12, 17), Span(3, 4)
    asked = [
        record("lost", i, "qa", text, ["place", "train"], spans=[replace(span, category=k) for k, span in spans])
        for i, spans in enumerate([[(0, place), (1, space)], [(0, space), (1, space)]])
    ]
    folder = handmade.make_shards(root, {"lost": asked}, encoder=str(encoder), max_tokens=32, name="lost")
    step = loader(folder, make_recipe(encoder, **SPEX)).step(0)
    gold = [gold for batch in step.batches for gold in batch.gold_B2.tolist()]  # type: ignore[union-attr]
    assert sorted(gold) == [[NOWHERE, NOWHERE], [4, 4]] and step.examples == 2


def test_an_epoch_is_one_pass_over_the_records_that_are_pointed_at(shards: Path, encoder: Path) -> None:
    """Though the recipe names another objective first."""
    shared = {"objectives": {"spanbert": 0.5, "spexbert": 0.5}, "masking": {"texts": "all"}}
    chosen, tokenizer = make_recipe(encoder, **shared), load_tokenizer(str(encoder))
    words, phrases = tokenizer.for_masking(), tokenizer.for_pointing()
    train = Loader(open_shards(shards), chosen, tokenizer.special, 64, words=words, phrases=phrases)
    assert train.steps_per_epoch == 2 * train.plans["spexbert"].steps != 2 * train.plans["spanbert"].steps


@pytest.mark.parametrize("scale", ["sum", "log"])
def test_small_batches_add_up_to_the_whole(root: Path, shards: Path, encoder: Path, scale: str) -> None:
    """The same loss and the same gradients, beside another objective, too."""
    found = []
    for size in (8192, 64):
        chosen = make_recipe(encoder, **SPEX, tokens_per_step=size, packs_per_batch=1, loss_scale=scale)
        training = loop.set_up(chosen, shards, root / f"micro-{scale}-{size}", loop.ALONE, resume=False)
        step = training.loader.step(0)
        assert (len(step.batches) > 1) == (size == 64)
        totals = accumulate(training, 0, step)
        found.append((float(totals.loss), {name: p.grad for name, p in training.model.named_parameters()}))
    (loss_of_whole, whole), (loss_of_parts, parts) = found
    assert loss_of_parts == pytest.approx(loss_of_whole, rel=1e-5)
    assert all(gradient is not None for gradient in whole.values())
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, atol=1e-5, rtol=1e-3)


def asking(number: int, questions: int) -> Record:
    """A text of its own, of which so many questions are asked."""
    person, place = PEOPLE[number].split()[0], PLACES[number % 2]
    at = len(person) + len(" went to ")
    names = ["place", "train", "firm"][:questions]
    spans = [Span(at, at + len(place), i) for i in range(questions)]
    return record("asking", number, "qa", f"{person} went to {place}", names, spans=spans)


@pytest.mark.parametrize(("questions", "tokens"), [(1, 20), (1, 60), (3, 60), (3, 100)])
def test_a_loss_that_is_not_finite_names_the_records_of_its_batch(
    root: Path, encoder: Path, questions: int, tokens: int
) -> None:
    """Each question is a sequence."""
    records = {f"asking/train/{i}": asking(i, questions) for i in range(5)}
    corpus = {"asking": list(records.values())}
    folder = handmade.make_shards(root, corpus, encoder=str(encoder), max_tokens=32, name=f"asking-{questions}")
    chosen = make_recipe(encoder, **SPEX, tokens_per_step=tokens, tokens_per_batch=1024, packs_per_batch=1)
    step, tokenizer = loader(folder, chosen).step(0), load_tokenizer(str(encoder))
    assert len(step.batches) > 1 and sorted(step.records) == sorted(records)
    for broken, batch in enumerate(step.batches):
        losses = [torch.tensor([math.nan if i == broken else 1.0]) for i in range(len(step.batches))]
        said = str(nan_guard.error(chosen, 0, step, torch.device("cpu"), "the loss is nan", losses))
        named = re.findall(r"on the records (.*?);", said)[0].split(", ")
        words = {word for row in batch.ids_BL for word in tokenizer.tokens(row.numpy().astype(np.int32))}
        inside = {name for name, one in records.items() if one.text.split()[0] in words}
        assert inside and set(named) == inside


def test_beside_masked_words_each_step_trains_its_own_head(root: Path, shards: Path, encoder: Path) -> None:
    shared = {"objectives": {"spexbert": 0.5, "spanbert": 0.5}, "masking": {"texts": "all"}}
    training = loop.set_up(make_recipe(encoder, **shared), shards, root / "shared", loop.ALONE, resume=False)
    for i, expected in ((0, "pointer"), (1, "masked"), (2, "pointer")):
        training.optimizer.zero_grad()
        step = training.loader.step(i)
        assert step.objective == {"pointer": "spexbert", "masked": "spanbert"}[expected]
        assert math.isfinite(float(accumulate(training, i, step).loss))
        heads = {name.split(".")[0] for name, p in training.model.named_parameters() if p.grad is not None}
        assert heads == {"encoder", expected}


def test_many_choices_are_drawn_with_the_right_one_among_them(root: Path, encoder: Path) -> None:
    many = {"many": [handmade.sentiment(i, 12, "many") for i in range(24)]}
    folder = handmade.make_shards(root, many, encoder=str(encoder), max_tokens=32, name="many")
    train = loader(folder, make_recipe(encoder, **SPEX, categories_per_piece=3))
    gold = load_tokenizer(str(encoder)).encode(["opinion number 0"])[0].ids
    for i in range(4):
        for batch in train.step(i).batches:
            assert isinstance(batch, PointerBatch)
            assert batch.source_B.tolist() == [3 * len(gold) + 2] * len(batch.source_B)
            assert (batch.gold_B2 != NOWHERE).all()


def test_a_window_s_best_span_counts_wherever_it_lies(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Amid what its neighbour answers for, too: here the first token of the last window is the best."""
    score = count(100)
    monkeypatch.setattr(pointing, "best", lambda logits_n2: (0, 0, float(next(score))))
    [[answer]] = Predictor.load(trained).predict(["slept " * 70], task="qa", categories=["who?"])
    assert next(score) > 101 and answer.start > 0  # type: ignore[union-attr]


def test_a_window_leaves_room_for_its_question_and_for_unanswerable(trained: Path) -> None:
    """64 positions: [CLS] text unanswerable [SEP] train [SEP] place [SEP], and one that stays free."""
    predictor = Predictor.load(trained)
    predictor.model.shape = dataclasses.replace(predictor.model.shape, max_tokens=64)
    [asked] = questions(["slept " * 70], task="qa", categories=["place"], instruction="train")
    encoding, _ = predictor.first_window(asked, 0.0)
    assert len(encoding.ids) == 64 - 8


def test_predictions_come_in_order_whatever_their_batches(trained: Path) -> None:
    predictor = Predictor.load(trained)
    texts = [record.text + " and slept" * (i % 4) for i, record in enumerate(corpora()["spex_classification"])]
    asked: dict[str, Any] = {"task": "classification", "categories": PLACES[:2]}
    together = predictor.predict(texts, **asked)
    for text, found in zip(texts, together, strict=True):
        [[alone]] = predictor.predict([text], **asked)
        assert alone.category == found[0].category  # type: ignore[union-attr]
        assert alone.score == pytest.approx(found[0].score, abs=1e-4)  # type: ignore[union-attr]


def test_tasks_that_are_no_one_span_are_refused(root: Path, encoder: Path, trained: Path) -> None:
    predictor = Predictor.load(trained)
    with pytest.raises(UserError, match="a SpEx-BERT, which points at one choice or answer: it can't do task ner"):
        predictor.predict(["Ada slept"], task="ner", categories=["person"])
    folder = handmade.make_shards(
        root, {"people": [ner(i) for i in range(4)]}, encoder=str(encoder), max_tokens=32, name="people"
    )
    with pytest.raises(
        UserError, match="task ner, which none of the objectives spexbert trains on; give structure a"
    ):
        loader(folder, make_recipe(encoder, **SPEX))
    with pytest.raises(
        UserError, match="which has no structure table; train one with structure instead of spexbert"
    ):
        export(UbertModel.load(trained), root / "model.onnx")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"objectives": {"structure": 0.5, "spexbert": 0.5}},
            "two models of the same records; choose one",
        ),
        ({"layout": "stacked"} | SPEX, "layout and loss configure the structure table"),
        ({"loss": "zlpr"} | SPEX, "layout and loss configure the structure table"),
    ],
)
def test_recipes_that_contradict_themselves_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        make_recipe(Path("unused"), **changed)
