"""Copy words of a target from its source, in addition to generating words from the vocabulary.

This is a pointer-generator network (See, Liu and Manning 2017, section 2.2), whose attention has its own query
and keys:

    p(w) = g softmax(logits)_w + (1 - g) sum of a_k over the source's tokens k that are w
    a = softmax_k(q(h) . k(h_k) / sqrt(D) + c [token k - 1 is the word before w]),   g = sigmoid(v . h + b)

where h is the hidden state of the predicted word, and h_k those of the source. The term c favours the token
after the last copied one. Large models learn heads for this (induction heads, Olsson et al. 2022); a small
corpus doesn't teach them.

Shapes: B sequences, Q predicted tokens of one, K tokens of one, D width; H predicted tokens of all, V
vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

MIN_LOG_PROBABILITY = -1e9  # log probability of tokens that can't be copied
GOING_ON = 4.0  # initial c: among a hundred tokens, the next one gets a third


class Copied(NamedTuple):
    """The tokens that may be copied: their hidden states, which of them belong to the source, and their ids."""

    tokens_BKD: Tensor
    source_BK: Tensor
    ids_BK: Tensor


class Copier(nn.Module):
    """Computes how likely a word is copied, and from which token of the source."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.gate = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        for layer in (self.query, self.key, self.gate):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.going_on = nn.Parameter(torch.full((1,), GOING_ON))

    def attention(self, predicted_BQD: Tensor, before_BQ: Tensor, copied: Copied) -> Tensor:
        """Return log a [B, Q, K].

        Args:
            before_BQ: the word before each predicted one.
        """
        key_BDK = self.key(copied.tokens_BKD).transpose(1, 2)
        score_BQK: Tensor = self.query(predicted_BQD) @ key_BDK / math.sqrt(predicted_BQD.shape[-1])
        before_BK = functional.pad(copied.ids_BK[:, :-1], (1, 0), value=-1)
        follows_BQK = before_BK[:, None] == before_BQ[:, :, None]
        score_BQK = score_BQK.float() + self.going_on * follows_BQK
        return score_BQK.masked_fill(~copied.source_BK[:, None], MIN_LOG_PROBABILITY).log_softmax(-1)

    def gates(self, predicted_HD: Tensor) -> tuple[Tensor, Tensor]:
        """Return log g and log (1 - g) [H]."""
        gate_H = self.gate(predicted_HD).squeeze(-1).float()
        return functional.logsigmoid(gate_H), functional.logsigmoid(-gate_H)

    def of_answers(
        self, logp_HV: Tensor, predicted_HD: Tensor, copied_HK: Tensor, ids_HK: Tensor, answer_H: Tensor
    ) -> Tensor:
        """Return log p(answer) [H].

        Args:
            logp_HV: log softmax(logits).
            copied_HK: log a of each predicted token.
            ids_HK: ids of the tokens that may be copied.
        """
        written_H, copied_H = self.gates(predicted_HD)
        same_HK = ids_HK == answer_H[:, None]
        of_vocabulary_H = logp_HV.gather(1, answer_H[:, None]).squeeze(1)
        of_source_H = copied_HK.masked_fill(~same_HK, MIN_LOG_PROBABILITY).logsumexp(1)
        return torch.logaddexp(written_H + of_vocabulary_H, copied_H + of_source_H)

    def of_all(self, logp_HV: Tensor, predicted_HD: Tensor, copied_HK: Tensor, ids_HK: Tensor) -> Tensor:
        """Return log p of every word [H, V]; see `of_answers`."""
        written_H, copied_H = self.gates(predicted_HD)
        p_HV = (written_H[:, None] + logp_HV).exp()
        return p_HV.scatter_add(1, ids_HK, (copied_H[:, None] + copied_HK).exp()).log()
