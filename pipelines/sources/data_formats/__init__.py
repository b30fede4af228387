"""Formats of plain fields, such as CSV, JSON and Parquet. A spec's `map` tells what each field contains."""
