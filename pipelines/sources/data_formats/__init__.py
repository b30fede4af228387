"""Formats of plain fields, such as CSV, JSON and Parquet: a spec's `map` says which field holds what."""
