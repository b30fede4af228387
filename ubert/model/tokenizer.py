"""Tokenise texts to ids with character offsets, and align character spans with tokens.

Offsets count Unicode code points of the original text. For every tokenizer, a token's offsets neither begin
nor end with white space, although byte-level and sentence-piece tokens carry the space before their word.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers
from blake3 import blake3
from tokenizers.models import WordLevel, WordPiece

from ubert.encoder.ragged import Ids
from ubert.schema.errors import UserError
from ubert.spanbert.masking import Words
from ubert.spexbert.pointer import BETWEEN, NO_ANSWER, Phrases
from ubert.structure.batch import Special

TOKENIZER_FILE, SPECIAL_FILE = "tokenizer.json", "special.json"
MARKER, ADDED_MARKER, SEPARATOR = "[unused0]", "[C]", "[SEP]"
MASKS = ("[MASK]", "<mask>")
CONTINUED = "##"  # prefix of a word piece within a word
SPACES = ("\u0120", "\u010a", "\u2581")  # prefixes of a byte-level or sentence-piece token that starts a word
_MARKS = ("Mn", "Me")  # Unicode categories of combining characters
_SPACES = np.array([c for c in range(0x3001) if chr(c).isspace()], np.uint32)  # no higher code point is a space
_IS_SPACE = np.isin(np.arange(0x3002, dtype=np.uint32), _SPACES)


class Encoding(NamedTuple):
    """Tokens of one text: `ids` [n], and the characters [starts, ends) of each. Starts and ends never decrease."""

    ids: Ids
    starts: Ids
    ends: Ids


class Fit(IntEnum):
    """How the tokens of a span cover its characters."""

    EXACT = 0  # the tokens have the span's boundaries
    WIDENED = 1  # the tokens cover more than the span
    NARROWED = 2  # characters at the span's ends belong to no token, such as white space
    LOST = 3  # no token has a character of the span


class TokenSpans(NamedTuple):
    """Tokens [first, last] (inclusive) of each span, and how well they fit it (`Fit`). If LOST, last < first."""

    first: Ids
    last: Ids
    fit: npt.NDArray[np.int8]


class Tokenizer:
    """A fast tokenizer that adds no special tokens, and neither truncates nor pads.

    `special`: ids of the special tokens of a piece. `hash`: hex blake3 of the tokenizer's content.
    `vocabulary`: number of ids, including an added marker. Special tokens spelled out in a text ("[SEP]") are
    tokenised as ordinary text.
    """

    def __init__(self, backend: tokenizers.Tokenizer, special: Special) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._backend = backend
        self.special = special
        self.vocabulary: int = backend.get_vocab_size(with_added_tokens=True)
        content = json.dumps([backend.to_str(), special._asdict()], sort_keys=True)
        self.hash: str = blake3(content.encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokenise texts together (on all cores, unless TOKENIZERS_PARALLELISM says otherwise)."""
        encoded = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return [_encoding(text, item.ids, item.offsets) for text, item in zip(texts, encoded, strict=True)]

    def instruction(self, text: str) -> Ids:
        """Return the token ids of an instruction. Here "[SEP]" is the special token, with which the public
        UBERT checkpoints separate task and subtask."""
        first, *others = (encoding.ids for encoding in self.encode(text.split(SEPARATOR)))
        sep = np.array([self.special.sep], np.int32)
        return np.concatenate([first, *(ids for part in others for ids in (sep, part))])

    def tokens(self, ids: Ids) -> list[str]:
        """Return the tokens as the vocabulary spells them, for display."""
        return [self._backend.id_to_token(i) or "" for i in ids.tolist()]

    def for_masking(self) -> Words:
        """Return the mask's id, and which ids start a word.

        Word pieces within a word have the prefix "##"; byte-level and sentence-piece tokens carry the space
        before their word.

        Raises:
            UserError: the tokenizer has no mask.
        """
        mask = next((i for name in MASKS if (i := self._backend.token_to_id(name)) is not None), None)
        if mask is None:
            raise UserError(
                f"the encoder's tokenizer has no mask token ({' or '.join(MASKS)}), which masked words need; "
                "choose another encoder, or leave spanbert out of the recipe's objectives"
            )
        tokens = [self._backend.id_to_token(i) or "" for i in range(self.vocabulary)]
        if self.keeps_spaces and any(token.startswith(SPACES) for token in tokens):
            starts = [token.startswith(SPACES) for token in tokens]
        else:
            starts = [not token.startswith(CONTINUED) for token in tokens]
        return Words(mask, np.array(starts, np.bool_))

    def for_pointing(self) -> Phrases:
        """Return the tokens for SpEx-BERT's sources."""
        between, no_answer = (encoding.ids for encoding in self.encode([BETWEEN, NO_ANSWER]))
        return Phrases(int(between[0]) if len(between) == 1 else self.special.marker, no_answer)

    @property
    def special_ids(self) -> set[int]:
        """The ids of all special tokens, including those that pieces don't use ([UNK])."""
        added = self._backend.get_added_tokens_decoder()
        return {i for i, token in added.items() if token.special} | {*self.special[:3], self.special.marker}

    @property
    def keeps_spaces(self) -> bool:
        """Whether its tokens carry the space before their word; word pieces don't."""
        return not isinstance(self._backend.model, WordPiece | WordLevel)

    def words(self, ids: Ids) -> str:
        """Decode tokens to text. If they don't keep spaces, the result is approximate."""
        return str(self._backend.decode(ids.tolist(), skip_special_tokens=False))

    def save(self, directory: Path) -> None:
        """Write `tokenizer.json` and `special.json`, from which `load_tokenizer(directory)` loads it."""
        (directory / TOKENIZER_FILE).write_text(self._backend.to_str(pretty=True), encoding="utf-8")
        (directory / SPECIAL_FILE).write_text(json.dumps(self.special._asdict()) + "\n", encoding="utf-8")


def load_tokenizer(encoder: str) -> Tokenizer:
    """Load the tokenizer of an encoder, or one that `Tokenizer.save` wrote.

    Args:
        encoder: `package:<package>/<folder>`, a folder, or a hub name.

    Raises:
        UserError: there is no such encoder, or its tokenizer has no fast version or lacks special tokens.
    """
    path = encoder_path(encoder)
    files = sorted(
        (file.name, state.st_size, state.st_mtime_ns) for file in Path(path).glob("*") for state in [file.lstat()]
    )
    return _loaded(encoder, path, tuple(files))


@lru_cache(maxsize=4)  # a command asks several times, and loading takes 0.1 s
def _loaded(encoder: str, path: str, files: tuple[tuple[str, int, int], ...]) -> Tokenizer:
    """Load a tokenizer. With other `files`, it has changed since the last time."""
    folder = Path(path)
    return _saved(folder) if (folder / SPECIAL_FILE).is_file() else _from_encoder(encoder, path)


def _saved(folder: Path) -> Tokenizer:
    try:
        special = Special(**json.loads((folder / SPECIAL_FILE).read_text(encoding="utf-8")))
        backend = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        vocabulary = backend.get_vocab_size(with_added_tokens=True)
        if not all(isinstance(i, int) and 0 <= i < vocabulary for i in special):
            raise ValueError(f"{SPECIAL_FILE} names tokens that {TOKENIZER_FILE} lacks")
    except Exception as error:  # noqa: BLE001  # `tokenizers` raises plain Exception
        raise UserError(f"{folder}: its tokenizer is damaged ({error}); use another checkpoint") from None
    return Tokenizer(backend, special)


def encoder_path(encoder: str) -> str:
    """Resolve `package:<package>/<folder>` to the folder in that package; return other names unchanged.

    Raises:
        UserError: the package is not installed or has no such folder.
    """
    if not encoder.startswith("package:"):
        return encoder
    package, _, folder = encoder.removeprefix("package:").partition("/")
    if not package.isidentifier() or ".." in folder.split("/"):
        raise UserError(f"encoder {encoder!r} is not of the form package:<package>/<folder>")
    try:
        path = resources.files(package) / folder
    except ModuleNotFoundError:
        name = package.replace("_", "-")
        raise UserError(f"encoder {encoder!r}: package {name} is not installed; run pip install {name}") from None
    except TypeError:
        raise UserError(f"encoder {encoder!r}: {package} is a module, which has no folder {folder!r}") from None
    if not path.is_dir():
        raise UserError(f"encoder {encoder!r}: the installed package {package} has no folder {folder!r}")
    return str(path)


def align(encoding: Encoding, starts: npt.ArrayLike, ends: npt.ArrayLike) -> TokenSpans:
    """Align the non-empty character spans [starts, ends) with tokens: from the first to the last token that
    shares a character with the span."""
    starts, ends = np.asarray(starts, np.int32), np.asarray(ends, np.int32)
    solid = np.flatnonzero(encoding.starts < encoding.ends).astype(np.int32)
    low, high = encoding.starts[solid], encoding.ends[solid]
    first = np.append(solid, np.int32(len(encoding.ids)))[np.searchsorted(high, starts, side="right")]
    last = np.append(np.int32(-1), solid)[np.searchsorted(low, ends, side="left")]
    fit = np.full(len(starts), Fit.LOST, np.int8)
    found = np.flatnonzero(first <= last)
    before = starts[found] - encoding.starts[first[found]]
    after = encoding.ends[last[found]] - ends[found]
    inexact = np.where((before > 0) | (after > 0), Fit.WIDENED, Fit.NARROWED)
    fit[found] = np.where(before | after, inexact, Fit.EXACT)
    return TokenSpans(first, last, fit)


def _encoding(text: str, ids: list[int], offsets: list[tuple[int, int]]) -> Encoding:
    pairs = np.array(offsets, np.int32).reshape(-1, 2)
    starts, ends = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    starts, ends = _without_space(text, starts, ends)
    if not text.isascii():
        _take_marks(text, starts, ends)
    return Encoding(np.array(ids, np.int32), starts, ends)


def _without_space(text: str, starts: Ids, ends: Ids) -> tuple[Ids, Ids]:
    """Move offsets past white space. A token of only white space becomes empty, at its end."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    space = _IS_SPACE[np.minimum(codes, len(_IS_SPACE) - 1)]
    if not (space[starts[starts < ends]].any() or space[ends[starts < ends] - 1].any()):
        return starts, ends
    solid = np.flatnonzero(~space).astype(np.int32)
    following = np.append(solid, np.int32(len(text)))[np.searchsorted(solid, starts)]
    preceding = np.append(np.int32(-1), solid)[np.searchsorted(solid, ends)] + 1
    starts = np.minimum(following, ends)
    return starts, np.maximum(starts, np.minimum(preceding, ends))


def _take_marks(text: str, starts: Ids, ends: Ids) -> None:
    """Extend tokens over the combining accents that follow them. Tokenizers that strip accents assign these
    to no token, and a mention would end before the accent of its last letter."""
    nexts = np.append(starts[1:], len(text))[: len(starts)]
    for i in np.flatnonzero((starts < ends) & (ends < nexts)).tolist():
        while ends[i] < nexts[i] and unicodedata.category(text[ends[i]]) in _MARKS:
            ends[i] += 1


def _from_encoder(encoder: str, path: str) -> Tokenizer:
    # Imported here because it takes a second, and only this function needs it.
    from transformers import AutoConfig, AutoTokenizer

    try:
        source = AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=False)
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"encoder {encoder!r} could not be loaded ({reason}); "
            "give a hub name, a folder with config.json and tokenizer.json, or package:<package>/<folder>"
        ) from None
    if not source.is_fast:
        raise UserError(
            f"encoder {encoder!r} has no fast tokenizer (tokenizer.json), which character offsets need"
        )
    backend = tokenizers.Tokenizer.from_str(source.backend_tokenizer.to_str())
    cls = source.bos_token_id if source.cls_token_id is None else source.cls_token_id
    sep = source.eos_token_id if source.sep_token_id is None else source.sep_token_id
    if cls is None or sep is None:
        raise UserError(f"the tokenizer of encoder {encoder!r} has no [CLS] or [SEP] token (or <s> and </s>)")
    pad = sep if source.pad_token_id is None else source.pad_token_id  # masked, so any id will do
    types = getattr(config, "type_vocab_size", 0) > 1
    return Tokenizer(backend, Special(cls, sep, pad, _marker(backend), types))


def _marker(backend: tokenizers.Tokenizer) -> int:
    """Return the id of the category marker: an unused token of the vocabulary, or else a new special token."""
    known = backend.token_to_id(MARKER)
    if known is not None:
        return int(known)
    backend.add_special_tokens([tokenizers.AddedToken(ADDED_MARKER, special=True)])
    return int(backend.get_vocab_size(with_added_tokens=True)) - 1
