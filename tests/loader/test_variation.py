"""Varied prompts: a text's gold categories are always asked for, and every draw is a function of its key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import ENCODER, make_shards, ner, record, sentiment
from hypothesis import given, settings
from hypothesis import strategies as st
from test_loader import SPECIAL, recipe, same

from pipelines.specs import paraphrases
from ubert.inference.questions import INSTRUCTIONS
from ubert.loader.loader import Loader
from ubert.loader.shards import Shards, open_shards
from ubert.loader.variation import Varied, vary
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.record import Category
from ubert.schema.specs.recipe import Prompting
from ubert.structure.batch import Batch

OTHERS = {"person": ["human being", "somebody"], "the ner of a text": ["who and where"], "nobody": ["no one"]}
CORPORA = {"people": [ner(i, i % 5) for i in range(60)], "reviews": [sentiment(i, 6) for i in range(60)]}
TOKENIZER = load_tokenizer(ENCODER)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_shards(make_shards(tmp_path_factory.mktemp("store"), CORPORA, paraphrases=OTHERS))


def row_of(shards: Shards, record_id: str) -> int:
    return next(row for row in range(len(shards)) if shards.record_id(row) == record_id)


def varied(
    shards: Shards, record_id: str, *key: int, share: float = 0.5, scale: bool = False, **prompting: Any
) -> Varied:
    row = row_of(shards, record_id)
    file, i = shards.find(row)
    example = shards.example(row)
    gold = np.union1d(example.gold_anchors, example.gold_cells[:, 0])
    asked = shards.prompt(int(file.prompt[i]))._replace(scale=scale)
    return vary(asked, gold, 8, Prompting(**prompting), shards.words, shards.others, share, *key)


def words(ids: Any) -> str:
    return TOKENIZER.words(ids)


@settings(deadline=None)
@given(
    number=st.integers(0, 59),
    share=st.floats(0, 0.999),
    drop=st.floats(0, 0.999),
    shuffle=st.booleans(),
    key=st.integers(0, 2**32),
)
def test_what_a_text_has_is_asked_for(
    shards: Shards, number: int, share: float, drop: float, shuffle: bool, key: int
) -> None:
    found = varied(shards, f"reviews/train/{number}", key, share=share, drop=drop, shuffle=shuffle)
    chosen = found.chosen.tolist()
    assert number % 6 in chosen
    assert len(set(chosen)) == len(chosen) >= 2  # with the right one alone, every text would say yes
    assert shuffle or chosen == sorted(chosen)
    again = varied(shards, f"reviews/train/{number}", key, share=share, drop=drop, shuffle=shuffle)
    assert again.chosen.tolist() == chosen


def test_categories_that_a_text_lacks_come_and_go(shards: Shards) -> None:
    seen = Counter(
        tuple(varied(shards, "people/train/0", key, share=0.5, drop=0.8).chosen.tolist()) for key in range(300)
    )
    assert seen.keys() == {(0, 1), (0, 1, 2)}  # it has a person and a place, and no firm
    assert 90 < seen[0, 1] < 150  # four in ten are 120
    kept = [len(varied(shards, "reviews/train/0", key, share=0.5, drop=0.8).chosen) for key in range(20)]
    assert kept == [4] * 20  # of five others two are left out


def test_shuffled_categories_come_in_every_order(shards: Shards) -> None:
    orders = {tuple(varied(shards, "people/train/0", key, shuffle=True).chosen.tolist()) for key in range(100)}
    assert len(orders) == 6


def test_the_numbers_of_a_scale_are_all_there_and_in_order(shards: Shards) -> None:
    for key in range(20):
        found = varied(shards, "reviews/train/0", key, share=0.9, scale=True, shuffle=True, drop=0.9)
        assert found.chosen.tolist() == [0, 1, 2, 3, 4, 5]


def test_names_and_instructions_come_in_other_words(shards: Shards) -> None:
    found = [varied(shards, "people/train/0", key, rename=0.6) for key in range(300)]
    names = Counter(words(one.categories[0]) for one in found)
    assert names.keys() == {"person", "human being", "somebody"}
    assert 80 < names["person"] < 160  # four in ten are 120
    assert min(names["human being"], names["somebody"]) > 50  # three in ten are 90
    assert {words(one.categories[1]) for one in found} == {"place"}  # nothing else is said for it
    asked = {words(one.instruction) for one in found}
    assert asked == {"the ner of a text", "who and where", INSTRUCTIONS["ner"]}


def test_no_two_categories_come_in_the_same_words(tmp_path: Path) -> None:
    alike = {"person": ["place", "thing"], "place": ["thing", "somewhere"]}
    made = open_shards(make_shards(tmp_path, {"people": [ner(0)]}, paraphrases=alike))
    found = [varied(made, "people/train/0", key, rename=0.8) for key in range(100)]
    names = [tuple(map(words, one.categories)) for one in found]
    assert all(len(set(each)) == len(each) for each in names)
    assert {("thing", "somewhere"), ("person", "thing")} <= {each[:2] for each in names}


@pytest.mark.parametrize("tokens", [1024, 96])  # many rows in a batch, or one
def test_a_loader_of_varied_prompts_asks_for_what_its_rows_have(shards: Shards, tokens: int) -> None:
    budget = {"epochs": 1, "tokens_per_batch": tokens, "tokens_per_step": tokens // 2}
    changes = {**budget, "prompts": {"shuffle": True, "drop": 0.9, "rename": 0.5}}
    plain = Loader(shards, recipe(**budget), SPECIAL, 512)
    vary = Loader(shards, recipe(**changes), SPECIAL, 512)
    gold, tables = [], []
    for loader in (plain, vary):
        batches = [batch for i in range(loader.total_steps) for batch in loader.step(i).batches]
        assert all(isinstance(batch, Batch) for batch in batches)
        gold.append(sum(int(b.gold_anchor_T.sum()) + len(b.gold_cells_G3) for b in batches))  # type: ignore[union-attr]
        tables.append(sum(len(b.piece_T) for b in batches))  # type: ignore[union-attr]
    assert gold[0] == gold[1] and tables[1] < tables[0]
    one, other = (
        vary.step(1).batches[0],
        Loader(shards, recipe(**changes), SPECIAL, 512).step(1).batches[0],
    )
    assert isinstance(one, Batch) and isinstance(other, Batch) and same(one, other)


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_a_text_without_room_for_a_longer_paraphrase_keeps_the_original_words(tmp_path: Path, layout: str) -> None:
    """The encoder has positions for one token more than the original words need."""
    people = {"people": [ner(0), ner(1, 20)]}
    longer = {"person": ["any human being whom the text calls by name"]}
    made = open_shards(make_shards(tmp_path, people, paraphrases=longer))

    def sequences(most_tokens: int, rename: float) -> tuple[list[list[int]], list[list[int]]]:
        """Return the sequences of the short text, and of the long one."""
        changes = {"layout": layout, "categories_per_piece": 1, "prompts": {"shuffle": True, "rename": rename}}
        loader = Loader(made, recipe(epochs=1, **changes), SPECIAL, most_tokens)
        batches = [batch for i in range(loader.total_steps) for batch in loader.step(i).batches]
        found = [ids[ids != SPECIAL.pad].tolist() for batch in batches for ids in batch.ids_BL]  # type: ignore[union-attr]
        return [ids for ids in found if len(ids) < 50], [ids for ids in found if len(ids) >= 50]

    short, long = sequences(512, 0.0)
    assert len(short) == len(long) == 2  # one for each category that it has
    renamed, kept = sequences(max(map(len, long)) + 1, 1.0)
    assert kept == long
    named = [["human being" in words(np.array(ids)) for ids in of_text] for of_text in (short, renamed)]
    assert [sum(of_text) for of_text in named] == [0, 1]


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_a_gold_cell_stays_with_its_category_in_any_order(shards: Shards, layout: str) -> None:
    loader = Loader(shards, recipe(epochs=1, layout=layout, prompts={"shuffle": True}), SPECIAL, 512)
    kinds = {0: "person", 1: "place", 2: "firm"}
    seen = 0
    for i in range(loader.total_steps):
        for batch in loader.step(i).batches:
            assert isinstance(batch, Batch)
            for table, *_ in batch.gold_cells_G3.tolist():
                ids = batch.ids_BL[int(batch.piece_T[table])]
                at = int(batch.anchor_T[table]) or ids.tolist().index(SPECIAL.sep) + 1  # stacked: after the task
                name = words(ids[at : at + 1].numpy())
                assert name == kinds[int(batch.category_T[table])]
                seen += 1
    assert seen == 120


@pytest.mark.parametrize(
    ("record_id", "gold", "most", "drop", "expected"),
    [
        ("reviews/train/0", [0], 3, 0.0, 3),
        ("reviews/train/0", [0, 2, 4, 5], 3, 0.0, 4),
        ("reviews/train/0", [1], 8, 0.999, 2),
        ("reviews/train/0", [], 8, 0.999, 2),
        ("people/train/0", [], 8, 0.999, 1),
        ("people/train/0", [0, 1], 1, 0.0, 2),
    ],
)
def test_a_prompt_has_what_the_text_has_and_no_more_than_is_allowed(
    shards: Shards, record_id: str, gold: list[int], most: int, drop: float, expected: int
) -> None:
    """A text without any is asked for one category, and of labels for two."""
    file, i = shards.find(row_of(shards, record_id))
    asked, mine = shards.prompt(int(file.prompt[i])), np.array(gold, np.int32)
    for key in range(20):
        found = vary(asked, mine, most, Prompting(drop=drop), shards.words, shards.others, 0.999, key)
        assert len(found.chosen) == expected and {*gold} <= {*found.chosen.tolist()}


def test_each_pack_draws_how_much_it_leaves_out(tmp_path: Path) -> None:
    """Its texts have as many categories, but for the rounding. Packs of one step number differ in each epoch."""
    made = open_shards(make_shards(tmp_path, {"reviews": [sentiment(5 * i, 20) for i in range(60)]}))
    changes = {"categories_per_piece": 20, "packs_per_batch": 1, "prompts": {"drop": 0.9}}
    loader = Loader(made, recipe(**changes), SPECIAL, 512)
    kept = []
    for i in range(loader.total_steps):
        counts = [
            count
            for batch in loader.step(i).batches
            if isinstance(batch, Batch)
            for count in np.bincount(batch.example_B[batch.piece_T].numpy()).tolist()
        ]
        assert max(counts) - min(counts) <= 1
        kept.append(max(counts))
    assert len(kept) >= 10 and len(set(kept)) > 4


def test_each_copy_of_a_text_has_a_prompt_of_its_own(tmp_path: Path) -> None:
    """Eight in an epoch, of 720 orders."""
    one = {"reviews": [sentiment(0, 6)]}
    made = open_shards(make_shards(tmp_path, one, copies={"reviews/train/0": 8}))
    loader = Loader(made, recipe(prompts={"shuffle": True}), SPECIAL, 512)
    batches = [batch for i in range(loader.total_steps) for batch in loader.step(i).batches]
    orders = [tuple(order) for batch in batches for order in batch.category_T.view(-1, 6).tolist()]  # type: ignore[union-attr]
    assert len(orders) == 16 and len(set(orders)) > 12


def test_the_numbers_of_a_regression_are_asked_for_in_order(tmp_path: Path) -> None:
    stars = [record("stars", i, "regression", f"Film number {i} was good", []) for i in range(20)]
    for i, one in enumerate(stars):
        one.categories, one.value = tuple(Category(str(n), "value") for n in range(5)), float(i % 5)
    made = open_shards(make_shards(tmp_path, {"stars": stars}))
    loader = Loader(made, recipe(epochs=1, prompts={"shuffle": True, "drop": 0.9}), SPECIAL, 512)
    batches = [batch for i in range(loader.total_steps) for batch in loader.step(i).batches]
    assert [n for batch in batches for n in batch.category_T.tolist()] == [*range(5)] * 20  # type: ignore[union-attr]


def test_paraphrases_are_read_beside_the_specs(tmp_path: Path) -> None:
    assert paraphrases(tmp_path) == {}
    (tmp_path / "paraphrases.yaml").write_text("person: [human being]\n")
    assert paraphrases(tmp_path) == {"person": ["human being"]}
    (tmp_path / "paraphrases.yaml").write_text("person: human being\n")
    with pytest.raises(UserError, match=r"paraphrases.yaml: person: .*list"):
        paraphrases(tmp_path)
