"""Guesses a task and its `map` from the fields of sample rows."""
