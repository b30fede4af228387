"""Beam search and decoding with a cache."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel

from ubert.inference.generation.beam import Lexicon, Search, Text, search
from ubert.inference.generation.decoding import Cached, Uncached, decoder
from ubert.schema.errors import UserError
from ubert.unilm.cloze import learn_segments
from ubert.unilm.copying import Copier

END, MASK, VOCABULARY = 0, 3, 40


def toy(seed: int, words: int, vocabulary: int = VOCABULARY):  # type: ignore[no-untyped-def]
    """A model whose next word depends on the two before it; only `words` words and the end are ever said."""
    draw = torch.Generator().manual_seed(seed)
    table = torch.randn(vocabulary + 1, vocabulary + 1, vocabulary, generator=draw)
    table[..., words + 1 :] = -torch.inf
    logp = table.log_softmax(-1)

    def step(words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(words_Nt, (2, 0), value=vocabulary)
        return logp[padded[:, -2], padded[:, -1]]

    return step


def exhaustive(step, words: int, how: Search, may_repeat: tuple[int, ...] = ()) -> list[Text]:  # type: ignore[no-untyped-def]
    """Every text of up to `how.longest` words, scored by itself, best first."""
    found = []
    for length in range(how.longest + 1):
        for text in product(range(1, words + 1), repeat=length):
            rows = [text[i : i + how.no_repeat] for i in range(length - how.no_repeat + 1)]
            free = [row for row in rows if not set(row) & set(may_repeat)]
            if how.no_repeat and len(set(free)) < len(free):
                continue
            said = torch.tensor([text], dtype=torch.long).view(1, -1)
            steps = [step(said[:, :t], torch.zeros(1, dtype=torch.long))[0] for t in range(length + 1)]
            total = sum(float(logp[word]) for logp, word in zip(steps, [*text, END], strict=True))
            found.append(Text(list(text), total / ((5 + length + 1) / 6) ** how.length_penalty))
    return sorted(found, key=lambda text: -text.score)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize(("no_repeat", "may_repeat"), [(0, ()), (1, ()), (2, ()), (2, (1,)), (3, ())])
def test_with_as_many_beams_as_texts_it_is_exhaustive_search(
    penalty: float, no_repeat: int, may_repeat: tuple[int, ...]
) -> None:
    """Three words and texts of four: no more than 81 beams are ever open, so nothing is left out."""
    for seed in range(2):
        how = Search(81, 4, penalty, no_repeat)
        step = toy(seed, words=3, vocabulary=81)
        [found] = search(step, 1, Lexicon(END, may_repeat), how)
        expected = exhaustive(step, 3, how, may_repeat)[:81]
        assert len(found) == len(expected)
        wanted = [text.words for text in expected]
        assert [text.words for text in found][:20] == wanted[:20]
        assert [text.score for text in found] == pytest.approx([text.score for text in expected], abs=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 2), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_what_is_found_is_scored_as_it_is_and_no_better_than_the_best(
    seed: int, beams: int, penalty: float, no_repeat: int
) -> None:
    how = Search(beams, 3, penalty, no_repeat)
    step = toy(seed, words=4)
    [found] = search(step, 1, Lexicon(END), how)
    known = {tuple(text.words): text.score for text in exhaustive(step, 4, how)}
    assert 1 <= len(found) <= beams
    assert len({tuple(text.words) for text in found}) == len(found)
    assert all(above.score >= below.score for above, below in pairwise(found))
    for text in found:
        assert text.score == pytest.approx(known[tuple(text.words)], abs=1e-5)


def test_one_beam_is_greedy_where_longer_texts_are_not_better() -> None:
    step = toy(1, words=5)
    [[found]] = search(step, 1, Lexicon(END), Search(1, 20, 0.0, 0))
    said: list[int] = []
    best, total = None, 0.0
    for _ in range(20):
        logp = step(torch.tensor([said], dtype=torch.long).view(1, -1), torch.zeros(1))[0]
        if best is None or total + float(logp[END]) > best[0]:
            best = total + float(logp[END]), list(said)
        word = int(logp[1:].argmax()) + 1
        total += float(logp[word])
        said.append(word)
    assert best is not None and found.words == best[1]


def unhurried(step, words: int, how: Search) -> list[Text]:  # type: ignore[no-untyped-def]
    """Beam search that continues to the longest texts, whatever it has found."""
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    found: list[Text] = []
    for length in range(how.longest + 1):
        going: list[tuple[float, list[int]]] = []
        for total, said in beams:
            logp = step(torch.tensor([said], dtype=torch.long).view(1, -1), torch.zeros(1))[0].tolist()
            found.append(Text(said, (total + logp[END]) / ((5 + length + 1) / 6) ** how.length_penalty))
            going += [(total + logp[word], [*said, word]) for word in range(1, words + 1)]
        beams = sorted(going, key=lambda beam: -beam[0])[: how.beams]
    return sorted(found, key=lambda text: -text.score)[: how.beams]


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.floats(0, 3))
@settings(max_examples=60)
def test_a_search_that_ends_early_has_missed_nothing(seed: int, beams: int, longest: int, penalty: float) -> None:
    how = Search(beams, longest, penalty, 0)
    step = toy(seed, words=4)
    [found] = search(step, 1, Lexicon(END), how)
    assert [text.words for text in found] == [text.words for text in unhurried(step, 4, how)]


def test_a_long_text_that_wins_by_its_length_alone_is_waited_for() -> None:
    """ln 0.46 is divided by 8/6 once two words were said, and then is above ln 0.54, which 7/6 would not do."""
    logp = torch.tensor([0.54, 0.46] + [0.0] * 38).log()

    def step(words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        said = words_Nt.shape[1]
        sure = torch.full_like(logp, -torch.inf)
        sure[1 if said < 2 else END] = 0.0
        return (logp if not said else sure).expand(len(words_Nt), -1).clone()

    [[best]] = search(step, 1, Lexicon(END), Search(1, 2, 1.0, 0))
    assert best.words == [1, 1]


def test_a_search_ends_when_no_open_text_can_win() -> None:
    logp = torch.tensor([0.0, -20.0] + [-torch.inf] * 38)
    calls = []

    def step(words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        calls.append(len(words_Nt))
        return logp.expand(len(words_Nt), -1).clone()

    [found] = search(step, 1, Lexicon(END), Search(2, 50, 0.0, 0))
    assert [text.words for text in found] == [[], [1]] and len(calls) == 2


def test_sources_are_searched_as_if_alone() -> None:
    steps = [toy(seed, words=6) for seed in range(4)]
    how = Search(3, 6)
    owner = torch.arange(4)

    def together(words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        nonlocal owner
        owner = owner[parent_N]
        rows = [steps[int(source)](words_Nt[i : i + 1], parent_N) for i, source in enumerate(owner)]
        return torch.cat(rows)

    found = search(together, 4, Lexicon(END), how)
    for source, step in enumerate(steps):
        assert found[source] == search(step, 1, Lexicon(END), how)[0]


def test_more_beams_than_words_are_refused() -> None:
    with pytest.raises(UserError, match="41 beams for a vocabulary of 40 words; use fewer beams"):
        search(toy(0, words=3), 1, Lexicon(END), Search(41))


@pytest.mark.parametrize(
    ("name", "value"),
    [("beams", 0), ("longest", 0), ("no_repeat", -1)]
    + [("length_penalty", wrong) for wrong in (-0.5, 10.1, float("inf"), float("nan"))],
)
def test_a_search_that_can_t_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} is {value}, expected"):
        Search(**{name: value})  # type: ignore[arg-type]


def test_the_ends_of_the_ranges_are_allowed() -> None:
    assert Search(beams=1, longest=1, length_penalty=0, no_repeat=0).length_penalty == 0
    assert Search(length_penalty=10).length_penalty == 10


SIZES = {"vocab_size": VOCABULARY, "max_position_embeddings": 64}


def bert() -> BertModel:
    config = BertConfig(
        **SIZES, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        initializer_range=0.3,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False)


def roberta() -> RobertaModel:
    config = RobertaConfig(
        **SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        initializer_range=0.3, pad_token_id=1, type_vocab_size=1,
    )  # fmt: skip
    return RobertaModel(config, add_pooling_layer=False)


def distilbert() -> DistilBertModel:
    return DistilBertModel(DistilBertConfig(**SIZES, dim=32, n_layers=2, n_heads=4, hidden_dim=64))


def model(family):  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    encoder = family()
    learn_segments(encoder)
    head = torch.nn.Linear(32, VOCABULARY)
    return encoder.eval(), head


def sources(*lengths: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.integers(4, VOCABULARY, length).astype(np.int32) for length in lengths]


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("family", [bert, roberta])
def test_with_a_cache_scores_and_beams_are_those_without(family, copies: bool) -> None:  # type: ignore[no-untyped-def]
    encoder, head = model(family)
    copier = Copier(32) if copies else None
    with torch.no_grad():
        head.bias[END] -= 20  # long texts
        if copier is not None:
            copier.query.weight.mul_(20)
            copier.key.weight.mul_(20)
    given = sources(5, 17, 11)
    for ids in given:
        ids[1] = ids[-1]  # a copier prefers what follows the last word
    how = Search(5, 16)
    first = 2 if family is roberta else 0
    steps = [Cached(encoder, head, given, MASK, first, copier), Uncached(encoder, head, given, MASK, copier)]
    seen: list[list[Tensor]] = [[], []]

    def watched(which: int):  # type: ignore[no-untyped-def]
        def step(words_Nt: Tensor, parent_N: Tensor) -> Tensor:
            seen[which].append(steps[which](words_Nt, parent_N).clone())
            return seen[which][-1].clone()

        return step

    cached, uncached = search(watched(0), 3, Lexicon(END), how), search(watched(1), 3, Lexicon(END), how)
    assert len(seen[0]) == len(seen[1]) > 10
    for with_cache, without in zip(*seen, strict=True):
        torch.testing.assert_close(with_cache, without, atol=1e-5, rtol=0)
        if copies:
            torch.testing.assert_close(with_cache.exp().sum(1), torch.ones(len(with_cache)))
    for mine, other in zip(cached, uncached, strict=True):
        assert [text.words for text in mine] == [text.words for text in other]
        assert [text.score for text in mine] == pytest.approx([text.score for text in other], abs=1e-5)


def test_an_encoder_without_a_cache_decodes_too() -> None:
    encoder, head = model(distilbert)
    step = decoder(encoder, head, sources(5, 9), MASK)
    assert isinstance(step, Uncached)
    assert [len(texts) for texts in search(step, 2, Lexicon(END), Search(2, 5))] == [2, 2]
    assert isinstance(decoder(*model(bert), sources(4), MASK), Cached)
