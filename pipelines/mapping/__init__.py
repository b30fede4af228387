"""Maps raw rows to records, as a spec's `map` describes."""
