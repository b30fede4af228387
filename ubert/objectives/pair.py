"""Exactly one category holds for a pair of texts: entailment, paraphrase, similarity class."""

from ubert.objectives.classification import REGION, decode, targets

__all__ = ["REGION", "decode", "targets"]
