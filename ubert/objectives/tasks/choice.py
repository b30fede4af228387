"""Exactly one of the record's own candidates is right. The candidates are categories; a question, if there is
one, is the second text."""

from ubert.objectives.tasks.classification import OBJECTIVE

__all__ = ["OBJECTIVE"]
