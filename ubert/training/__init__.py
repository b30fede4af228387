"""Training without Ray: loop, optimizer, checkpoints, log. Run it with `python -m ubert.training RECIPE`."""
