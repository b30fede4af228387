"""Exactly one category holds for a pair of texts: entailment, paraphrase, similarity class."""

from ubert.objectives.tasks.classification import OBJECTIVE

__all__ = ["OBJECTIVE"]
