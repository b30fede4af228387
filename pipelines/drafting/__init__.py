"""Drafts specs from data. Only this package guesses; the strict readers and the mapper test each draft."""
