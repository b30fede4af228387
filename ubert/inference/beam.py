"""Beam search over what a model says of the next word.

Shapes: S sources, K beams of each, N = S * K beams together, t words so far, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ubert.schema.errors import UserError

MOST_PENALTY = 10  # alpha: more than any text needs; of hundreds, floats overflow, and scores are all 0


class Step(Protocol):
    """What a model says of the next word."""

    def __call__(self, words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        """Logarithms of probabilities [N, V].

        Args:
            words_Nt: of each beam, all its words; none in the first call, where a beam is a source.
            parent_N: the beam of the call before that each one goes on from; in the first call, its source.
        """
        ...


@dataclass(slots=True, frozen=True)
class Search:
    """How to search: `beams` of each source; at most `longest` words, the end not counted. `length_penalty`: alpha
    of ((5 + words) / 6)^alpha, by which the logarithm of a text's probability is divided (Wu et al. 2016, equation
    14), the end counted as a word; 0: shorter texts win. `no_repeat`: so many words in a row occur once in a
    text; 0: they may repeat.

    Raises:
        UserError: a number is out of its range.
    """

    beams: int = 4
    longest: int = 64
    length_penalty: float = 0.6
    no_repeat: int = 3

    def __post_init__(self) -> None:
        for name, least in (("beams", 1), ("longest", 1), ("no_repeat", 0)):
            if (given := getattr(self, name)) < least:
                raise UserError(f"{name} is {given}, expected {least} or more")
        if not 0 <= self.length_penalty <= MOST_PENALTY:
            raise UserError(f"length_penalty is {self.length_penalty}, expected 0 to {MOST_PENALTY}")


class Lexicon(NamedTuple):
    """Words (ids) with a meaning of their own: the one that ends a text, those that make any row with them free to
    repeat, and those that are in no text."""

    end: int
    may_repeat: tuple[int, ...] = ()
    never: tuple[int, ...] = ()


class Text(NamedTuple):
    """Words without the end, and their score: the logarithm of their probability, the end's included, divided by
    the penalty of their length."""

    words: list[int]
    score: float


@torch.inference_mode()
def search(
    step: Step, sources: int, lexicon: Lexicon, how: Search, device: torch.device | str = "cpu"
) -> list[list[Text]]:
    """The best texts of each source that a beam search finds, at most `how.beams`, best first.

    A source is done when no open beam can still become better than its worst text. A text that reaches the
    greatest length is made to end there, whatever that costs.

    Raises:
        UserError: there are more beams than words in the vocabulary.
    """
    found: list[list[Text]] = [[] for _ in range(sources)]
    open_S = list(range(sources))
    words_SKt = torch.empty(sources, 1, 0, dtype=torch.long, device=device)
    sum_SK = torch.zeros(sources, 1, device=device)
    parent_N = torch.arange(sources, device=device)
    while open_S:
        length = words_SKt.shape[2] + 1
        logp_NV = step(words_SKt.flatten(0, 1), parent_N).float()
        if how.beams > logp_NV.shape[1]:
            raise UserError(f"{how.beams} beams for a vocabulary of {logp_NV.shape[1]} words; use fewer beams")
        _block(logp_NV, words_SKt.flatten(0, 1), lexicon, how.no_repeat)
        if length > how.longest:
            logp_NV[:, torch.arange(logp_NV.shape[1], device=device) != lexicon.end] = -torch.inf
        total_SKV = sum_SK[..., None] + logp_NV.view(*sum_SK.shape, -1)
        _finish(found, open_S, words_SKt, total_SKV[..., lexicon.end], how)
        total_SKV[..., lexicon.end] = -torch.inf
        width, vocabulary = total_SKV.shape[1:]
        sum_SK, place_SK = total_SKV.flatten(1).topk(how.beams)
        beam_SK, word_SK = place_SK // vocabulary, place_SK % vocabulary
        going = [row for row, source in enumerate(open_S) if _can_win(found[source], sum_SK[row], how)]
        if not going or length > how.longest:
            break
        parent_N = (torch.arange(len(open_S), device=device)[:, None] * width + beam_SK)[going].flatten()
        words_SKt = torch.cat([words_SKt.flatten(0, 1)[parent_N], word_SK[going].view(-1, 1)], 1)
        words_SKt = words_SKt.view(len(going), how.beams, -1)
        sum_SK, open_S = sum_SK[going], [open_S[row] for row in going]
    return found


def _finish(found: list[list[Text]], open_S: list[int], words_SKt: Tensor, ended_SK: Tensor, how: Search) -> None:
    """Keep the best texts of each source, now with those that end here."""
    ended = (ended_SK / _penalty(words_SKt.shape[2] + 1, how)).tolist()
    for row, source in enumerate(open_S):
        for beam, score in enumerate(ended[row]):
            if score > -torch.inf:
                found[source].append(Text(words_SKt[row, beam].tolist(), score))
        found[source] = sorted(found[source], key=lambda text: -text.score)[: how.beams]


def _can_win(texts: list[Text], sum_K: Tensor, how: Search) -> bool:
    """Whether an open beam may still come among a source's best texts: it would have to end for nothing, at the
    length that divides its sum most."""
    best = float(sum_K[0]) / _penalty(how.longest + 1, how)
    return best > -torch.inf and (len(texts) < how.beams or best > texts[-1].score)


def _penalty(words: int, how: Search) -> float:
    return float(((5 + words) / 6) ** how.length_penalty)


def _block(logp_NV: Tensor, words_Nt: Tensor, lexicon: Lexicon, n: int) -> None:
    """Forbid what is never said, and each word that would repeat `n` words in a row."""
    logp_NV[:, list(lexicon.never)] = -torch.inf
    if not n or words_Nt.shape[1] < n:
        return
    row_NJn = words_Nt.unfold(1, n, 1)
    last_N1n = words_Nt[:, None, words_Nt.shape[1] - n + 1 :]
    again_NJ = (row_NJn[..., :-1] == last_N1n).all(-1)
    again_NJ &= ~torch.isin(row_NJn, words_Nt.new_tensor(lexicon.may_repeat)).any(-1)
    beam, at = again_NJ.nonzero(as_tuple=True)
    logp_NV[beam, row_NJn[beam, at, -1]] = -torch.inf
