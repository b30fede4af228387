"""What repeats, leaks or contradicts itself among the records of the store, with evidence."""
