"""Raw sources to corpora: list files, plan units, map rows, publish."""
