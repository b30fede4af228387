"""Training batches from shards: their order, prompts and masks."""
