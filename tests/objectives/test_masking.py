"""SpanBERT's masks: statistics of 10,000 of them against closed forms, and examples by hand."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ubert.encoder.ragged import Ids
from ubert.schema.keys import draws, keys, uniform
from ubert.schema.specs.recipe import Masking
from ubert.spanbert.masking import MAX_WORDS, Masked, P, Words, boundaries, masked, spans

MASK, VOCABULARY = 4, 1000
WORDS = Words(MASK, np.arange(VOCABULARY) % 3 > 0)  # every third id continues a word
POOL = np.arange(10, VOCABULARY, dtype=np.int32)
TEXT = (keys(np.arange(200), 1) % np.uint64(VOCABULARY - 10) + np.uint64(10)).astype(np.int32)


def mask(
    number: int, text: Ids = TEXT, entities: list[tuple[int, int]] | None = None, **masking: object
) -> Masked:
    return masked(text, WORDS, Masking.model_validate(masking), 7, number, pool=POOL, entities=entities or ())


def runs(positions: Ids) -> list[list[int]]:
    """Positions that follow each other."""
    found: list[list[int]] = []
    for at in positions.tolist():
        if found and found[-1][-1] + 1 == at:
            found[-1].append(at)
        else:
            found.append([at])
    return found


@pytest.mark.parametrize(("lengths", "mean", "ones"), [("truncated", 3.797, 0.224), ("clipped", 4.463, 0.2)])
def test_the_lengths_of_10000_first_spans(lengths: str, mean: float, ones: float) -> None:
    """Geometric over 1 to 10 words: the mean is the sum of k p q^(k-1) over that of p q^(k-1), or, clipped,
    (1 - q^10) / p. The first span of a mask is cut by nothing but the end of its text; such are left out."""
    words = np.ones(2000, np.bool_)
    masking = Masking.model_validate({"lengths": lengths})
    firsts = [next(spans(words, masking, draws(5, number).__next__)) for number in range(10_000)]
    inside = np.array([stop - first for first, stop in firsts if first < 2000 - MAX_WORDS])
    assert inside.mean() == pytest.approx(mean, rel=0.01)
    assert (inside == 1).mean() == pytest.approx(ones, abs=0.01)
    assert inside.min() == 1 and inside.max() == MAX_WORDS
    truncated = [P * (1 - P) ** k / (1 - (1 - P) ** MAX_WORDS) for k in range(MAX_WORDS)]
    if lengths == "truncated":
        np.testing.assert_allclose(np.bincount(inside, minlength=11)[1:] / len(inside), truncated, atol=0.011)


def test_the_budget_and_the_shares_of_10000_masks() -> None:
    """15 % of the tokens, to the token; of the spans, 80 % masked, 10 % random, 10 % kept, each as a whole."""
    seen: Counter[str] = Counter()
    random: list[int] = []
    for number in range(10_000):
        found = mask(number)
        assert len(found.positions) == ceil(0.15 * len(TEXT))
        for run in runs(found.positions):
            before, after = TEXT[run], found.ids[run]
            kinds = [
                "mask" if a == MASK else "kept" if a == b else "random" for a, b in zip(after, before, strict=True)
            ]
            if "random" in kinds:  # a random token may be the one that was there
                assert "mask" not in kinds
                seen["random"] += 1
                random += after.tolist()
            else:
                assert len(set(kinds)) == 1
                seen[kinds[0]] += 1
    assert seen["mask"] / seen.total() == pytest.approx(0.8, abs=0.01)
    assert seen["random"] / seen.total() == pytest.approx(0.1, abs=0.01)
    assert len(set(random)) == len(POOL)  # drawn for each token alone


def test_what_is_not_masked_stays_and_what_is_becomes_the_target() -> None:
    found = mask(3)
    untouched = np.setdiff1d(np.arange(len(TEXT)), found.positions)
    np.testing.assert_array_equal(found.ids[untouched], TEXT[untouched])
    np.testing.assert_array_equal(found.targets, TEXT[found.positions])


def test_an_anchor_is_any_token_so_long_words_are_hit_more() -> None:
    """A word of three pieces among words of one begins a tenth of the spans of a text of 30 tokens."""
    starts = np.ones(30, np.bool_)
    starts[[11, 12]] = False
    firsts = Counter(next(spans(starts, Masking(), draws(2, i).__next__))[0] for i in range(10_000))
    assert firsts[10] == pytest.approx(1000, rel=0.1) and not firsts[11] and not firsts[12]


def test_an_anchor_is_any_word_where_words_are_drawn() -> None:
    """There are 20 words of one piece and a word of five. With `words`, it begins 1/21 of the first spans, and
    1/20 of the second spans that find it unmasked. With `tokens` it begins a fifth, 5 of 25."""
    starts = np.ones(25, np.bool_)
    starts[11:15] = False
    for anchors, share in (("words", 1 / 21), ("tokens", 1 / 5)):
        masking = Masking.model_validate({"scheme": "word", "anchors": anchors, "share": 0.5})
        drawn = [list(islice(spans(starts, masking, draws(2, i).__next__), 2)) for i in range(10_000)]
        firsts = Counter(first for (first, _), _ in drawn)
        others = {at: count / 10_000 for at, count in firsts.items() if at != 10}
        assert firsts[10] / 10_000 == pytest.approx(share, rel=0.1)
        assert len(others) == 20 and max(others.values()) - min(others.values()) < 0.02
        seconds = [second[0] for first, second in drawn if first[0] != 10]
        expected = {"words": 1 / 20, "tokens": 5 / 24}[anchors]
        assert np.mean([at == 10 for at in seconds]) == pytest.approx(expected, rel=0.1)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=30),
    st.integers(0, 10_000),
    st.sampled_from(["span", "word", "entity"]),
    st.floats(0.01, 0.99),
)
def test_words_that_are_drawn_are_masked_whole_and_exceed_the_budget_by_less_than_one(
    pieces: list[int], number: int, scheme: str, share: float
) -> None:
    ends = np.cumsum(pieces)
    text = np.full(ends[-1], 30, np.int32)  # goes on with a word
    text[ends - pieces] = 31
    found = mask(number, text, entities=[(0, int(ends[0]) - 1)], scheme=scheme, share=share, anchors="words")
    inside = np.zeros(len(text), np.bool_)
    inside[found.positions] = True
    for word in np.split(inside, ends[:-1]):
        assert word.all() or not word.any()
    assert 0 <= len(found.positions) - ceil(share * len(text)) < max(pieces)
    again = mask(number, text, entities=[(0, int(ends[0]) - 1)], scheme=scheme, share=share, anchors="words")
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_entities_that_end_amid_words_leave_enough_to_mask() -> None:
    """Each marks the first piece of a word, and the budget is all tokens but one."""
    text = np.tile(np.array([31, 30], np.int32), 20)
    entities = [(at, at) for at in range(0, 40, 2)]
    for number in range(50):
        found = mask(number, text, entities, scheme="entity", share=0.97, anchors="words")
        assert len(found.positions) >= 39


@pytest.mark.parametrize(
    ("masking", "said"),
    [
        ({"scheme": "subword", "anchors": "words"}, "anchors: words masks whole words, and scheme: subword"),
        ({"scheme": "word", "lengths": "clipped"}, "lengths apply only to scheme: span, got word"),
    ],
)
def test_settings_that_the_scheme_has_no_use_for_are_refused(masking: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Masking.model_validate(masking)


def test_spans_begin_and_end_with_words_but_for_the_last_one() -> None:
    starts = WORDS.starts_V[TEXT]
    starts[0] = True
    for number in range(200):
        *whole, (first, stop) = spans(starts, Masking(), draws(number).__next__)
        for at in (*(at for span in whole for at in span), first):
            assert at == len(TEXT) or starts[at]
        assert stop - first <= MAX_WORDS * 3 * 4


def test_span_boundaries_by_hand() -> None:
    """Tokens 0, 1, 4, 5, 7 and 9 of ten are masked. Two spans touch an end; 4-5 and 7 are predicted."""
    positions = np.array([0, 1, 4, 5, 7, 9], np.int32)
    begins = np.array([True, False, True, False, True, True])
    boundary, at = boundaries(positions, begins, 10)
    assert boundary.tolist() == [[3, 6, 0], [3, 6, 1], [6, 8, 0]]
    assert at.tolist() == [2, 3, 4]


def test_only_the_first_15_tokens_of_a_span_are_predicted_from_its_boundaries() -> None:
    boundary, at = boundaries(np.arange(5, 25, dtype=np.int32), np.arange(20) == 0, 40)
    assert boundary.tolist() == [[4, 25, place] for place in range(15)] and at.tolist() == list(range(15))


def test_boundary_targets_are_the_tokens_that_were_there() -> None:
    for number in range(50):
        found = mask(number)
        at = found.boundary[:, 0] + 1 + found.boundary[:, 2]
        np.testing.assert_array_equal(found.boundary_targets, TEXT[at])
        assert not np.isin(found.boundary[:, :2], found.positions).any()  # they are observed
    assert not len(mask(0, boundary=False).boundary)


def test_adjacent_spans_are_one() -> None:
    """Merged spans are the runs of masked tokens: each run has one decision and one pair of boundaries."""
    for number in range(50):
        found = mask(number, share=0.5)
        pairs = {tuple(pair) for pair in found.boundary[:, :2].tolist()}
        inner = [run for run in runs(found.positions) if run[0] > 0 and run[-1] < len(TEXT) - 1]
        assert pairs == {(run[0] - 1, run[-1] + 1) for run in inner}


def test_subwords_are_masked_alone() -> None:
    lengths = [len(run) for number in range(500) for run in runs(mask(number, scheme="subword").positions)]
    assert np.mean(lengths) == pytest.approx(1 / (1 - 0.15), rel=0.02)  # runs of independent draws
    kept = Counter(
        bool(found.ids[at] == MASK)
        for number in range(500)
        for found in [mask(number, scheme="subword")]
        for at in found.positions
    )
    assert kept[True] / kept.total() == pytest.approx(0.8, abs=0.01)


def test_whole_words_are_masked_whole_and_alike() -> None:
    starts = WORDS.starts_V[TEXT]
    starts[0] = True
    words = [list(range(a, b)) for a, b in pairwise([*np.flatnonzero(starts).tolist(), len(TEXT)])]
    parts = 0
    for number in range(200):
        found = mask(number, scheme="word")
        for word in words:
            inside = np.isin(word, found.positions)
            parts += inside.any() and not inside.all()
            if inside.all() and (found.ids[word] == MASK).any():
                assert (found.ids[word] == MASK).all()
    assert parts <= 200  # where the budget ends


@pytest.mark.parametrize("scheme", ["word", "subword"])
def test_neighbours_that_are_not_one_span_are_replaced_by_draws_of_their_own(scheme: str) -> None:
    shown = [mask(number, scheme=scheme) for number in range(100)]
    shares = [(found.ids[run] == MASK).mean() for found in shown for run in runs(found.positions)]
    assert any(0 < share < 1 for share in shares)


def test_entities_are_half_of_the_spans() -> None:
    entities = [(20, 24), (60, 62), (100, 107), (150, 150)]
    words = np.ones(2000, np.bool_)
    masking = Masking(scheme="entity")
    firsts = [next(spans(words, masking, draws(9, i).__next__, entities)) for i in range(4000)]
    marked = [(first, stop - 1) in entities for first, stop in firsts]
    drawn = Counter((first, stop - 1) for first, stop in firsts)
    assert [drawn[entity] for entity in entities] == pytest.approx([500] * 4, rel=0.2)
    assert np.mean(marked) == pytest.approx(0.5, abs=0.02)
    assert {stop - first for (first, stop), mark in zip(firsts, marked, strict=True) if not mark} == {1}
    assert len(mask(0, scheme="entity").positions) == ceil(0.15 * len(TEXT))  # without any, whole words


def test_a_mask_is_a_function_of_its_key() -> None:
    assert all(np.array_equal(a, b) for a, b in zip(mask(1), mask(1), strict=True))
    assert not np.array_equal(mask(1).positions, mask(2).positions)


@settings(deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 10_000),
    st.sampled_from(["span", "subword", "word", "entity"]),
    st.floats(0.01, 0.99),
)
def test_any_text_is_masked(tokens: int, number: int, scheme: str, share: float) -> None:
    """One that is shorter than a span, too."""
    text = TEXT[:tokens]
    found = mask(number, text, entities=[(0, tokens - 1)], scheme=scheme, share=share)
    assert len(found.positions) == ceil(share * tokens)
    assert (found.boundary[:, 0] >= 0).all() and (found.boundary[:, 1] < tokens).all()
    assert len(found.ids) == tokens


def test_draws_are_uniform_and_keyed() -> None:
    drawn = uniform(np.arange(100_000), 3)
    assert drawn.mean() == pytest.approx(0.5, abs=0.005) and 0 <= drawn.min() < drawn.max() < 1
    stream = draws(3)
    assert [next(stream) for _ in range(300)] == drawn[:300].tolist()
