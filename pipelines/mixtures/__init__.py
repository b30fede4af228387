"""Mixtures decide which records are drawn from corpora, and how often."""
