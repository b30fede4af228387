"""Rows of records: prompts differ if any of their words do, and annotations that no row holds are noted."""

from __future__ import annotations

import numpy as np
from handmade import ENCODER, record
from msgspec.structs import replace

from pipelines.shards.rows import LONGEST_NOTE, Rows
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.record import Category, Relation, Span

TOKENIZER = load_tokenizer(ENCODER)


def test_equal_categories_asked_by_another_instruction_are_another_prompt() -> None:
    one = record("c", 0, "classification", "a text", ["good", "bad"], labels=[0])
    others = [replace(one, instruction="mood"), replace(one, instruction="mood", text="another")]
    rows = Rows(TOKENIZER, 16)
    batch = rows.batch([one, *others, one], range(4))
    assert batch["prompt"].to_pylist() == [0, 1, 1, 0]
    assert [words.instruction for words in rows.prompts] == [one.instruction, "mood"]


def test_a_link_whose_cells_lie_in_two_windows_is_noted() -> None:
    """Windows are [0, 16) and [12, 28): the first tokens of both mentions are in one, the last in the other."""
    categories = (Category("thing", "entity"), Category("before", "relation"))
    mentions = {"apart": (10, 14), "together": (0, 5)}
    for case, firsts in mentions.items():
        spans = [Span(4 * first, 4 * (first + 4) - 1, 0) for first in firsts]
        text = record("c", 0, "relation", "the " * 28, [], spans=spans)
        rows = Rows(TOKENIZER, 16)
        batch = rows.batch([replace(text, categories=categories, relations=[Relation(0, 1, 1)])], [0])
        assert batch["window_start"].to_pylist() == [0, 12]
        notes = [(note.of, note.reason) for note in rows.notes]
        assert notes == ([("link", "in no one window")] if case == "apart" else [])
        exact, *_, links = np.sum(batch.column(batch.num_columns - 1).to_pylist(), axis=0)
        assert (exact, links) == (2, int(case == "together"))


def test_what_is_cut_or_lost_is_noted() -> None:
    text = "the \u200b" + "the " * 16
    lost = [Span(4, 5, 0), Span(len(text) - 4, len(text) - 1, 0)]
    cut = record("c", 0, "classification", text, ["thing"], labels=[0], spans=lost)
    pair = record("c", 1, "pair", "a b", ["yes"], labels=[0], pair="c " * 14 + "d")
    whole = record("c", 2, "ner", text, ["thing"], spans=lost)
    rows = Rows(TOKENIZER, 16)
    rows.batch([cut, pair, whole], range(3))
    notes = [(note.record, note.of, note.reason) for note in rows.notes]
    assert notes == [
        (0, "span", "truncated"),
        (0, "span", "truncated"),
        (0, "text", "text cut"),
        (1, "text", "pair cut"),
        (2, "span", "no token"),
    ]
    assert [note.words for note in rows.notes[2:4]] == ["the ", "d"]


def test_notes_show_the_beginning_of_what_is_cut() -> None:
    text = "the " * 200
    rows = Rows(TOKENIZER, 16)
    batch = rows.batch([record("c", 0, "classification", text, ["thing"], labels=[0])], [7])
    [note] = rows.notes
    assert batch["record"].to_pylist() == [note.record] == [7]
    assert note.words == text[4 * 16 : 4 * 16 + LONGEST_NOTE]


def test_notes_show_what_lies_before_and_behind_the_window_of_a_source() -> None:
    one = record("c", 0, "seq2seq", "the " * 20 + "Oslo " + "the " * 20, [], pair="Oslo")
    one.target = "the"
    rows = Rows(TOKENIZER, 24)  # 6 tokens for the target, and one for the pair
    batch = rows.batch([one], [0])
    assert (batch["window_start"].to_pylist(), len(batch["text_ids"][0])) == ([12], 17)
    assert [note.words for note in rows.notes] == [one.text[: 4 * 12], one.text[4 * 29 + 1 :]]
