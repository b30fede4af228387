"""Training under Ray Train: launches, restarts, runs in an object store, and short runs."""
