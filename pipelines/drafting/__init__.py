"""Specs drafted from data: the only place that guesses. What is drafted, the strict readers and the mapper try."""
