"""Ingest raw sources into corpora: list files, plan units, map rows, publish."""
