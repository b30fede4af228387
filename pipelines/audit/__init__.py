"""Find duplicates, leaks, contamination and contradictions among the records of the store, with evidence."""
