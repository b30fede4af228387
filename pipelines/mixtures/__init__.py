"""Mixtures: which records of which corpora are drawn, and how often."""
