"""Shards to training batches: the order of rows, prompts, masks."""
