"""Probe how well a checkpoint transfers: fine-tune it on a few shots of each category, and evaluate it."""
