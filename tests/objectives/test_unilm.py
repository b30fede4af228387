"""UniLM's clozes: hidden words, masks, and the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from ubert.encoder import attention
from ubert.encoder.attention import PADDING, ranks
from ubert.inference.generation.decoding import Uncached
from ubert.schema.errors import UserError
from ubert.unilm import cloze
from ubert.unilm.copying import Copier
from ubert.unilm.sequences import (
    SHARES,
    Symbols,
    direction,
    generation,
    hide,
    pretraining,
    pseudo_masked,
    source_of,
)

CLS, SEP, MASK, FIRST, VOCABULARY = 1, 2, 3, 10, 1000
SYMBOLS = Symbols(CLS, SEP, MASK, VOCABULARY)
NONE = np.empty(0, np.int32)


def text(tokens: int, first: int = FIRST) -> np.ndarray:
    return np.arange(first, first + tokens, dtype=np.int32)


def source(tokens: int) -> np.ndarray:
    return source_of(text(1, 7), NONE, text(tokens), SYMBOLS)


def whole(item: cloze.Cloze) -> list[int]:
    """The sequence with nothing hidden."""
    ids = item.ids.copy()
    ids[item.hidden] = item.answers
    return ids.tolist()


def test_the_four_directions_have_the_shares_of_the_paper() -> None:
    counts = Counter(direction(seed) for seed in range(6000))
    assert sum(SHARES.values()) == pytest.approx(1)
    for name, share in (
        ("bidirectional", 1 / 3), ("seq2seq", 1 / 3), ("left_to_right", 1 / 6), ("right_to_left", 1 / 6),
    ):  # fmt: skip
        assert counts[name] / 6000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("chosen", "types"),
    [
        ("bidirectional", [0] * 6 + [1] * 4),
        ("seq2seq", [4] * 6 + [5] * 4),
        ("left_to_right", [2] * 9),
        ("right_to_left", [3] * 9),
    ],
)
def test_sequences_and_their_segments(chosen: str, types: list[int]) -> None:
    item = pretraining(text(4), text(3, 20), SYMBOLS, 0, chosen=chosen)  # type: ignore[arg-type]
    two = [CLS, 10, 11, 12, 13, SEP, 20, 21, 22, SEP]
    one = [CLS, 10, 11, 12, 13, 20, 21, 22, SEP]
    assert whole(item) == (two if len(types) == 10 else one)
    assert item.types.tolist() == types
    assert item.ranks.tolist() == ranks(chosen, len(types), 6).tolist()  # type: ignore[arg-type]


@given(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from(list(SHARES)))
def test_a_text_alone_is_cut_where_two_parts_are_needed(tokens: int, seed: int, chosen: str) -> None:
    item = pretraining(text(tokens), NONE, SYMBOLS, seed, chosen=chosen)  # type: ignore[arg-type]
    ids = whole(item)
    assert [i for i in ids if i >= FIRST] == text(tokens).tolist()
    parts = 2 if chosen in ("bidirectional", "seq2seq") and tokens > 1 else 1
    assert ids.count(SEP) == parts and ids[-1] == SEP and ids[0] == CLS
    assert not {CLS, SEP} & set(item.answers.tolist())
    assert len(item.hidden) == max(1, round(0.15 * tokens))


def test_the_end_of_a_target_is_hidden_as_its_words_are_and_its_source_never() -> None:
    hidden: Counter[int] = Counter()
    for seed in range(2000):
        item = generation(source(5), text(9, 20), SYMBOLS, seed)
        assert whole(item) == [CLS, 7, SEP, 10, 11, 12, 13, 14, SEP, *range(20, 29), SEP]
        assert len(item.hidden) == 7  # 70 % of nine words and the end
        assert item.before is not None and item.before.tolist() == [whole(item)[i - 1] for i in item.hidden]
        hidden.update(item.hidden.tolist())
    assert min(hidden) == 9 and max(hidden) == 18
    assert [hidden[place] / 2000 for place in range(10, 19)] == pytest.approx([0.7] * 9, abs=0.06)


def test_one_draw_in_five_hides_two_or_three_words_in_a_row() -> None:
    """With so few hidden that rows hardly meet."""
    lengths: Counter[int] = Counter()
    for seed in range(1000):
        places = hide(np.arange(0, 2000), 0.01, seed)
        rows = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        lengths.update(map(len, rows))
    total = lengths.total()
    assert lengths[1] / total == pytest.approx(0.8, abs=0.05)
    assert lengths[2] / total == pytest.approx(0.1, abs=0.03)
    assert lengths[3] / total == pytest.approx(0.1, abs=0.03)


@given(st.sets(st.integers(0, 60), min_size=1), st.floats(0.01, 1), st.integers(0, 10**6))
def test_as_many_places_are_hidden_as_asked_and_candidates_alone(
    places: set[int], share: float, seed: int
) -> None:
    candidates = np.array(sorted(places), np.int32)
    found = hide(candidates, share, seed)
    assert set(found.tolist()) <= places
    assert len(found) == max(1, round(share * len(places)))
    assert found.tolist() == sorted(set(found.tolist()))


def test_hidden_words_become_mask_any_word_or_stay() -> None:
    fates: Counter[str] = Counter()
    for seed in range(300):
        item = pretraining(text(200), NONE, SYMBOLS, seed, chosen="left_to_right")
        for shown, answer in zip(item.ids[item.hidden], item.answers, strict=True):
            fates["mask" if shown == MASK else "same" if shown == answer else "other"] += 1
    total = fates.total()
    assert {name: count / total for name, count in fates.items()} == {
        "mask": pytest.approx(0.8, abs=0.02),
        "same": pytest.approx(0.1, abs=0.02),
        "other": pytest.approx(0.1, abs=0.02),
    }


def test_the_same_draw_hides_the_same() -> None:
    same, again, other = (pretraining(text(80), NONE, SYMBOLS, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(left, right) for left, right in zip(same, again, strict=True))
    assert not np.array_equal(same.ids, other.ids)


def test_what_a_key_hides_is_frozen() -> None:
    """If this fails, your change alters the words that every run hides. Runs then no longer resume as they began,
    and losses are no longer comparable with earlier ones."""
    assert hide(np.arange(30), 0.4, 7, 1).tolist() == [3, 9, 16, 18, 20, 21, 22, 24, 25, 26, 27, 28]
    item = pretraining(text(40), NONE, SYMBOLS, 7, chosen="left_to_right")
    assert item.hidden.tolist() == [4, 14, 31, 34, 35, 36]
    assert item.ids[item.hidden].tolist() == [107, MASK, MASK, MASK, MASK, 620]
    directions = ["seq2seq", "bidirectional", "left_to_right", "right_to_left", "seq2seq", "left_to_right"]
    assert [direction(key) for key in range(6)] == directions
    assert pretraining(text(12), NONE, SYMBOLS, 7, chosen="seq2seq").types.tolist() == [4] * 7 + [5] * 8


def tiny(types: int = 2) -> BertModel:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        type_vocab_size=types,
    )  # fmt: skip
    torch.manual_seed(0)
    return BertModel(config, add_pooling_layer=False).eval()


def local() -> ModernBertModel:
    """Two of its three layers see four tokens on each side."""
    config = ModernBertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
        local_attention=8, pad_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    return ModernBertModel(config).eval()


def offset() -> RobertaModel:
    """Its first position is that after the padding id, 0."""
    config = RobertaConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        pad_token_id=0, type_vocab_size=1, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    return RobertaModel(config, add_pooling_layer=False).eval()


def some() -> list[cloze.Cloze]:
    pretrained = [
        pretraining(text(n), NONE, SYMBOLS, n, chosen=kind) for n, kind in zip((9, 30, 17, 4), SHARES, strict=True)
    ]
    return [*pretrained, generation(source(12), text(6, 40), SYMBOLS, 0)]


def test_a_padded_batch_is_its_sequences() -> None:
    items = some()
    batch = cloze.padded(items, pad=0)
    longest = max(len(item.ids) for item in items)
    assert batch.ids_BL.shape == batch.types_BL.shape == batch.rank_BL.shape == (5, longest)
    for row, item in enumerate(items):
        n = len(item.ids)
        assert batch.ids_BL[row].tolist() == [*item.ids.tolist(), *[0] * (longest - n)]
        assert batch.rank_BL[row].tolist() == [*item.ranks.tolist(), *[PADDING] * (longest - n)]
    assert batch.hidden_H.tolist() == [b * longest + int(h) for b, item in enumerate(items) for h in item.hidden]
    assert batch.answer_H.tolist() == [int(answer) for item in items for answer in item.answers]
    assert batch.to("cpu").ids_BL.tolist() == batch.ids_BL.tolist()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_batch_is_that_of_its_sequences_alone(smoothing: float) -> None:
    """By the definition: every word's logits, unpadded, and the answer's share of 1 - 0.1 + 0.1 / V."""
    encoder, head = tiny(), torch.nn.Linear(32, VOCABULARY)
    cloze.learn_segments(encoder)
    items = some()
    with torch.no_grad():
        found, count = cloze.loss(encoder, head, cloze.padded(items, 0, smoothing))
        expected = 0.0
        for item in items:
            rank = torch.from_numpy(item.ranks)
            sees = torch.where(rank[None, :] <= rank[:, None], 0.0, -torch.inf)[None, None]
            ids, types = (torch.from_numpy(column).long()[None] for column in (item.ids, item.types))
            hidden = encoder(ids, attention_mask=sees, token_type_ids=types).last_hidden_state[0]
            logp = head(hidden).log_softmax(-1)
            for place, answer in zip(item.hidden.tolist(), item.answers.tolist(), strict=True):
                target = F.one_hot(torch.tensor(answer), VOCABULARY) * (1 - smoothing) + smoothing / VOCABULARY
                expected -= float(target @ logp[place])
    assert count == sum(len(item.hidden) for item in items)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_a_hidden_word_of_a_target_doesn_t_see_what_comes_after_it() -> None:
    encoder = tiny()
    item = generation(source(6), text(8, 20), SYMBOLS, 3)
    place = int(item.hidden[0])
    other = item.ids.copy()
    other[place + 1 :] = 500
    batches = [cloze.padded([item._replace(ids=ids)], 0) for ids in (item.ids, other)]
    found = [
        cloze.encode(encoder, b.ids_BL, b.types_BL, cloze.mask(encoder, b.rank_BL, b.looked_BL))[0]
        for b in batches
    ]
    torch.testing.assert_close(found[0][: place + 1], found[1][: place + 1], atol=1e-6, rtol=0)
    assert (found[0][place + 1 :] - found[1][place + 1 :]).abs().max() > 1e-3


def test_pseudo_masks_lie_behind_the_words_whose_places_they_have() -> None:
    item = pseudo_masked(source(3), text(2, 20), SYMBOLS)
    assert item.ids.tolist() == [CLS, 7, SEP, 10, 11, 12, SEP, 20, 21, MASK, MASK, MASK]
    assert item.positions is not None and item.looked is not None
    assert item.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9]
    assert item.types.tolist() == [4] * 7 + [5] * 5
    assert item.hidden.tolist() == [9, 10, 11] and item.answers.tolist() == [20, 21, SEP]
    rank, looked = (torch.from_numpy(column)[None] for column in (item.ranks, item.looked))
    sees = (attention.mask(tiny(), rank, looked)[0, 0] == 0).int()
    before = [1] * 7
    assert sees.tolist() == [
        *([[*before, 0, 0, 0, 0, 0]] * 7),
        [*before, 1, 0, 0, 0, 0],
        [*before, 1, 1, 0, 0, 0],
        [*before, 0, 0, 1, 0, 0],
        [*before, 1, 0, 0, 1, 0],
        [*before, 1, 1, 0, 0, 1],
    ]


def some_copier() -> Copier:
    """One whose shares differ much from word to word, and from token to token."""
    torch.manual_seed(1)
    copier = Copier(32)
    for layer in (copier.query, copier.key, copier.gate):
        torch.nn.init.normal_(layer.weight, std=0.5)
    return copier


@pytest.mark.parametrize(
    ("make", "copies", "first"), [(tiny, False, 0), (tiny, True, 0), (local, False, 0), (offset, False, 1)]
)
def test_pseudo_masks_tell_what_decoding_tells_of_the_words_before(
    make: Callable[[], PreTrainedModel], copies: bool, first: int
) -> None:
    """Also where layers are local: what is near a [MASK] is what is near its word's place."""
    encoder, head = make(), torch.nn.Linear(32, VOCABULARY)
    copier = some_copier() if copies else None
    cloze.learn_segments(encoder)
    pairs = [(source(12), text(6, 40)), (source(5), text(1, 60)), (source(9), NONE)]
    batch = cloze.padded([pseudo_masked(*pair, SYMBOLS) for pair in pairs], 0)
    with torch.no_grad():
        found, count = cloze.loss(encoder, head, batch, first, copier=copier)
        expected = 0.0
        for from_, target in pairs:
            step = Uncached(encoder, head, [from_], MASK, copier)
            for place, word in enumerate([*target.tolist(), SEP]):
                words = torch.from_numpy(target[:place].astype(np.int64))[None]
                expected -= float(step(words, torch.zeros(1, dtype=torch.int64))[0, word])
    assert count == 7 + 2 + 1
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_copied_word_has_the_sum_of_its_places_in_the_source(smoothing: float) -> None:
    """Word by word, by the definition: g softmax(logits) + (1 - g) a. The source has a word twice, and a copied
    word is followed by the next one."""
    encoder, head, copier = tiny(), torch.nn.Linear(32, VOCABULARY), some_copier()
    first = np.array([CLS, 7, SEP, 10, 11, 10, SEP], np.int32)
    pairs = [(first, np.array([10, 11, 33], np.int32)), (first[2:], text(9, 40))]
    items = [generation(*pair, SYMBOLS, number) for number, pair in enumerate(pairs)]
    batch = cloze.padded(items, 0, smoothing)
    with torch.no_grad():
        found, _ = cloze.loss(encoder, head, batch, copier=copier)
        expected = 0.0
        for item, (from_, target) in zip(items, pairs, strict=True):
            alone = cloze.padded([item], 0)
            sees = attention.mask(encoder, alone.rank_BL, alone.looked_BL)
            hidden = cloze.encode(encoder, alone.ids_BL, alone.types_BL, sees)[0]
            words, said = from_.tolist(), [*from_.tolist(), *target.tolist()]
            for place, answer in zip(item.hidden.tolist(), item.answers.tolist(), strict=True):
                p, query = head(hidden[place]).softmax(-1), copier.query(hidden[place])
                scores = [query @ copier.key(hidden[k]) / 32**0.5 for k in range(len(words))]
                follows = [k > 0 and words[k - 1] == said[place - 1] for k in range(len(words))]
                shares = (torch.stack(scores) + 4 * torch.tensor(follows)).softmax(0).tolist()
                copied = sum(share for share, word in zip(shares, words, strict=True) if word == answer)
                gate = float(copier.gate(hidden[place]).sigmoid())
                own = gate * float(p[answer]) + (1 - gate) * copied
                expected -= (1 - smoothing) * np.log(own) + smoothing * float(p.log().mean())
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_what_can_t_be_copied_has_no_infinite_gradient() -> None:
    encoder, head, copier = tiny(), torch.nn.Linear(32, VOCABULARY), some_copier()
    batch = cloze.padded([generation(source(3), text(5, 60), SYMBOLS, 0)], 0, 0.1)
    cloze.loss(encoder, head, batch, copier=copier)[0].backward()
    assert all(torch.isfinite(p.grad).all() for p in copier.parameters() if p.grad is not None)
    assert copier.gate.weight.grad is not None and copier.gate.weight.grad.abs().sum() > 0


def test_what_has_no_source_is_predicted_without_copying() -> None:
    encoder, head = tiny(), torch.nn.Linear(32, VOCABULARY)
    batch = cloze.padded(some()[:-1], 0)
    with torch.no_grad():
        told, _ = cloze.loss(encoder, head, batch)
        beside_copier, _ = cloze.loss(encoder, head, batch, copier=some_copier())
    assert float(beside_copier) == float(told)


def test_new_segments_begin_as_those_they_are_most_alike() -> None:
    encoder = tiny(types=2)
    old = encoder.embeddings.token_type_embeddings.weight.clone()
    cloze.learn_segments(encoder)
    assert torch.equal(encoder.embeddings.token_type_embeddings.weight, old[[0, 1, 0, 0, 0, 1]])
    assert encoder.config.type_vocab_size == 6
    grown = encoder.embeddings.token_type_embeddings
    cloze.learn_segments(encoder)
    assert encoder.embeddings.token_type_embeddings is grown


def of_family(family: str, **more: object) -> PreTrainedModel:
    settings = {"vocab_size": 50, "num_hidden_layers": 2, "intermediate_size": 64, "pad_token_id": 0} | more
    config = AutoConfig.for_model(family, hidden_size=32, num_attention_heads=2, **settings)
    torch.manual_seed(0)
    encoder: PreTrainedModel = AutoModel.from_config(config).eval()
    return encoder


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "mpnet"])
def test_an_encoder_whose_words_a_mask_hides_may_write(family: str) -> None:
    cloze.check_encoder(of_family(family))


RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
VERSION_3 = {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("deberta", RELATIVE),
        ("deberta-v2", RELATIVE),
        ("deberta-v2", RELATIVE | VERSION_3),
        ("convbert", {"embedding_size": 32}),  # its convolutions read on beside any mask
    ],
)
def test_an_encoder_whose_words_no_mask_hides_is_refused(family: str, more: dict[str, object]) -> None:
    with pytest.raises(UserError, match=rf"of type '{family}' can't generate text: no mask hides its words"):
        cloze.check_encoder(of_family(family, **more))


class WithoutPositions(torch.nn.Module):
    """An encoder that numbers its tokens itself."""

    config = BertConfig()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        raise AssertionError("it is refused before it reads anything")


def test_an_encoder_that_takes_no_positions_is_refused() -> None:
    with pytest.raises(UserError, match="of type 'bert' can't generate text: it takes no position_ids"):
        cloze.check_encoder(WithoutPositions())
