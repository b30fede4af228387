"""The loop, free of Ray: loader, optimiser, checkpoints, log. `python -m ubert.training RECIPE` runs it."""
