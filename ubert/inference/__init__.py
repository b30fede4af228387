"""Inference: turn a checkpoint and texts into typed predictions."""
