"""Beam search over a model's next-token probabilities.

Shapes: S sources, K beams per source, N = S * K beams, t tokens so far, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ubert.schema.errors import UserError

MOST_PENALTY = 10  # alpha: more than any text needs; with hundreds, floats overflow and all scores are 0


class Step(Protocol):
    """A model's prediction of the next token."""

    def __call__(self, words_Nt: Tensor, parent_N: Tensor) -> Tensor:
        """Return log-probabilities [N, V].

        Args:
            words_Nt: all tokens of each beam. The first call has one empty beam per source.
            parent_N: the beam of the previous call that each beam extends; in the first call, its source.
        """
        ...


@dataclass(slots=True, frozen=True)
class Search:
    """Settings of the beam search.

    Attributes:
        beams: beams per source.
        longest: maximum tokens of a text, without the end token.
        length_penalty: alpha of ((5 + tokens) / 6)^alpha, which divides the log-probability of a text (Wu et al.
            2016, equation 14). The end token counts. 0 favours shorter texts.
        no_repeat: an n-gram of this length occurs at most once in a text; 0 allows repetition.

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
    """Token ids that search treats specially.

    Attributes:
        end: ends a text.
        may_repeat: an n-gram with one of these may repeat.
        never: occur in no text.
    """

    end: int
    may_repeat: tuple[int, ...] = ()
    never: tuple[int, ...] = ()


class Text(NamedTuple):
    """Tokens without the end token, and their score: the log-probability, with the end token, divided by the
    length penalty."""

    words: list[int]
    score: float


@torch.inference_mode()
def search(
    step: Step, sources: int, lexicon: Lexicon, how: Search, device: torch.device | str = "cpu"
) -> list[list[Text]]:
    """Find at most `how.beams` texts for each source by beam search, best first.

    A source is finished when no open beam can beat its worst text. A text that reaches the maximum length is
    forced to end there.

    Raises:
        UserError: there are more beams than tokens in the vocabulary.
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
    """Add the texts that end at this step, and keep the best of each source."""
    ended = (ended_SK / _penalty(words_SKt.shape[2] + 1, how)).tolist()
    for row, source in enumerate(open_S):
        for beam, score in enumerate(ended[row]):
            if score > -torch.inf:
                found[source].append(Text(words_SKt[row, beam].tolist(), score))
        found[source] = sorted(found[source], key=lambda text: -text.score)[: how.beams]


def _can_win(texts: list[Text], sum_K: Tensor, how: Search) -> bool:
    """Whether an open beam can still join a source's best texts.

    The bound assumes that every further token has probability 1, and the length with the largest penalty.
    """
    best = float(sum_K[0]) / _penalty(how.longest + 1, how)
    return best > -torch.inf and (len(texts) < how.beams or best > texts[-1].score)


def _penalty(words: int, how: Search) -> float:
    return float(((5 + words) / 6) ** how.length_penalty)


def _block(logp_NV: Tensor, words_Nt: Tensor, lexicon: Lexicon, n: int) -> None:
    """Mask the forbidden tokens, and each token that would repeat an n-gram."""
    logp_NV[:, list(lexicon.never)] = -torch.inf
    if not n or words_Nt.shape[1] < n:
        return
    row_NJn = words_Nt.unfold(1, n, 1)
    last_N1n = words_Nt[:, None, words_Nt.shape[1] - n + 1 :]
    again_NJ = (row_NJn[..., :-1] == last_N1n).all(-1)
    again_NJ &= ~torch.isin(row_NJn, words_Nt.new_tensor(lexicon.may_repeat)).any(-1)
    beam, at = again_NJ.nonzero(as_tuple=True)
    logp_NV[beam, row_NJn[beam, at, -1]] = -torch.inf
