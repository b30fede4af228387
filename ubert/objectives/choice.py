"""Exactly one of the record's own candidates is right: each is a category of its text, and of its question where
it has one as the second text."""

from ubert.objectives.classification import OBJECTIVE

__all__ = ["OBJECTIVE"]
