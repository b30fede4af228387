"""Labelled tables and masked texts in one run: the schedule of objectives and the divisor of a loss.

Workers, micro-batches and stopping change neither.
"""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import handmade
import numpy as np
import pytest
import torch
import torch.distributed as dist
from dense_tables import dense_loss
from handmade import PEOPLE, PLACES, record
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import losses, make_corpora, make_encoder, make_recipe
from waiting import HANGS
from warm import FORKS

from pipelines.models.evaluate import evaluate
from ubert.encoder import attention
from ubert.inference.windows import blocks
from ubert.loader.loader import Loader, Step
from ubert.loader.masked_texts import mentions
from ubert.loader.objective_schedule import CYCLE, ObjectiveSchedule
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import UbertModel
from ubert.schema.errors import UserError
from ubert.schema.record import Argument, Category, Event, Record, Relation, Span, Task
from ubert.schema.specs.recipe import SHARE, Recipe
from ubert.spanbert.masked_lm import MaskedBatch
from ubert.structure.batch import Batch
from ubert.training import loop
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log
from ubert.training.step import accumulate
from ubert.unilm import cloze
from ubert.unilm.cloze import ClozeBatch

MIXED = {"structure": 0.75, "spanbert": 0.25}
WRITTEN = {"seq2seq": 0.5, "unilm": 0.5}


def novel(number: int) -> Record:
    """A text of one to sixty sentences."""
    sentences = [
        f"{PEOPLE[i % len(PEOPLE)]} went to {PLACES[i % len(PLACES)]} by train and slept ."
        for i in range(1 + number)
    ]
    return record("novels", number, "text", " ".join(sentences), [])


def titled(number: int) -> Record:
    """A novel, and where it goes to first."""
    one = record("titles", number, "seq2seq", novel(number % 4).text, [])
    one.target = f"{PEOPLE[0]} to {PLACES[number % len(PLACES)]}"
    return one


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def encoder(root: Path) -> Path:
    return make_encoder(root / "encoder", dropout=0.0)


def made(root: Path, encoder: Path, *names: str) -> Path:
    own = {"novels": [novel(i) for i in range(60)], "titles": [titled(i) for i in range(30)]}
    corpora = make_corpora() | own
    chosen = {name: corpora[name] for name in names}
    return handmade.make_shards(root, chosen, encoder=str(encoder), max_tokens=32, name="-".join(names))


@pytest.fixture(scope="module")
def shards(root: Path, encoder: Path) -> Path:
    return made(root, encoder, "people", "reviews", "novels")


@pytest.fixture(scope="module")
def written(root: Path, encoder: Path) -> Path:
    return made(root, encoder, "titles", "novels")


def recipe(encoder: Path, **changed: Any) -> Recipe:
    return make_recipe(encoder, **{"objectives": MIXED, "seed": 3, "checkpoint_every": 100} | changed)


def loader(shards: Path, recipe: Recipe, rank: int = 0, world: int = 1) -> Loader:
    tokenizer = load_tokenizer(recipe.encoder)
    return Loader(open_shards(shards), recipe, tokenizer.special, 64, rank, world, words=tokenizer.for_masking())


@pytest.mark.parametrize(
    "shares", [{"structure": 0.7, "spanbert": 0.2}, {"spanbert": 0.9}, {"structure": 1, "spanbert": 1}]
)
def test_shares_that_do_not_sum_to_1_are_refused(encoder: Path, shares: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="expected shares of batches that sum to 1"):
        recipe(encoder, objectives=shares)


def test_unknown_objectives_are_refused(encoder: Path) -> None:
    for wrong in ({"spambert": 1.0}, {"structure": 1.5, "spanbert": -0.5}, {}):
        with pytest.raises(ValidationError):
            recipe(encoder, objectives=wrong)


@given(st.integers(1, 999), st.integers(0, 3 * CYCLE))
def test_no_objective_is_a_step_away_from_its_share(mille: int, step: int) -> None:
    turns = ObjectiveSchedule({"structure": 1 - mille / 1000, "spanbert": mille / 1000})
    name, before = turns(step)
    share = turns.counts[name] / CYCLE
    assert abs(before - share * step) <= 1
    assert share == pytest.approx({"structure": 1 - mille / 1000, "spanbert": mille / 1000}[name], abs=1e-3)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-5, 1), min_size=1, max_size=5), st.floats(1 - SHARE, 1 + SHARE))
@example([0.501, 0.5], 1.001)
@example([0.4995, 0.5], 0.9995)
@example([0.9995, 0.0004, 0.0001], 1.0)
@example([0.9996, 0.0001, 0.0001, 0.0001, 0.0001], 1.0)
def test_turns_of_any_shares_fill_the_cycle_and_have_no_gap(parts: list[float], total: float) -> None:
    """Shares that sum to about 1. An objective that is raised to a turn takes it from the others."""
    names = ("structure", "spexbert", "spanbert", "unilm", "seq2seq")
    shares = {name: part * total / sum(parts) for name, part in zip(names, parts, strict=False)}
    turns = ObjectiveSchedule(shares)  # type: ignore[arg-type]
    assert sum(turns.counts.values()) == CYCLE and min(turns.counts.values()) >= 1
    seen: Counter[str] = Counter()
    for step in range(5 * CYCLE // 2):
        name, before = turns(step)
        assert before == seen[name]
        seen[name] += 1
    raised = sum(part / sum(parts) * CYCLE < 1 for part in parts)
    for part, count in zip(parts, turns.counts.values(), strict=True):
        exact = part / sum(parts) * CYCLE
        assert count == 1 if exact < 1 else abs(count - exact) <= 1 + raised


@given(st.integers(1, CYCLE - 1), st.integers(1, 10 * CYCLE))
def test_an_objective_has_its_turns_in_no_more_steps_than_its_share_takes(mille: int, wanted: int) -> None:
    turns = ObjectiveSchedule({"structure": 1 - mille / CYCLE, "spanbert": mille / CYCLE})
    steps = turns.until("spanbert", wanted)
    assert (steps - 1) * mille < wanted * CYCLE <= steps * mille


@given(st.integers(1, 500), st.integers(8, 64))
def test_blocks_cover_a_text_without_overlap(tokens: int, most: int) -> None:
    cut = blocks(tokens, most)
    assert [at.start for at in cut] == [0, *(at.stop for at in cut[:-1])] and cut[-1].stop == tokens
    sizes = [at.stop - at.start for at in cut]
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1 and len(cut) == -(-tokens // most)


def test_texts_become_blocks_of_one_record_each(shards: Path) -> None:
    opened = open_shards(shards)
    tokenizer = load_tokenizer(opened.manifest.encoder)
    [aligned] = [one for one in opened.manifest.alignment if one.corpus == "novels"]
    texts = [tokenizer.encode([novel(i).text])[0].ids for i in range(60)]
    assert aligned.tokens == sum(map(len, texts)) and not aligned.cut
    rows = [i for i in range(len(opened)) if opened.record_id(i) == "novels/train/59"]
    joined = np.concatenate([opened.example(i).text for i in rows])
    np.testing.assert_array_equal(joined, texts[59])


def test_each_step_is_of_one_objective_in_its_share(shards: Path, encoder: Path) -> None:
    train = loader(shards, recipe(encoder))
    kinds = {"structure": Batch, "spanbert": MaskedBatch}
    steps = [train.step(i) for i in range(40)]
    assert Counter(step.objective for step in steps) == {"structure": 30, "spanbert": 10}
    for step in steps:
        assert all(isinstance(batch, kinds[step.objective]) for batch in step.batches)
        assert {id.startswith("novels") for id in step.records} == {step.objective == "spanbert"}


@pytest.mark.parametrize("names", [("structure", "spanbert"), ("spanbert", "structure")])
def test_an_epoch_is_one_pass_over_the_labelled_records(
    shards: Path, encoder: Path, names: tuple[str, ...]
) -> None:
    """Whichever objective the recipe names first."""
    shares = {name: {"structure": 0.4, "spanbert": 0.6}[name] for name in names}
    train = loader(shards, recipe(encoder, objectives=shares, steps=None, epochs=2))
    labelled, texts = train.plans["structure"].steps, train.plans["spanbert"].steps
    assert train.steps_per_epoch == -(-5 * labelled // 2) != -(-5 * texts // 3)
    assert train.total_steps == 2 * train.steps_per_epoch


@pytest.mark.parametrize("objective", ["spanbert", "unilm"])
def test_copies_of_a_text_are_masked_each_in_its_own_way(root: Path, encoder: Path, objective: str) -> None:
    """Within one epoch, and in the same way when a run resumes there."""
    one = novel(1)
    folder = handmade.make_shards(
        root, {"novels": [one]}, copies={one.record_id: 8}, encoder=str(encoder), max_tokens=32, name="copied"
    )
    found = []
    for _ in range(2):
        train = loader(folder, recipe(encoder, objectives={objective: 1.0}))
        batches = [batch for i in range(train.steps_per_epoch) for batch in train.step(i).batches]
        found.append([tuple(row[row > 0].tolist()) for batch in batches for row in batch.ids_BL])
    assert found[0] == found[1]
    assert len(found[0]) == 8 and len(set(found[0])) > 4


def sized(kind: str) -> list[Record]:
    """Make texts of several lengths. Titles and pairs have a second text."""
    if kind == "novels":
        return [novel(i) for i in range(12)]
    if kind == "titles":
        records = [titled(i) for i in range(12)]
    else:
        records = [record("pairs", i, "pair", novel(i % 3).text, ["train", "good"], labels=[0]) for i in range(12)]
    for one in records:
        one.pair = "good opinion"
        one.target = "Oslo by train" if kind == "titles" else None
    return records


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("novels", {"objectives": {"spanbert": 1.0}}),
        ("novels", {"objectives": {"unilm": 1.0}}),
        ("pairs", {"objectives": {"unilm": 1.0}, "masking": {"texts": "all"}}),
        ("pairs", {"objectives": {"structure": 1.0}}),
        ("titles", {"objectives": {"seq2seq": 1.0}}),
        ("titles", {"objectives": {"seq2seq": 1.0}, "pseudo_masks": True}),
    ],
)
def test_the_least_budget_is_the_longest_sequence(
    root: Path, encoder: Path, kind: str, changed: dict[str, Any]
) -> None:
    """As the error says. A token less is too few, and no batch has more."""
    folder = handmade.make_shards(
        root, {kind: sized(kind)}, encoder=str(encoder), max_tokens=32, name=f"sized-{kind}"
    )
    with pytest.raises(UserError, match="tokens_per_batch is 1, but record") as error:
        loader(folder, recipe(encoder, tokens_per_batch=1, **changed))
    [least] = map(int, re.findall(r"takes up to (\d+) \(1 sequences", str(error.value)))
    chosen = recipe(encoder, tokens_per_batch=8 * least, packs_per_batch=1, tokens_per_step=least, **changed)
    train = loader(folder, chosen)
    batches = [batch for i in range(9 * train.steps_per_epoch) for batch in train.step(i).batches]
    assert max(batch.ids_BL.numel() for batch in batches) == least
    with pytest.raises(UserError, match=f"tokens_per_step is {least - 1}, but record"):
        loader(folder, chosen.model_copy(update={"tokens_per_step": least - 1}))


@pytest.mark.parametrize(
    ("kind", "changed", "beside"),
    [
        ("novels", {"objectives": {"spanbert": 1.0}}, 2),
        ("pairs", {"objectives": {"unilm": 1.0}, "masking": {"texts": "all"}}, 5),
        ("titles", {"objectives": {"seq2seq": 1.0}}, 15),
    ],
)
def test_a_text_beyond_the_encoder_is_named_with_what_stands_beside_it(
    root: Path, encoder: Path, kind: str, changed: dict[str, Any], beside: int
) -> None:
    """A second text of two tokens, an instruction of five, a target of three, and special tokens."""
    folder = handmade.make_shards(
        root, {kind: sized(kind)}, encoder=str(encoder), max_tokens=32, name=f"sized-{kind}"
    )
    opened, tokenizer = open_shards(folder), load_tokenizer(str(encoder))
    texts = [(len(opened.example(row).text), opened.record_id(row)) for row in range(len(opened))]
    longest = max(texts)[0]
    given = opened, recipe(encoder, **changed), tokenizer.special
    Loader(*given, longest + beside, words=tokenizer.for_masking())
    said = rf"record (\S+): a text of {longest} tokens and {beside} others don't .* lower by 1$"
    with pytest.raises(UserError, match=said) as error:
        Loader(*given, longest + beside - 1, words=tokenizer.for_masking())
    [named] = re.findall(said, str(error.value))
    assert (longest, named) in texts and (longest, named) != texts[0]


def test_every_text_comes_once_in_an_epoch_of_its_objective(shards: Path, encoder: Path) -> None:
    train = loader(shards, recipe(encoder, steps=400))
    turns = train.plans["spanbert"].steps
    mine = [step for step in (train.step(i) for i in range(4 * turns + 4)) if step.objective == "spanbert"][:turns]
    rows = Counter(row for step in mine for row in step.rows)
    assert set(rows.values()) == {1}
    assert len(rows) == next(one.rows for one in open_shards(shards).manifest.alignment if one.corpus == "novels")


def masked_rows(step: Step) -> list[tuple[list[int], list[int]]]:
    """Each text of a step as the model sees it, with its targets and their positions. Texts that differ only in
    masked words look alike."""
    found = []
    for batch in step.batches:
        assert isinstance(batch, MaskedBatch)
        width = batch.ids_BL.shape[1]
        for text in range(len(batch.ids_BL)):
            mine = batch.position_M // width == text
            at = (batch.position_M[mine] % width).tolist() + batch.target_M[mine].tolist()
            found.append((batch.ids_BL[text][batch.mask_BL[text]].tolist(), at))
    return found


@pytest.mark.parametrize("world", [2, 4])
def test_every_world_has_the_same_batches_and_masks(shards: Path, encoder: Path, world: int) -> None:
    chosen = recipe(encoder, tokens_per_batch=1024)
    alone = loader(shards, chosen)
    ranks = [loader(shards, chosen, rank, world) for rank in range(world)]
    for i in range(12):
        step, parts = alone.step(i), [rank.step(i) for rank in ranks]
        assert {part.objective for part in parts} == {step.objective}
        assert sorted(step.rows) == sorted(row for part in parts for row in part.rows)
        if step.objective == "spanbert":
            assert sorted(row for part in parts for row in masked_rows(part)) == sorted(masked_rows(step))


def test_masks_are_drawn_anew_each_epoch_and_again_the_same(shards: Path, encoder: Path) -> None:
    only = recipe(encoder, objectives={"spanbert": 1.0}, masking={"texts": "all"})
    train = loader(shards, only)
    seen: list[dict[int, tuple[Any, ...]]] = []
    for epoch in (0, 1):
        found: dict[int, tuple[Any, ...]] = {}
        for i in range(epoch * train.steps_per_epoch, (epoch + 1) * train.steps_per_epoch):
            step = train.step(i)
            assert masked_rows(step) == masked_rows(train.step(i))
            if len(step.rows) == len(masked_rows(step)):
                found |= dict(zip(step.rows, masked_rows(step), strict=True))
        seen.append(found)
    both = seen[0].keys() & seen[1].keys()
    assert len(both) > 20
    assert np.mean([seen[0][row] == seen[1][row] for row in both]) < 0.3


def test_all_texts_may_be_masked_with_the_corpus_own_entities(root: Path, encoder: Path) -> None:
    """In "... went to <place> ...", half of the drawn spans are the mentions."""
    of_people = made(root, encoder, "people")
    masking = {"scheme": "entity", "texts": "all", "share": 0.05}
    train = loader(of_people, recipe(encoder, objectives={"spanbert": 1.0}, masking=masking))
    names = {name for words in (*PEOPLE, *PLACES) for name in words.split()}
    tokens = load_tokenizer(str(encoder)).tokens
    targets = [
        token
        for i in range(40)
        for batch in train.step(i).batches
        if isinstance(batch, MaskedBatch)
        for token in tokens(batch.target_M.numpy().astype(np.int32))
    ]
    assert 0.5 < np.mean([token in names or token == "[UNK]" for token in targets]) < 0.95


@pytest.mark.parametrize("replacements", ["corpus", "vocabulary"])
def test_random_tokens_are_those_of_the_corpus_or_any(root: Path, encoder: Path, replacements: str) -> None:
    """Tokens of the corpus are as frequent as there. Otherwise all ids are equally likely, even unused ones."""
    folder, masking = made(root, encoder, "novels"), {"replacements": replacements, "share": 0.5}
    train = loader(folder, recipe(encoder, objectives={"spanbert": 1.0}, masking=masking))
    words = load_tokenizer(str(encoder)).for_masking()
    random: Counter[int] = Counter()
    for batch in (batch for i in range(300) for batch in train.step(i).batches):
        assert isinstance(batch, MaskedBatch)
        seen = batch.ids_BL.flatten()[batch.position_M]
        random.update(seen[(seen != words.mask) & (seen != batch.target_M)].tolist())
    texts = Counter(np.concatenate([file.text.values for file in open_shards(folder).files]).tolist())
    assert random.total() > 1000
    if replacements == "corpus":
        assert random.keys() <= texts.keys()
        assert random[texts.most_common(1)[0][0]] > 2 * random.total() / len(texts)
    else:
        assert len(random) > 0.9 * len(words.starts_V) and not random.keys() <= texts.keys()
        assert max(random.values()) < 2 * random.total() / len(words.starts_V)


def linked(task: Task) -> Record:
    """Three mentions with links between them."""
    names = {
        "relation": [("person", "entity"), ("place", "entity"), ("went to", "relation")],
        "coref": [],
        "ner": [("person", "entity"), ("place", "entity"), ("parts of the same mention", "relation")],
    }
    spans = [Span(0, 3), Span(12, 17), Span(21, 26)]
    one = record("linked", 0, task, "Max went to Paris by train", [], spans=spans)
    one.categories = tuple(Category(*of) for of in names[task])  # type: ignore[arg-type]
    for span, category in zip(spans, (0, 1, 1), strict=True):
        span.category = None if task == "coref" else category
        span.group = None if task == "relation" else 0
    if task == "relation":
        one.relations = [Relation(0, 1, 2), Relation(2, 1, 2)]
    return one


@pytest.mark.parametrize("task", ["relation", "coref", "ner"])
def test_entities_are_mentions_and_no_links_of_them(root: Path, encoder: Path, task: Task) -> None:
    folder = handmade.make_shards(root, {"linked": [linked(task)]}, encoder=str(encoder), max_tokens=32, name=task)
    example = open_shards(folder).example(0)
    assert len(example.gold_cells) > 3
    assert mentions(example.gold_cells, example.regions) == [(0, 0), (3, 3), (5, 5)]


def test_the_text_of_events_is_masked_once(root: Path, encoder: Path) -> None:
    """Not once more for each event whose arguments are asked for."""
    one = record(
        "events", 0, "event", "Max went to Paris and slept", [], spans=[Span(0, 3), Span(4, 8), Span(22, 27)]
    )
    categories = [Category("went", "event"), Category("slept", "event")]
    categories += [Category("person", "role", event=event) for event in ("went", "slept")]
    one.categories = tuple(categories)
    one.events = [Event(0, 1, [Argument(2, span=0)]), Event(1, 2, [Argument(3, span=0)])]
    folder = handmade.make_shards(root, {"events": [one]}, encoder=str(encoder), max_tokens=32, name="events")
    assert len(open_shards(folder)) == 3
    for objective in ("spanbert", "unilm"):
        train = loader(folder, recipe(encoder, objectives={objective: 1.0}, masking={"texts": "all"}))
        assert train.steps_per_epoch == 1 and train.step(0).rows == [0]


def test_entities_of_texts_without_any_are_refused(root: Path, shards: Path, encoder: Path) -> None:
    """Also where other texts, which are not masked, have some."""
    for folder, objectives, texts in (
        (made(root, encoder, "novels"), {"spanbert": 1.0}, "all"),
        (shards, MIXED, "unlabelled"),
    ):
        chosen = recipe(encoder, objectives=objectives, masking={"scheme": "entity", "texts": texts})
        with pytest.raises(UserError, match=r"masking\.scheme is entity, but no masked text of the mixture"):
            loader(folder, chosen)


def test_records_without_an_objective_are_refused_whatever_ran_before(root: Path, encoder: Path) -> None:
    """Be they of one phase alone."""
    corpora = {"people": make_corpora()["people"], "novels": [novel(i) for i in range(5)]}
    copies = {one.record_id: (1, 0) if one.task == "ner" else (0, 1) for of in corpora.values() for one in of}
    folder = handmade.make_shards(root, corpora, copies=copies, encoder=str(encoder), max_tokens=32, name="phases")
    loader(folder, recipe(encoder))
    with pytest.raises(UserError, match=r"records of task text, which none of the objectives structure trains on"):
        loader(folder, recipe(encoder, objectives={"structure": 1.0}))


def test_the_objective_with_the_fewest_texts_limits_the_workers(root: Path, encoder: Path) -> None:
    few = [record("novels", i, "text", novel(0).text, []) for i in range(3)]
    corpora = {"people": make_corpora()["people"], "novels": few}
    folder = handmade.make_shards(root, corpora, encoder=str(encoder), max_tokens=32, name="few")
    chosen = recipe(encoder, tokens_per_batch=8192)
    steps = [loader(folder, chosen, rank, 3).step(i) for rank in range(3) for i in range(4)]
    assert [len(step.rows) for step in steps if step.objective == "spanbert"] == [1, 1, 1]
    with pytest.raises(UserError, match=r"smallest phase .* has 3 texts, fewer than the 4 workers"):
        loader(folder, chosen, 0, 4)


def test_objectives_without_records_and_records_without_an_objective_are_refused(
    root: Path, encoder: Path
) -> None:
    labelled, texts = made(root, encoder, "people"), made(root, encoder, "novels")
    with pytest.raises(
        UserError, match=r"objective spanbert has a share of the batches, but the mixture tiny has no"
    ):
        loader(labelled, recipe(encoder))
    with pytest.raises(UserError, match=r"objective structure has a share .* \(any labelled task\)"):
        loader(texts, recipe(encoder))
    for wrong, objective in ((texts, "structure"), (labelled, "spanbert")):
        with pytest.raises(UserError, match=r"which none of the objectives .* trains on; give"):
            loader(wrong, recipe(encoder, objectives={objective: 1.0}))


HEAD = {"structure": "table", "spanbert": "masked", "unilm": "masked", "seq2seq": "masked"}


@pytest.mark.parametrize(
    ("of", "changed"),
    [
        ("shards", {"objectives": MIXED}),
        ("written", {"objectives": WRITTEN}),
        ("written", {"objectives": WRITTEN, "pseudo_masks": True}),
    ],
)
def test_the_losses_are_sums_divided_once(
    of: str, changed: dict[str, Any], root: Path, encoder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In whole batches or small ones: the same loss and the same gradients, of either objective."""
    found: dict[tuple[str, int], Any] = {}
    for size in (8192, 80):
        chosen = recipe(encoder, tokens_per_step=size, packs_per_batch=1, table_size=8, **changed)
        folder = request.getfixturevalue(of)
        training = loop.set_up(chosen, folder, tmp_path / f"micro-{size}", loop.ALONE, resume=False)
        for i in range(8):
            step = training.loader.step(i)
            assert len(step.batches) > 1 or size == 8192 or len(step.rows) == 1
            training.optimizer.zero_grad()
            totals = accumulate(training, i, step)
            gradients = {name: p.grad for name, p in training.model.named_parameters() if p.grad is not None}
            heads = {name.split(".")[0] for name in gradients}
            assert heads == {"encoder", HEAD[step.objective]}
            found[step.objective, size] = float(totals.loss), gradients
    for objective in changed["objectives"]:
        (loss, gradients), (of_parts, parts) = (found[objective, size] for size in (8192, 80))
        assert of_parts == pytest.approx(loss, rel=1e-5)
        for name, gradient in gradients.items():
            torch.testing.assert_close(parts[name], gradient, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("of", "shares", "turns", "exact"),
    [
        ("shards", MIXED, {"structure": 3, "spanbert": 1}, 1e-9),
        ("written", WRITTEN, {"seq2seq": 2, "unilm": 2}, 1e-6),  # whose softmax is in fp32
    ],
)
def test_gradients_add_up_over_steps_of_both_objectives(
    of: str,
    shares: dict[str, float],
    turns: dict[str, int],
    exact: float,
    encoder: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Gradients of four steps in small batches equal those of one loss over dense tables and all logits.

    Labelled texts are scaled by log(1 + cells), and words by log(vocabulary).
    """
    small = {"tokens_per_step": 80, "packs_per_batch": 2, "table_size": 8}
    chosen = recipe(encoder, objectives=shares, loss_scale="log", **small)
    training = loop.set_up(chosen, request.getfixturevalue(of), tmp_path, loop.ALONE, resume=False)
    model = training.model.double()
    steps = [training.loader.step(i) for i in range(4)]
    assert Counter(step.objective for step in steps) == turns
    assert all(len(step.batches) > 1 for step in steps)
    losses = [float(accumulate(training, i, step).loss) for i, step in enumerate(steps)]
    accumulated = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    by_hand = [composed(model, step) for step in steps]
    torch.stack(by_hand).sum().backward()
    assert losses == pytest.approx([float(loss.detach()) for loss in by_hand], rel=exact)
    assert accumulated.keys() == {name for name, p in model.named_parameters() if p.grad is not None}
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(accumulated[name], p.grad, atol=exact / 10, rtol=100 * exact)


def composed(model: UbertModel, step: Step) -> torch.Tensor:
    """Return the mean loss of a text, of a hidden word, or of a masked word plus that from span boundaries.

    The latter is divided by one more than its number of words.
    """
    tables: list[torch.Tensor] = []
    words: list[torch.Tensor] = []
    for batch in step.batches:
        if isinstance(batch, ClozeBatch):
            sees = attention.mask(model.encoder, batch.rank_BL, batch.looked_BL)
            hidden_BLD = cloze.encode(model.encoder, batch.ids_BL, batch.types_BL, sees)
            logp = model.word_logits(hidden_BLD.flatten(0, 1)).log_softmax(1)[batch.hidden_H]
            told = (1 - batch.smoothing) * logp.gather(1, batch.answer_H[:, None]).sum()
            words.append(-(told + batch.smoothing * logp.mean(1).sum()))
            continue
        hidden_BLD = model.encode(batch.ids_BL, batch.mask_BL, batch.types_BL)
        if isinstance(batch, Batch):
            tables.append(dense_loss(model.table, hidden_BLD, batch, "log", "bce"))
        elif isinstance(batch, MaskedBatch) and model.masked is not None:
            rows = hidden_BLD.flatten(0, 1)
            before, after, place = batch.boundary_S3.unbind(1)
            own = model.masked.from_own(rows, model.word_vectors).log_softmax(1)[batch.position_M]
            beside = model.masked.from_boundary(rows[before], rows[after], place, model.word_vectors).log_softmax(
                1
            )
            nats = -own.gather(1, batch.target_M[:, None]), -beside.gather(1, batch.boundary_target_S[:, None])
            words.append(torch.stack([each.sum() for each in nats]))
    if step.objective == "structure":
        return torch.stack(tables).sum() / len(step.rows)
    if step.objective in WRITTEN:
        hidden = sum(len(batch.hidden_H) for batch in step.batches if isinstance(batch, ClozeBatch))
        return torch.stack(words).sum() / hidden / math.log(len(model.word_vectors))
    counts = torch.tensor([batch.counts for batch in step.batches if isinstance(batch, MaskedBatch)]).sum(0)
    nats = (torch.stack(words).sum(0) / (counts + torch.tensor([0, 1]))).sum()
    return nats / math.log(len(model.word_vectors))


def test_the_log_names_the_objective_of_each_step(root: Path, shards: Path, encoder: Path) -> None:
    run = root / "runs/logged"
    chosen = recipe(encoder, steps=4)
    loop.train(chosen, shards=shards, run=run, worker=loop.Worker(progress=False))
    made_by = loader(shards, chosen)
    assert [row.objective for row in log.read(run)[0]] == [made_by.step(i).objective for i in range(4)]
    curves = EventAccumulator(str(run / "logs")).Reload()
    steps = [[event.step for event in curves.Scalars(f"loss/{name}")] for name in MIXED]
    assert sorted(steps[0] + steps[1]) == [1, 2, 3, 4] and len(steps[1]) == 1


def test_a_run_that_is_stopped_resumes_as_if_it_was_not(root: Path, shards: Path, encoder: Path) -> None:
    """Also where its checkpoint is of before the first masked batch, and lacks its head's moments."""
    chosen = recipe(encoder, steps=5, checkpoint_every=1, keep_checkpoints=9)
    quiet = loop.Worker(progress=False)
    whole = root / "runs/whole"
    loop.train(chosen, shards=shards, run=whole, worker=quiet)
    for kept in (1, 4):
        run = root / f"runs/stopped-{kept}"
        shutil.copytree(whole, run)
        (run / "manifest.json").unlink()
        for step in range(kept + 1, 6):
            shutil.rmtree(run / f"checkpoints/step-{step:06}")
        loop.train(chosen, shards=shards, run=run, worker=quiet)
        assert losses(run) == pytest.approx(losses(whole), abs=1e-6)
        assert_equal(run, whole, 1e-6)


@pytest.mark.parametrize(("of", "shares"), [("shards", MIXED), ("written", WRITTEN)])
def test_two_workers_equal_one(
    of: str, shares: dict[str, float], encoder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chosen, shards = recipe(encoder, objectives=shares, steps=6), request.getfixturevalue(of)
    alone, both = tmp_path / "alone", tmp_path / "both"
    loop.train(chosen, shards=shards, run=alone, worker=loop.Worker(progress=False))
    store = tmp_path / "rendezvous"
    workers = [FORKS.Process(target=work, args=(chosen, shards, both, store, rank)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(HANGS)
        assert worker.exitcode == 0
    assert losses(both) == pytest.approx(losses(alone), abs=1e-4)
    assert_equal(both, alone, 1e-4)


def work(recipe: Recipe, shards: Path, run: Path, store: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    loop.train(recipe, shards=shards, run=run, worker=loop.Worker(rank, 2, progress=False))
    dist.destroy_process_group()


def assert_equal(run: Path, other: Path, tolerance: float) -> None:
    mine, theirs = (checkpoint.latest(one) for one in (run, other))
    assert mine is not None and theirs is not None and mine.name == theirs.name
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = load_file(mine / file), load_file(theirs / file)
        assert one.keys() == two.keys()
        for name, tensor in one.items():
            torch.testing.assert_close(tensor, two[name], atol=tolerance, rtol=0)


def test_perplexity_falls_with_training_and_is_the_same_again(root: Path, encoder: Path) -> None:
    texts = made(root, encoder, "novels")
    chosen = recipe(
        encoder,
        objectives={"spanbert": 1.0},
        steps=30,
        learning_rate=3e-3,
        head_learning_rate=1e-2,
        mixture="novels",
    )
    run = root / "runs/novels"
    loop.train(chosen, shards=texts, run=run, worker=loop.Worker(progress=False))
    before, after, again = (
        evaluate(run / f"checkpoints/step-{step:06}", corpus="novels", split="train", root=root)["metrics"]
        for step in (0, 30, 30)
    )
    assert after == again
    words = len(load_tokenizer(str(encoder)).for_masking().starts_V)
    assert before["perplexity"] == pytest.approx(words, rel=0.3)  # it knows nothing yet
    assert after["perplexity"] < 0.8 * before["perplexity"]


def test_a_checkpoint_without_a_head_has_no_perplexity(root: Path, encoder: Path) -> None:
    run = root / "runs/labelled"
    chosen = make_recipe(encoder, steps=1)
    loop.train(chosen, shards=made(root, encoder, "people"), run=run, worker=loop.Worker(progress=False))
    with pytest.raises(UserError, match="pretrain it with spanbert among its objectives"):
        evaluate(run / "checkpoints/step-000001", corpus="novels", split="train", root=root)


def test_marked_spans_of_a_text_are_kept_as_entities(root: Path, encoder: Path) -> None:
    one = novel(1)
    marked = record("marked", 0, "text", one.text, [], spans=[Span(0, 12), Span(21, 28)])
    folder = handmade.make_shards(root, {"marked": [marked]}, encoder=str(encoder), max_tokens=32, name="marked")
    example = open_shards(folder).example(0)
    assert example.gold_cells.tolist() == [[0, 0, 1], [0, 4, 4]]
    assert mentions(example.gold_cells, example.regions) == [(0, 1), (4, 4)]
