"""Checkpoints of a run: written in a thread, verified when read, and packed for distribution."""
