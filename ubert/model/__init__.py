"""Encoder, biaffine structure table, tokeniser, batches, and the model's files."""
