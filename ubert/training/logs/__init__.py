"""Logs of a run, its speed, and its remaining time."""
