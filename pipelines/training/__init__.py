"""Training under Ray Train: launch, restart, runs in an object store, short runs."""
