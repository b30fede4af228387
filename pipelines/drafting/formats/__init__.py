"""Detects how the files of a dataset are laid out: their splits, encodings and formats, with options."""
