"""Raw rows to records, as a spec's `map` says."""
